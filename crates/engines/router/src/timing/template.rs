//! The data of `Timer.Set`: when to fire, and the message to send then.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::{
    Actor, JsonText, Namespace, Namespaces, Now, OsId, OsKind, OsMessage, OsType, Principal, TICK_MS,
    Timestamp, last_members,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::timing::timer_errors::{SetTimerError, TimerRowError};

/// Largest delay and largest time of a timer: the largest integer that every JSON reader represents exactly.
pub(crate) const TIME_MAX: f64 = 9_007_199_254_740_991.0;

/// `data` of `Timer.Set`, read and checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SetTimer {
    pub(crate) when: When,
    pub(crate) template: Template,
    pub(crate) durable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    After { ms: u64 },
    At(Timestamp),
}

/// A message without id, time and cause. Only its envelope is checked, not its data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    pub(crate) kind: OsKind,
    pub(crate) ty: OsType,
    pub(crate) data: JsonText,
    pub(crate) correlation: Option<OsId>,
    pub(crate) other: Option<Arc<str>>,
}

#[derive(Deserialize)]
struct SetData<'a> {
    #[serde(rename = "delayMs", default, borrow)]
    delay_ms: Option<&'a RawValue>,
    #[serde(rename = "dueAt", default, borrow)]
    due_at: Option<&'a RawValue>,
    #[serde(default, borrow)]
    message: Option<&'a RawValue>,
    #[serde(default, borrow)]
    durable: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct TemplateData<'a> {
    #[serde(default, borrow)]
    kind: Option<&'a RawValue>,
    #[serde(rename = "type", default, borrow)]
    ty: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "given")]
    data: Option<&'a RawValue>,
    #[serde(default, borrow)]
    metadata: Option<&'a RawValue>,
}

/// Here `null` is a value, and not an absent member.
fn given<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

/// Reads and checks the data of `Timer.Set`.
pub(crate) fn parse(data: &JsonText) -> Result<SetTimer, SetTimerError> {
    let text = data.last_members();
    let set: SetData<'_> = object(&text).ok_or_else(|| SetTimerError::NotAnObject(shown(&text)))?;
    let when = match (set.delay_ms, set.due_at) {
        (Some(delay), None) => When::After { ms: time("delayMs", delay)? },
        (None, Some(due)) => When::At(Timestamp(time("dueAt", due)?)),
        (Some(_), Some(_)) => return Err(SetTimerError::TwoTimes),
        (None, None) => return Err(SetTimerError::NoTime),
    };
    let message = set.message.ok_or(SetTimerError::NoMessage)?;
    let durable = match set.durable.map(RawValue::get) {
        None | Some("null" | "true") => true,
        Some("false") => false,
        Some(other) => return Err(SetTimerError::BadDurable(shown(other))),
    };
    Ok(SetTimer { when, template: template(message)?, durable })
}

/// Returns the type and data of the message that a `Timer.Set` with this data would send; `None` if it would be
/// refused.
pub fn scheduled(data: &JsonText) -> Option<(OsType, JsonText)> {
    parse(data).ok().map(|set| (set.template.ty, set.template.data))
}

/// Parses whole milliseconds, rounded down.
fn time(name: &'static str, raw: &RawValue) -> Result<u64, SetTimerError> {
    match raw.get().parse::<f64>() {
        Ok(ms) if (0.0..=TIME_MAX).contains(&ms) => Ok(ms as u64),
        _ => Err(SetTimerError::BadTime { name, found: shown(raw.get()) }),
    }
}

/// Parses an object. Without the check serde would also accept an array of the values.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    if text.trim_start().starts_with('{') { serde_json::from_str(text).ok() } else { None }
}

/// The beginning of a refused value, to quote it in an error.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

fn template(raw: &RawValue) -> Result<Template, SetTimerError> {
    let text = last_members(raw.get());
    let found: TemplateData<'_> = object(&text).ok_or_else(|| SetTimerError::BadMessage(shown(raw.get())))?;
    let kind = found.kind.ok_or(SetTimerError::NoKind)?;
    let kind = serde_json::from_str::<String>(kind.get())
        .ok()
        .and_then(|kind| OsKind::parse(&kind))
        .filter(|kind| !kind.is_outcome())
        .ok_or_else(|| SetTimerError::BadKind(shown(kind.get())))?;
    let ty = found.ty.ok_or(SetTimerError::NoType)?;
    let ty =
        serde_json::from_str::<String>(ty.get()).map_err(|_| SetTimerError::TypeIsNoText(shown(ty.get())))?;
    let ty = OsType::new(&ty).map_err(SetTimerError::BadType)?;
    let data = found.data.ok_or(SetTimerError::NoData)?;
    let mut metadata: BTreeMap<String, &RawValue> = match found.metadata {
        None => BTreeMap::new(),
        Some(raw) => serde_json::from_str::<Option<_>>(raw.get())
            .map_err(|_| SetTimerError::BadMetadata(shown(raw.get())))?
            .unwrap_or_default(),
    };
    // These are assigned when the timer fires.
    for own in ["id", "timestamp", "causation"] {
        metadata.remove(own);
    }
    let correlation = match metadata.remove("correlation").map(RawValue::get) {
        None | Some("null") => None,
        Some(text) => {
            let text: String =
                serde_json::from_str(text).map_err(|_| SetTimerError::CorrelationIsNoText(shown(text)))?;
            Some(
                OsId::of_field("message.metadata.correlation", &text)
                    .map_err(SetTimerError::BadCorrelation)?,
            )
        }
    };
    Ok(Template { kind, ty, data: JsonText::from_checked(data), correlation, other: members(&metadata) })
}

/// Formats the members as they stand between the braces of a JSON object.
fn members(metadata: &BTreeMap<String, &RawValue>) -> Option<Arc<str>> {
    let one = |(name, value): (&String, &&RawValue)| {
        format!("{}:{}", serde_json::Value::from(name.as_str()), JsonText::from_checked(value).as_str())
    };
    let all: Vec<String> = metadata.iter().map(one).collect();
    (!all.is_empty()).then(|| all.join(",").into())
}

/// The row of a timer in the store: everything that firing it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimerRow {
    /// Wall-clock time before which the timer must not fire.
    pub(crate) due: Timestamp,
    /// Timers with equal times fire in this order.
    pub(crate) order: u64,
    /// The timer is set for a time of day, and not for a delay.
    pub(crate) absolute: bool,
    /// The delay that the timer was set with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after_ms: Option<u64>,
    /// When that delay ends in elapsed time: see [`millrace_model::ElapsedTime`]. Absent in rows of older versions, and
    /// of timers that were set before the loop knew the elapsed time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) due_elapsed: Option<Timestamp>,
    /// The id of the `Timer.Set` request.
    pub(crate) set_by: String,
    /// The ids of both messages are drawn when the timer is set, so that it sends the same ids if it fires again after
    /// a crash.
    pub(crate) message_id: String,
    pub(crate) fired_id: String,
    pub(crate) kind: String,
    #[serde(rename = "type")]
    pub(crate) ty: String,
    pub(crate) data: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) correlation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) other: Option<String>,
    /// The principal that set the timer, where access control applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<BehalfRow>,
    /// The capability that set the timer, if it was a capability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<String>,
}

/// On whose behalf a timer acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BehalfRow {
    agent: Actor,
    #[serde(default)]
    roles: Vec<Actor>,
    /// Where the principal could act. Absent if it could act in all namespaces, and in rows of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespaces: Namespaces,
}

impl BehalfRow {
    pub(crate) fn of(principal: &Principal) -> BehalfRow {
        let Principal { agent, roles, namespaces } = principal.clone();
        BehalfRow { agent, roles, namespaces }
    }

    pub(crate) fn agent(&self) -> &str {
        self.agent.as_str()
    }

    pub(crate) fn is(&self, principal: &Principal) -> bool {
        self.agent == principal.agent
    }

    /// Whether the principal could act in no namespace but these.
    pub(crate) fn acted_within(&self, namespaces: &[Namespace]) -> bool {
        self.namespaces.as_deref().is_some_and(|names| names.iter().all(|name| namespaces.contains(name)))
    }

    /// The agent whose share of timers this one counts against. Administrators have no share.
    pub(crate) fn sharer(&self) -> Option<&Actor> {
        (!self.principal().is_administrator()).then_some(&self.agent)
    }

    pub(crate) fn principal(&self) -> Principal {
        Principal { agent: self.agent.clone(), roles: self.roles.clone(), namespaces: None }
    }
}

/// When a timer that is set now is due by the wall clock.
pub(crate) fn due(now: Now, when: When) -> Timestamp {
    match when {
        // The clock is read in whole ticks: the current time may be almost a tick later than `now`.
        When::After { ms } => now.wall + ms + TICK_MS,
        When::At(at) => at,
    }
}

/// Builds the message that the timer sends now.
pub(crate) fn message(row: &TimerRow, now: Now) -> Result<OsMessage, TimerRowError> {
    use millrace_model::OsMetadata;
    Ok(OsMessage {
        kind: OsKind::parse(&row.kind).ok_or(TimerRowError::UnknownKind)?,
        ty: OsType::new(&row.ty)?,
        data: JsonText::parse(&row.data)?,
        metadata: OsMetadata {
            id: OsId::new(&row.message_id)?,
            timestamp: now.wall,
            correlation: row.correlation.as_deref().map(OsId::new).transpose()?,
            causation: Some(OsId::new(&row.set_by)?),
            other: row.other.as_deref().map(Into::into),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SetTimer, String> {
        parse(&JsonText::parse(text).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn exactly_one_time_is_taken_and_rounded_down() {
        let with = |times: &str| {
            read(&format!(r#"{{{times}"message":{{"kind":"event","type":"A.B","data":null}}}}"#))
        };
        assert_eq!(with(r#""delayMs":1.9,"#).unwrap().when, When::After { ms: 1 });
        assert_eq!(with(r#""dueAt":1e12,"#).unwrap().when, When::At(Timestamp(1_000_000_000_000)));
        assert_eq!(
            with(r#""delayMs":3000000000,"dueAt":null,"#).unwrap().when,
            When::After { ms: 3_000_000_000 }
        );
        for bad in
            ["", r#""delayMs":1,"dueAt":1,"#, r#""delayMs":-1,"#, r#""delayMs":1e400,"#, r#""delayMs":"5","#]
        {
            assert!(with(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn refusals_say_what_is_accepted_and_a_repeated_member_counts_as_its_last() {
        let message = r#""message":{"kind":"event","type":"A.B","data":null}"#;
        for (data, said) in [
            ("7".to_owned(), "data is 7: give an object with delayMs or dueAt, and message"),
            (
                format!(r#"{{"delayMs":1,"durable":"yes",{message}}}"#),
                r#"durable is "yes": give true or false"#,
            ),
            (r#"{"delayMs":1,"message":[1]}"#.to_owned(), "message is [1]: give {kind, type, data}"),
            (
                r#"{"delayMs":1,"message":{"kind":5,"type":"A.B","data":1}}"#.to_owned(),
                "message.kind is 5: give command, query or event",
            ),
            (
                r#"{"delayMs":1,"message":{"kind":"event","type":{},"data":1}}"#.to_owned(),
                "message.type is {}: give a type such as Memory.Get",
            ),
            (
                r#"{"delayMs":1,"message":{"kind":"event","type":"A.B","data":1,"metadata":3}}"#.to_owned(),
                "message.metadata is 3: give an object",
            ),
        ] {
            assert_eq!(read(&data), Err(said.to_owned()), "{data}");
        }
        let twice = format!(r#"{{"delayMs":"x","durable":true,"delayMs":5,"durable":false,{message}}}"#);
        let set = read(&twice).unwrap();
        assert_eq!((set.when, set.durable), (When::After { ms: 5 }, false));
        let twice =
            r#"{"delayMs":1,"message":{"kind":"reply","kind":"query","type":"A.B","data":1,"data":2}}"#;
        let set = read(twice).unwrap();
        assert_eq!((set.template.kind, set.template.data.as_str()), (OsKind::Query, "2"));
    }

    #[test]
    fn templates_are_requests_or_events_and_keep_what_they_bring() {
        let with =
            |message: &str| read(&format!(r#"{{"delayMs":1,"message":{message}}}"#)).map(|set| set.template);
        let kept = with(
            r#"{"kind":"command","type":"Build.Run","data":{"n":1e400},
               "metadata":{"id":"x","timestamp":"?","causation":7,"correlation":"c","trace":[1, 2]}}"#,
        )
        .unwrap();
        assert_eq!(kept.data.as_str(), r#"{"n":1e400}"#);
        assert_eq!(kept.other.as_deref(), Some(r#""trace":[1, 2]"#));
        assert_eq!(kept.correlation.unwrap().as_str(), "c");
        for bad in [
            r#"{"kind":"reply","type":"A.B","data":1}"#,
            r#"{"kind":"command","type":"a.b","data":1}"#,
            r#"{"kind":"command","type":"A.B"}"#,
            r#"{"type":"A.B","data":1}"#,
            r#"{"kind":"event","type":"A.B","data":1,"metadata":{"correlation":""}}"#,
            "7",
            "null",
        ] {
            assert!(with(bad).is_err(), "{bad}");
        }
    }
}
