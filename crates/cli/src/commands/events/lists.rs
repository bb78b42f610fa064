//! The listings: namespaces, sessions, events, dead letters.

use millrace_session::admin::{EventView, Liveness};
use serde_json::{Value, json};

use super::Call;
use super::ago::{ago, second};
use crate::failure::Failure;
use crate::output::columns;

impl Call {
    pub(super) fn list_namespaces(mut self) -> Result<(), Failure> {
        let found = self.admin.namespaces(self.now, super::SESSION_TTL_MS)?;
        if self.json {
            return self.finish_json(&json!(found));
        }
        let rows = found.iter().map(|of| {
            [
                of.namespace.to_string(),
                of.sessions.to_string(),
                of.pending_events.to_string(),
                of.dead_letters.to_string(),
            ]
        });
        self.table(["Namespace", "Sessions", "Pending Events", "Dead Letters"], rows)
    }

    pub(super) fn sessions(mut self, ttl_ms: u64) -> Result<(), Failure> {
        let found = self.admin.sessions(&self.namespace(), self.now, ttl_ms)?;
        if self.json {
            let shown = found.iter().map(|session| {
                json!({
                    "session_id": session.session_id,
                    "namespace": self.namespace(),
                    "liveness": session.liveness,
                    "is_dead": session.liveness == Liveness::Dead,
                    "started_at": session.started_at.to_string(),
                    "last_heartbeat": session.last_heartbeat.to_string(),
                    "metadata": session.metadata,
                })
            });
            let shown = shown.collect::<Vec<Value>>();
            return self.finish_json(&json!(shown));
        }
        let now = self.now;
        let rows = found.iter().map(|session| {
            let of = |name: &str| session.metadata.get(name).map_or("-".to_owned(), |text| shown(text));
            let mark = match session.liveness {
                Liveness::Alive => "",
                Liveness::Dead => " (DEAD)",
                Liveness::Stopped => " (STOPPED)",
            };
            let silent = ago(now.0.saturating_sub(session.last_heartbeat.0));
            [
                session.session_id.clone(),
                of("hostname"),
                of("pid"),
                second(session.started_at),
                format!("{silent}{mark}"),
            ]
        });
        self.table(["Session ID", "Hostname", "PID", "Started At", "Last Heartbeat"], rows)
    }

    pub(super) fn show(mut self, limit: usize) -> Result<(), Failure> {
        let found = self.admin.events(&self.namespace(), limit, self.now)?;
        if self.json {
            let shown: Vec<Value> = found.iter().map(line).collect();
            return self.finish_json(&json!(shown));
        }
        let rows = found.iter().map(|view| {
            let event = &view.event;
            [
                event.id.to_string(),
                event.stream.topic.topic().to_owned(),
                second(event.ts),
                event.body.priority.0.to_string(),
                view.status().as_str().to_owned(),
                view.handler().unwrap_or("-").to_owned(),
            ]
        });
        self.table(["Event ID", "Type", "Created At", "Priority", "Status", "Handler"], rows)
    }

    pub(super) fn dead_letters(mut self, limit: usize) -> Result<(), Failure> {
        let found = self.admin.dead_letters(&self.namespace(), limit)?;
        if self.json {
            let shown = found.iter().map(|(_, letter)| {
                let mut shown = json!({
                    "event_id": letter.event_id,
                    "type": letter.event_type,
                    "handler_id": letter.handler,
                    "attempts": letter.attempts,
                    "last_error": letter.error,
                    "failed_at": letter.failed_at.to_string(),
                    "root_event_id": letter.root.as_ref().unwrap_or(&letter.event_id),
                    "chain_depth": letter.depth,
                });
                // Without a copy there is nothing to show, and `null` is a payload: `events inspect` has the event.
                if let Some(payload) = &letter.payload {
                    shown["payload"] = serde_json::from_str(payload).unwrap_or(Value::Null);
                }
                shown
            });
            let shown = shown.collect::<Vec<Value>>();
            return self.finish_json(&json!(shown));
        }
        let rows = found.iter().map(|(_, letter)| {
            [
                letter.event_id.to_string(),
                letter.event_type.clone(),
                letter.handler.to_string(),
                letter.attempts.to_string(),
                shown(&letter.error),
            ]
        });
        self.table(["Event ID", "Type", "Handler", "Attempts", "Last Error"], rows)
    }

    pub(super) fn finish_json(&mut self, value: &Value) -> Result<(), Failure> {
        self.out.json(value)?;
        self.out.flush()
    }

    fn table<const N: usize>(
        &mut self,
        head: [&str; N],
        rows: impl Iterator<Item = [String; N]>,
    ) -> Result<(), Failure> {
        let mut lines = vec![head.map(String::from).to_vec()];
        lines.extend(rows.map(|row| row.to_vec()));
        self.out.document(&columns(&lines).join("\n"))
    }
}

/// What handlers and programs wrote must stay text on a terminal.
fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}

fn line(view: &EventView) -> Value {
    let event = &view.event;
    json!({
        "id": event.id,
        "type": event.stream.topic.topic(),
        "created_at": event.ts.to_string(),
        "priority": event.body.priority,
        "status": view.status(),
        "handler": view.handler(),
        "payload": serde_json::from_str::<Value>(event.body.payload.as_str()).unwrap_or(Value::Null),
    })
}
