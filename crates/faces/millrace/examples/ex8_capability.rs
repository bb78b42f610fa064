//! Example 8: a capability of the CQRS loop in Rust, in a program of its own. The capability answers every client that
//! writes a line of JSON to its socket, and counts its greetings by listening to its own events.
//!
//! ```sh
//! cargo run -p millrace --example ex8_capability greeter.sock &
//! millrace send --socket greeter.sock '{"kind":"query","type":"Greeter.Hello","data":{"name":"Ada"}}'
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace::os::{Capability, KernelHandle, KernelParts, SocketFile};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Hello {
    name: String,
}

fn greeter() -> Capability {
    let greeted = Arc::new(AtomicU64::new(0));
    let counted = greeted.clone();
    let schema = json!({
        "type": "object",
        "required": ["name"],
        "properties": { "name": { "type": "string", "description": "Whom to greet" } },
    });
    Capability::new("Greeter", "Says hello")
        .query("Greeter.Hello", "Greets by name", schema, |ctx, _| async move {
            let Hello { name } = ctx.data()?;
            ctx.emit("Greeter.Greeted", &json!({ "name": name })).await?;
            ctx.reply(&json!({ "text": format!("Hello, {name}") }))
        })
        .on_event("Greeter.Greeted", move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        })
        .query("Greeter.Count", "How many it has greeted", json!({}), move |ctx, _| {
            let greeted = greeted.load(Ordering::Relaxed);
            async move { ctx.reply(&json!({ "greeted": greeted })) }
        })
}

/// Serves the socket until `done` is ready.
pub(crate) async fn run(
    socket: &Path,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn std::error::Error>> {
    let (handle, _asked) = KernelHandle::start(KernelParts::volatile(), vec![greeter()]).await?;
    let (mut place, listener) = SocketFile::bind(socket)?;
    handle.listen(listener).await?;
    // The socket appears under its name only now, when it is served.
    place.open()?;
    done.await;
    handle.stop(std::time::Duration::from_secs(1)).await;
    Ok(())
}

#[allow(dead_code, reason = "the tests run it from outside")]
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = std::env::args().nth(1).unwrap_or_else(|| "greeter.sock".to_owned());
    let stopped = async {
        // If signals cannot be received, the program runs until it is killed.
        let _ = tokio::signal::ctrl_c().await;
    };
    run(Path::new(&socket), stopped).await
}
