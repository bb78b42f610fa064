//! The `millrace events` commands that change something.

use std::io::{IsTerminal, Write, stderr, stdin};

use millrace_admin::{PublishedAgain, Replayed, Resent};
use millrace_model::{EventId, HandlerId, Namespace};
use serde_json::json;

use super::EventsCall;
use super::ago::{age, grouped};
use crate::failure::Failure;

const AVAILABLE: &str = "Available for processing immediately";

impl EventsCall {
    pub(super) fn replay(mut self, id: &EventId) -> Result<(), Failure> {
        let namespace = self.namespace();
        let replayed = self.admin.publish_again(&namespace, id, self.now)?;
        if self.json {
            return self.finish_json(&json!({
                "replayed_event_id": id, "new_event_id": replayed.new_event_id, "namespace": namespace,
            }));
        }
        self.out.document(&format!(
            "Event {id} re-enqueued for namespace '{namespace}' as {}\n{AVAILABLE}",
            replayed.new_event_id
        ))
    }

    pub(super) fn replay_dead_letters(self, which: &str) -> Result<(), Failure> {
        let only = one_or_all("--replay", which)?;
        let namespace = self.namespace();
        let resent = self.admin.replay_dead_letters(&namespace, only.as_ref(), self.now)?;
        let line = |one: &Replayed| {
            let Replayed { event_id, handler_id } = one;
            format!("Event {event_id} re-enqueued for handler {handler_id} of namespace '{namespace}'")
        };
        let row = |one: &Replayed| json!({ "replayed_event_id": one.event_id, "handler_id": one.handler_id, "namespace": namespace });
        self.resent(&namespace, &resent, line, row)
    }

    pub(super) fn publish_dead_letters_again(self, which: &str) -> Result<(), Failure> {
        let only = one_or_all("--publish-again", which)?;
        let namespace = self.namespace();
        let resent = self.admin.publish_dead_letters_again(&namespace, only.as_ref(), self.now)?;
        let line = |one: &PublishedAgain| {
            let PublishedAgain { event_id, new_event_id } = one;
            format!("Event {event_id} published again for namespace '{namespace}' as {new_event_id}")
        };
        let row = |one: &PublishedAgain| {
            json!({
                "replayed_event_id": one.event_id, "new_event_id": one.new_event_id, "namespace": namespace,
            })
        };
        self.resent(&namespace, &resent, line, row)
    }

    /// Prints what was sent again. Fails with the reasons if some of it was refused.
    fn resent<T>(
        mut self,
        namespace: &Namespace,
        resent: &Resent<T>,
        line: impl Fn(&T) -> String,
        row: impl Fn(&T) -> serde_json::Value,
    ) -> Result<(), Failure> {
        let Resent { done, refused } = resent;
        if self.json {
            self.finish_json(&json!(done.iter().map(row).collect::<Vec<_>>()))?;
        } else {
            let mut lines: Vec<String> = done.iter().map(line).collect();
            match (done.len(), refused.len()) {
                (0, 0) => lines.push(format!("No dead letters in namespace '{namespace}'")),
                (0, _) => {}
                _ => lines.push(AVAILABLE.to_owned()),
            }
            if !lines.is_empty() {
                self.out.document(&lines.join("\n"))?;
            }
        }
        match refused.as_slice() {
            [] => Ok(()),
            reasons => {
                let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                Err(Failure::Failed(reasons.join("\n")))
            }
        }
    }

    pub(super) fn delete_dead_letters(mut self, which: &str, yes: bool) -> Result<(), Failure> {
        let only = one_or_all("--delete", which)?;
        let namespace = self.namespace();
        let whose = only
            .as_ref()
            .map_or_else(|| "all dead letters".to_owned(), |id| format!("the dead letters of {id}"));
        confirm(yes, &format!("Delete {whose} of namespace '{namespace}'?"))?;
        let deleted = self.admin.delete_dead_letters(&namespace, only.as_ref(), self.now)?;
        if self.json {
            return self.finish_json(&json!({ "namespace": namespace, "deleted": deleted }));
        }
        self.out.document(&format!("Deleted {} of namespace '{namespace}'", counted(deleted, "dead letter")))
    }

    pub(super) fn cleanup(
        mut self,
        before: &str,
        all: bool,
        dead_letters: bool,
        yes: bool,
    ) -> Result<(), Failure> {
        let (age_ms, words) = age(before)?;
        let namespace = self.namespace();
        let which = if all { "all events" } else { "finished events" };
        let letters = if dead_letters { " and dead letters" } else { "" };
        confirm(yes, &format!("Delete {which}{letters} older than {words} of namespace '{namespace}'?"))?;
        let before = self.now.saturating_sub(age_ms);
        let cleaned = self.admin.cleanup(&namespace, before, all, dead_letters, self.now)?;
        if self.json {
            return self.finish_json(&json!({
                "namespace": namespace, "before": before.to_string(), "deleted": cleaned.events,
                "dead_letters_deleted": cleaned.dead_letters,
            }));
        }
        let events = counted(cleaned.events, "event");
        let letters = if dead_letters {
            format!(" and {}", counted(cleaned.dead_letters, "dead letter"))
        } else {
            String::new()
        };
        self.out
            .document(&format!("Deleted {events}{letters} older than {words} for namespace '{namespace}'"))
    }

    pub(super) fn forget_handler(mut self, handler: &str, yes: bool) -> Result<(), Failure> {
        let handler = HandlerId::new(handler).map_err(|error| Failure::Usage(error.to_string()))?;
        let namespace = self.namespace();
        confirm(yes, &format!("Forget handler {handler} of namespace '{namespace}' and what it has open?"))?;
        self.admin.forget_handler(&namespace, &handler, self.now)?;
        if self.json {
            return self
                .finish_json(&json!({ "namespace": namespace, "handler_id": handler, "forgotten": true }));
        }
        self.out.document(&format!("Handler {handler} of namespace '{namespace}' is forgotten"))
    }

    pub(super) fn set_handler_paused(mut self, handler: &str, paused: bool) -> Result<(), Failure> {
        let handler = HandlerId::new(handler).map_err(|error| Failure::Usage(error.to_string()))?;
        let namespace = self.namespace();
        self.admin.set_handler_paused(&namespace, &handler, paused, self.now)?;
        if self.json {
            return self
                .finish_json(&json!({ "namespace": namespace, "handler_id": handler, "paused": paused }));
        }
        let what = if paused { "is paused: its events wait, and are kept" } else { "goes on" };
        self.out.document(&format!("Handler {handler} of namespace '{namespace}' {what}"))
    }

    pub(super) fn run_schedule(mut self, name: &str) -> Result<(), Failure> {
        let namespace = self.namespace();
        self.admin.run_schedule(&namespace, name, self.now)?;
        if self.json {
            return self.finish_json(&json!({ "namespace": namespace, "schedule": name, "run_asked": true }));
        }
        self.out.document(&format!(
            "Schedule {name:?} of namespace '{namespace}' fires once, as soon as a session that has it looks"
        ))
    }

    pub(super) fn set_schedule_enabled(mut self, name: &str, enabled: bool) -> Result<(), Failure> {
        let namespace = self.namespace();
        self.admin.set_schedule_enabled(&namespace, name, enabled, self.now)?;
        if self.json {
            return self
                .finish_json(&json!({ "namespace": namespace, "schedule": name, "enabled": enabled }));
        }
        let what = if enabled { "goes on" } else { "is paused: it fires no more until it is resumed" };
        self.out.document(&format!("Schedule {name:?} of namespace '{namespace}' {what}"))
    }
}

fn one_or_all(flag: &str, which: &str) -> Result<Option<EventId>, Failure> {
    match which {
        "all" => Ok(None),
        id => EventId::parse(id).map(Some).map_err(|error| Failure::Usage(format!("{flag}: {error}"))),
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Asks for confirmation if a person is at a terminal; a script needs none.
fn confirm(yes: bool, question: &str) -> Result<(), Failure> {
    if yes || !stdin().is_terminal() || !stderr().is_terminal() {
        return Ok(());
    }
    let _ = write!(stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    stdin()
        .read_line(&mut answer)
        .map_err(|error| Failure::Failed(format!("cannot read the answer: {error}")))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Failed("nothing was deleted".into())),
    }
}
