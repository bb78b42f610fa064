//! The listings of `millrace events`: namespaces, sessions, handlers, schedules, events, dead letters.

use millrace_admin::{EventView, Liveness, Status};
use millrace_model::HangingRow;
use serde_json::{Value, json};

use super::EventsCall;
use super::ago::{ago, second};
use super::inspect::claim;
use crate::failure::Failure;
use crate::output::columns;

impl EventsCall {
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
                    "hanging": session.hanging.iter().map(hanging).collect::<Vec<Value>>(),
                    "counts": session.counts,
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
            let hanging = match session.hanging.len() {
                0 => String::new(),
                count => format!(" ({count} HANGING)"),
            };
            [
                session.session_id.clone(),
                of("hostname"),
                of("pid"),
                second(session.started_at),
                format!("{silent}{mark}{hanging}"),
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
                owed_by(view),
            ]
        });
        self.table(["Event ID", "Type", "Created At", "Priority", "Status", "Handler", "Owed By"], rows)
    }

    pub(super) fn handlers(mut self) -> Result<(), Failure> {
        let found = self.admin.handlers(&self.namespace(), self.now)?;
        if self.json {
            let shown = found.iter().map(|of| {
                json!({
                    "handler_id": of.handler_id,
                    "namespace": self.namespace(),
                    "event_type": of.event_type,
                    "registered_at": of.registered_at.to_string(),
                    "pending": of.pending,
                    "claimed": of.claimed,
                    "retrying": of.retrying,
                    "dead_letters": of.dead_letters,
                    "paused": of.paused,
                })
            });
            let shown = shown.collect::<Vec<Value>>();
            return self.finish_json(&json!(shown));
        }
        let rows = found.iter().map(|of| {
            [
                of.handler_id.clone(),
                of.event_type.clone(),
                second(of.registered_at),
                of.pending.to_string(),
                of.claimed.to_string(),
                of.retrying.to_string(),
                of.dead_letters.to_string(),
                if of.paused { "yes" } else { "no" }.to_owned(),
            ]
        });
        self.table(
            ["Handler", "Type", "Registered At", "Pending", "Claimed", "Retrying", "Dead Letters", "Paused"],
            rows,
        )
    }

    pub(super) fn schedules(mut self) -> Result<(), Failure> {
        let found = self.admin.schedules(&self.namespace(), self.now)?;
        if self.json {
            let shown = found.iter().map(|of| {
                json!({
                    "name": of.name,
                    "namespace": self.namespace(),
                    "cron": of.row.cron,
                    "zone": of.row.zone,
                    "event_type": of.row.event_type,
                    "enabled": of.row.enabled,
                    "fires": of.row.fires,
                    "last_at": of.row.last.to_string(),
                    "words": of.words,
                    "next_at": of.next_at().map(|at| at.to_string()),
                    "next": of.next.iter().map(ToString::to_string).collect::<Vec<_>>(),
                    "missed": of.missed,
                    "run_asked_at": of.row.run.map(|at| at.to_string()),
                    "overdue_since": of.overdue_since.map(|at| at.to_string()),
                })
            });
            let shown = shown.collect::<Vec<Value>>();
            return self.finish_json(&json!(shown));
        }
        let rows = found.iter().map(|of| {
            let next = match (of.row.enabled, of.next_at(), of.overdue_since) {
                (false, _, _) => "off".to_owned(),
                (true, _, Some(due)) => format!("overdue since {}", second(due)),
                (true, Some(next), None) => second(next),
                (true, None, None) => "-".to_owned(),
            };
            [
                shown(&of.name),
                shown(&of.row.cron),
                shown(&of.row.zone),
                of.row.event_type.clone(),
                of.row.fires.to_string(),
                second(of.row.last),
                next,
            ]
        });
        self.table(["Schedule", "Cron", "Zone", "Type", "Fires", "Last Fire", "Next Fire"], rows)
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
                // A letter without a copy of the payload has no `payload` field, because `null` would be a payload;
                // `events inspect` shows the event.
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

/// Escapes text that handlers and programs wrote, so that it cannot control the terminal.
fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}

/// Returns a hanging run, one that has exceeded its time, as JSON.
fn hanging(run: &HangingRow) -> Value {
    json!({
        "handler_id": run.handler,
        "event_id": run.event,
        "since": run.since.to_string(),
        "cut_off": run.cut_off,
    })
}

/// Returns which handlers have not finished the event, and how many attempts of each have failed.
fn owed_by(view: &EventView) -> String {
    if view.claims.is_empty() {
        return "no handler yet".to_owned();
    }
    let owing = view.owing().map(|claim| match (claim.status, claim.attempts) {
        (Status::Claimed, _) => format!("{} (claimed)", claim.handler_id),
        (_, 0) => claim.handler_id.clone(),
        (_, failed) => format!("{} ({failed} failed)", claim.handler_id),
    });
    let owing = owing.collect::<Vec<_>>().join(", ");
    if owing.is_empty() { "-".to_owned() } else { owing }
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
        "handlers": view.claims.iter().map(claim).collect::<Vec<Value>>(),
        "owed_by": view.owing().map(|claim| claim.handler_id.as_str()).collect::<Vec<_>>(),
        "payload": serde_json::from_str::<Value>(event.body.payload.as_str()).unwrap_or(Value::Null),
    })
}
