//! The rights of a caller here, and which namespaces there are.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_admin::Admin;
use millrace_bus::{Reply, Request, Stats};
use millrace_model::{DLQ_SUFFIX, Namespace, Offset, Requester, Timestamp};
use millrace_store::{FailureCause, StoreError};
use millrace_wire::http::{Limits, NamespaceDoc, NamespaceList, WhoAmI};

use crate::access::{Caller, NamespaceRule, Scope};
use crate::app::SharedApp;
use crate::http::document;
use crate::http::durable_handlers::HandlerFigures;
use crate::params::Params;
use crate::refusal::Refusal;

pub(crate) async fn whoami(State(app): State<SharedApp>, caller: Caller) -> Response {
    let settings = &app.edge.settings;
    let now = app.broker.clock().now().wall;
    let grant = caller.grant.as_deref();
    let scopes = grant.map_or(Scope::ALL, |grant| &grant.scopes);
    let namespaces = match grant.map(|grant| &grant.namespaces) {
        Some(NamespaceRule::Only(names)) => names.iter().map(ToString::to_string).collect(),
        Some(NamespaceRule::All) | None => vec!["*".to_owned()],
    };
    let doc = WhoAmI {
        agent: caller.agent().map(str::to_owned),
        scopes: scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
        namespaces,
        open: app.edge.tokens.is_open(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: Timestamp(now.0.saturating_sub(app.broker.metrics().uptime_ms)),
        now,
        limits: Limits {
            frame_bytes_max: settings.frame_bytes_max as u64,
            page_events_max: settings.page_events_max as u64,
            list_max: settings.list_max as u64,
            scan_max: settings.scan_events_max as u64,
            tails_max: settings.tails_max as u64,
        },
    };
    document(StatusCode::OK, &doc)
}

/// A page of the namespaces that the caller may use.
pub(crate) async fn namespaces(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    let list_max = app.edge.settings.list_max as u64;
    let limit = params.number("limit", 1..=list_max)?.unwrap_or(list_max) as usize;
    let after = params.text("after").map(str::to_owned);
    let stats = match app.request(Requester::Trusted, Request::Stats).await? {
        Reply::Stats(stats) => stats,
        other => return Err(Refusal::unexpected(&other)),
    };
    let handlers = app.handler_figures(app.broker.clock().now().wall).await;
    let rule = caller.grant.as_deref().map(|grant| grant.namespaces.clone());
    let may_use = move |name: &str| rule.as_ref().is_none_or(|rule| rule.allows(name));
    let store = app.store.clone();
    let mut found = app
        .read(move |store_read| {
            let names = Admin::new(store).namespace_names().map_err(|error| match error {
                millrace_admin::AdminError::Store(error) => error,
                other => StoreError::Unreadable(FailureCause::of(other)),
            })?;
            let mut found: BTreeMap<String, NamespaceDoc> = BTreeMap::new();
            // A namespace without anything in it is where a new server begins.
            let names = names.into_iter().chain([Namespace::default()]);
            for name in names.filter(|name| may_use(name.as_str())) {
                let doc = NamespaceDoc { namespace: name.to_string(), ..NamespaceDoc::default() };
                found.insert(doc.namespace.clone(), doc);
            }
            for bounds in store_read.streams()? {
                let topic = &bounds.stream.topic;
                if let Some(doc) = found.get_mut(topic.namespace())
                    && topic.topic().ends_with(DLQ_SUFFIX)
                {
                    doc.dead_letters += bounds.next.0.saturating_sub(bounds.start.max(Offset::FIRST).0);
                }
            }
            Ok(found)
        })
        .await?;
    count(&mut found, &stats, &handlers);
    let mut pages =
        found.into_values().filter(|doc| after.as_ref().is_none_or(|after| doc.namespace > *after));
    let namespaces: Vec<NamespaceDoc> = pages.by_ref().take(limit).collect();
    let next = pages.next().and_then(|_| namespaces.last().map(|last| last.namespace.clone()));
    Ok(document(StatusCode::OK, &NamespaceList { namespaces, next }))
}

fn count(found: &mut BTreeMap<String, NamespaceDoc>, stats: &Stats, handlers: &[HandlerFigures]) {
    for topic in stats.by_topic.keys().filter(|topic| !topic.is_system()) {
        if let Some(doc) = found.get_mut(topic.namespace()) {
            doc.topics += 1;
        }
    }
    for group in &stats.by_group {
        if let Some(doc) = found.get_mut(group.topic.namespace()) {
            doc.groups += 1;
        }
    }
    for handler in handlers {
        if let Some(doc) = found.get_mut(handler.namespace.as_str()) {
            doc.handlers += 1;
            doc.pending_events += handler.view.pending;
            doc.handler_letters += handler.view.dead_letters;
        }
    }
}
