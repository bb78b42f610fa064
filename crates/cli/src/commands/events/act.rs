//! The commands that change something.

use std::io::{IsTerminal, Write, stderr, stdin};

use millrace_model::{EventId, HandlerId};
use serde_json::json;

use super::Call;
use super::ago::{age, grouped};
use crate::failure::Failure;

impl Call {
    pub(super) fn replay(mut self, id: &EventId) -> Result<(), Failure> {
        let namespace = self.namespace();
        let replayed = self.admin.replay(&namespace, id, self.now)?;
        if self.json {
            return self.finish_json(&json!({
                "replayed_event_id": id, "new_event_id": replayed.new_event_id, "namespace": namespace,
            }));
        }
        self.out.document(&format!(
            "Event {id} re-enqueued for namespace '{namespace}' as {}\nAvailable for processing immediately",
            replayed.new_event_id
        ))
    }

    pub(super) fn replay_dead_letters(mut self, which: &str) -> Result<(), Failure> {
        let only = one_or_all("--replay", which)?;
        let namespace = self.namespace();
        let replayed = self.admin.replay_dead_letters(&namespace, only.as_ref(), self.now)?;
        if self.json {
            let pairs = replayed.iter().map(|one| {
                json!({ "replayed_event_id": one.event_id, "new_event_id": one.new_event_id, "namespace": namespace })
            });
            let pairs = json!(pairs.collect::<Vec<_>>());
            return self.finish_json(&pairs);
        }
        let mut lines: Vec<String> = replayed
            .iter()
            .map(|one| {
                format!(
                    "Event {} re-enqueued for namespace '{namespace}' as {}",
                    one.event_id, one.new_event_id
                )
            })
            .collect();
        lines.push(match replayed.len() {
            0 => format!("No dead letters in namespace '{namespace}'"),
            _ => "Available for processing immediately".to_owned(),
        });
        self.out.document(&lines.join("\n"))
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

/// A person at a terminal is asked; a script is taken at its word.
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
