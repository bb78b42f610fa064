//! `/delayed`: events that wait for their time. Sessions move due events as this server does, so all of this works on
//! their rows, with the checks that every mover makes.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_admin::{Admin, ChangeError, DelayedPage, DelayedQuery, DelayedView};
use millrace_model::{DueBy, DueEvent, Timestamp, TopicName};
use millrace_store::Store;
use millrace_wire::ErrorCode;
use millrace_wire::http::{DelayedDoc, DelayedDone, DelayedList};

use crate::access::Caller;
use crate::app::{App, SharedApp};
use crate::http::durable_handlers::{Readers, unreadable};
use crate::http::{document, withheld};
use crate::params::{AtNamed, Params, topic_key};
use crate::refusal::Refusal;

pub(crate) async fn list(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    let (namespace, by, reads_as) = (params.namespace()?, caller.by_unless_admin(), caller.by());
    let limit = params.list_limit(app.edge.settings.list_max)?;
    let topic = params.text("topic").map(|topic| topic_key(&params, topic)).transpose()?;
    let after = params.text("after").map(key_of).transpose()?;
    let (scan_max, is_withheld) = (app.edge.settings.scan_events_max, caller.is_withheld());
    let (store, now) = (app.store.clone(), app.broker.clock().now().wall);
    let read = app.read(move |reader| {
        let mut readers = Readers::new(reader, &namespace, by);
        let mut may_see = |topic: &str| Ok(readers.may_read(topic)?);
        let query = DelayedQuery { topic: topic.as_ref(), after: after.as_deref(), max: limit, scan_max };
        let DelayedPage { events, after } =
            Admin::new(store).delayed(&namespace, &query, now, &mut may_see).map_err(unreadable)?;
        let mut readers = Readers::new(reader, &namespace, reads_as);
        let mut delayed = Vec::new();
        for view in events {
            let may_read = !is_withheld && readers.may_read(view.event.topic.topic())?;
            let Some(mut doc) = shown(view) else { continue };
            if !may_read {
                withheld::delayed(&mut doc);
            }
            delayed.push(doc);
        }
        Ok((delayed, after))
    });
    let (delayed, after) = read.await?;
    Ok(document(StatusCode::OK, &DelayedList { delayed, next: after.as_deref().map(entry_of) }))
}

/// The key of a row as one segment of a path: keys consist of hexadecimal numbers with slashes between them.
fn entry_of(key: &str) -> String {
    key.replace('/', "-")
}

fn key_of(entry: &str) -> Result<String, Refusal> {
    let is_entry =
        !entry.is_empty() && entry.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_entry {
        let detail = format!("{entry:.80?} is no delayed event: take `entry` or `next` of GET /delayed");
        return Err(Refusal::new(ErrorCode::BadFrame, detail));
    }
    Ok(entry.replace('-', "/"))
}

fn shown(view: DelayedView) -> Option<DelayedDoc> {
    let DelayedView { event, due, topic_gone } = view;
    let waits_for = match DueBy::of(&event.key) {
        DueBy::Wall => "time",
        DueBy::Elapsed => "delay",
    };
    Some(DelayedDoc {
        entry: entry_of(&event.key),
        id: event.row.id.as_ref().map(ToString::to_string),
        topic: TopicName::new(event.topic.topic()).ok()?,
        partition: millrace_model::Partition(event.row.partition),
        key: event.row.key.clone(),
        due: due.0,
        waits_for: waits_for.to_owned(),
        payload_bytes: event.row.payload.len() as u64,
        withheld: false,
        topic_gone,
    })
}

/// Publishes a delayed event now, under its id.
pub(crate) async fn publish(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtNamed,
) -> Result<Response, Refusal> {
    change(&app, &caller, at, "published", Admin::publish_delayed).await
}

pub(crate) async fn cancel(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtNamed,
) -> Result<Response, Refusal> {
    change(&app, &caller, at, "cancelled", Admin::cancel_delayed).await
}

async fn change(
    app: &SharedApp,
    caller: &Caller,
    at: AtNamed,
    state: &'static str,
    change: impl FnOnce(&Admin, &DueEvent, Timestamp) -> Result<(), ChangeError> + Send + 'static,
) -> Result<Response, Refusal> {
    let AtNamed { name: entry, namespace } = at;
    let key = key_of(&entry)?;
    let (of, by) = (namespace.clone(), caller.by_unless_admin());
    let (named, recorded) = (entry.clone(), entry.clone());
    let carry_out = move |admin: &Admin, store: &dyn Store, now: Timestamp| {
        let unknown = || ChangeError::NotDelayed(named.clone());
        let event = admin.delayed_event(&of, &key)?.ok_or_else(unknown)?;
        // An event that the caller may not see does not exist for the caller.
        if !Readers::new(store, &of, by).may_read(event.topic.topic())? {
            return Err(unknown());
        }
        change(admin, &event, now)?;
        Ok(event)
    };
    let record = move |app: &App, event: &DueEvent| {
        app.acted(audit_kind(state), &namespace, &told_id(event, &recorded));
    };
    let event = app.act(carry_out, record).await?;
    let topic = TopicName::new(event.topic.topic()).map_err(|error| crate::http::damaged_name(&error))?;
    let id = event.row.id.as_ref().map(ToString::to_string);
    Ok(document(StatusCode::OK, &DelayedDone { entry, id, topic, state: state.to_owned() }))
}

fn audit_kind(state: &str) -> &'static str {
    if state == "published" { "delayed_published" } else { "delayed_cancelled" }
}

/// The event's id for the audit, or the name of its entry if it has none yet.
fn told_id(event: &DueEvent, entry: &str) -> String {
    event.row.id.as_ref().map_or_else(|| entry.to_owned(), ToString::to_string)
}
