//! `Syscall.Ping`, `Describe`, `List`, `Authenticate`, `Shutdown` and `Reload`.

use std::sync::Arc;

use millrace_model::{JsonText, OsFault};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::capabilities::capability::{Capability, HandlerPlace};
use crate::capabilities::context::Context;
use crate::clients::credentials::{self, AUTHENTICATE, CheckToken, RELOAD, SHUTDOWN};
use crate::kernel_thread::start::HostRequest;
use crate::settings::KernelSettings;
use crate::syscalls::describe::{describe, list};

pub(super) fn syscall(
    settings: &Arc<KernelSettings>,
    check_token: Option<CheckToken>,
    asked: mpsc::Sender<HostRequest>,
) -> Capability {
    let require_auth = settings.require_auth;
    let page_bytes = super::page_bytes(settings.line_bytes_max);
    Capability::new("Syscall", "The loop's own commands")
        .place(HandlerPlace::Kernel)
        // The data comes back byte for byte, so nothing about it is checked.
        .open_query(
            "Syscall.Ping",
            "Answers with the data it was sent",
            object(&json!({ "payload": { "description": "Anything" } }), &[]),
            |_, message| async move { Ok(message.data.clone()) },
        )
        .answers(object(&json!({ "payload": { "description": "The same" } }), &[]))
        .query(
            "Syscall.Describe",
            "Introspects the kernel capabilities.",
            json!({
                "type": "object",
                "properties": {
                    "name": { "type": "string", "description": "The type, such as Memory.Set" },
                    "capabilities": {
                        "type": "array",
                        "items": { "type": "string" },
                        "description": "Types or names of capabilities; \"*\" for all",
                    },
                    "after": { "type": ["string", "null"], "description": "`next` of the page before" },
                },
                "anyOf": [{ "required": ["name"] }, { "required": ["capabilities"] }],
            }),
            move |ctx, _| async move { describe(&ctx, page_bytes).await },
        )
        .answers(json!({ "type": "object" }))
        .query(
            "Syscall.List",
            "The types of all requests",
            json!({}),
            |ctx, _| async move { list(&ctx).await },
        )
        .answers(object(
            &json!({ "syscalls": { "type": "array", "items": { "type": "string" } } }),
            &["syscalls"],
        ))
        .command(
            AUTHENTICATE,
            "Shows a token: from now on the connection has what that token is good for",
            object(&json!({ "token": { "type": ["string", "null"], "description": "As configured" } }), &[]),
            move |ctx, _| {
                let authenticated = authenticate(&ctx, check_token.as_ref(), require_auth);
                async move { authenticated }
            },
        )
        .answers(object(
            &json!({ "authenticated": { "type": "boolean" }, "message": { "type": "string" } }),
            &["authenticated", "message"],
        ))
        .command(SHUTDOWN, "Stops the server after what is in hand", json!({}), move |ctx, _| {
            let asked = asked.clone();
            async move {
                asked.try_send(HostRequest::Shutdown).map_err(|_| busy())?;
                ctx.reply(&json!({ "message": "Shutdown acknowledged" }))
            }
        })
        .answers(object(&json!({ "message": { "type": "string" } }), &["message"]))
}

/// `Syscall.Reload`, as a capability of its own: it takes a while, and other system calls must not wait for it.
pub(super) fn reload(asked: mpsc::Sender<HostRequest>) -> Capability {
    Capability::new("Reload", "Reads the configuration again")
        .place(HandlerPlace::Kernel)
        .command(RELOAD, "Reads tokens, certificate and capabilities again", json!({}), move |ctx, _| {
            let asked = asked.clone();
            async move {
                let (done, is_done) = oneshot::channel();
                asked.try_send(HostRequest::Reload { done }).map_err(|_| busy())?;
                match is_done.await.map_err(|_| OsFault::new(503, "Kernel shutting down"))? {
                    Ok(message) => ctx.reply(&json!({ "success": true, "message": message })),
                    Err(why) => Err(OsFault::new(422, format!("not reloaded: {why}"))),
                }
            }
        })
        .answers(object(
            &json!({ "success": { "type": "boolean" }, "message": { "type": "string" } }),
            &["success", "message"],
        ))
}

fn authenticate(
    ctx: &Context,
    check_token: Option<&CheckToken>,
    require_auth: bool,
) -> Result<JsonText, OsFault> {
    let answer = |message: String| ctx.reply(&json!({ "authenticated": true, "message": message }));
    match (credentials::token_of(ctx.message()), check_token) {
        (Some(token), Some(check)) => match check(&token) {
            Ok(known) => answer(format!("You are {}", known.by.agent)),
            Err(error) => Err(OsFault::new(error.code(), error.to_string())),
        },
        (None, Some(_)) if require_auth => Err(OsFault::new(401, "send a token: {\"token\": \"...\"}")),
        _ => answer("No token is required".to_owned()),
    }
}

fn busy() -> OsFault {
    OsFault::new(503, "too many such requests wait: try again later")
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}
