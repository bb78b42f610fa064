//! `GET /settings` and `GET /log`: how the server was set up, and the last lines of its log. No answer holds a secret.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_child::ChildSettings;
use millrace_model::Timestamp;
use millrace_wire::ErrorCode;
use millrace_wire::http::{CapabilitySettingDoc, LogDoc, LogLineDoc, SettingsDoc, TokenDoc};

use crate::access::{NamespaceRule, Proof, TokenSettings};
use crate::app::SharedApp;
use crate::http::document;
use crate::observe::{KeptLine, LogLevel};
use crate::params::Params;
use crate::refusal::Refusal;

/// Lines of one answer.
const LINES_MAX: u64 = 1000;

pub(crate) async fn settings(State(app): State<SharedApp>) -> Response {
    let (edge, now) = (&app.edge, app.broker.clock().now().wall);
    let reloaded = edge.reloaded.lock().clone();
    let known = &edge.settings.described;
    let settings = reloaded.as_ref().map_or_else(|| known.clone(), |to| to.described_after(known));
    let capabilities = reloaded.as_ref().map_or(&edge.settings.capabilities, |to| &to.capabilities);
    let doc = SettingsDoc {
        settings: settings.to_vec(),
        tokens: edge.tokens.settings().iter().map(|token| token_doc(token, now)).collect(),
        capabilities: capabilities.iter().map(capability_doc).collect(),
    };
    document(StatusCode::OK, &doc)
}

fn token_doc(token: &TokenSettings, now: Timestamp) -> TokenDoc {
    let (kind, certificate) = match &token.proof {
        Proof::Token(_) => ("token", None),
        Proof::Certificate(name) => ("certificate", Some(name.as_str().to_owned())),
    };
    TokenDoc {
        agent: token.agent.to_string(),
        kind: kind.to_owned(),
        certificate,
        scopes: token.scopes.iter().map(ToString::to_string).collect(),
        namespaces: match &token.namespaces {
            NamespaceRule::All => vec!["*".to_owned()],
            NamespaceRule::Only(names) => names.iter().map(ToString::to_string).collect(),
        },
        roles: token.roles.iter().map(ToString::to_string).collect(),
        expires: token.expires,
        expired: token.has_expired(now),
        rate_per_second: token.rate.map(|rate| rate.per_second),
    }
}

fn capability_doc(child: &ChildSettings) -> CapabilitySettingDoc {
    CapabilitySettingDoc {
        name: child.name.clone(),
        program: child.command.first().cloned().unwrap_or_default(),
        restart: child.restart,
        env: child.env.keys().cloned().collect(),
    }
}

pub(crate) async fn log(State(app): State<SharedApp>, params: Params) -> Result<Response, Refusal> {
    let level = match params.text("level") {
        None => LogLevel::Info,
        Some(text) => LogLevel::ALL.into_iter().find(|level| level.as_str() == text).ok_or_else(|| {
            let detail = format!("level is {text:.40?}: it must be info, warn or error");
            Refusal::new(ErrorCode::BadFrame, detail)
        })?,
    };
    let limit = params.number("limit", 1..=LINES_MAX)?.unwrap_or(LINES_MAX) as usize;
    let (kept, forgotten) = app.edge.settings.log.newest(level, limit);
    Ok(document(StatusCode::OK, &LogDoc { lines: kept.into_iter().map(line_doc).collect(), forgotten }))
}

fn line_doc(kept: KeptLine) -> LogLineDoc {
    let KeptLine { line, is_cut: cut, .. } = kept;
    let (ts, level, target) = (line.ts, line.level.as_str().to_owned(), line.target);
    LogLineDoc { ts, level, target, message: line.message, fields: line.fields, cut }
}
