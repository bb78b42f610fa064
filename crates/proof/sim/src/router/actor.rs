//! Actors with different manners, each working on one message at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_model::{JsonText, Now, OsFault, OsId, OsKind, OsMessage, OsMetadata, OsType};
use millrace_router::{Branch, CapabilityId, DeliveryId, Input, Manifest, Schema};

use crate::dice::Dice;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manners {
    Prompt,
    /// Often slower than requesters wait, and does not know which use of an id it answers.
    Slow,
    /// Accepts everything and never answers.
    Silent,
    /// Answers twice.
    Double,
    /// Answers requests that other actors were given.
    Liar,
    /// Dies while it works on a message.
    Crashing,
}

pub(crate) const MANNERS: [Manners; 6] =
    [Manners::Prompt, Manners::Slow, Manners::Silent, Manners::Double, Manners::Liar, Manners::Crashing];

#[derive(Debug)]
pub(crate) struct Actor {
    manners: Manners,
    pub(crate) mailbox: VecDeque<(DeliveryId, Arc<OsMessage>)>,
    busy: bool,
    said: u64,
    /// The last requests that it was given and has finished, the newest last.
    had: VecDeque<OsId>,
}

/// So few that the loop still remembers all of them, whatever else it sends and receives.
const HAD_MAX: usize = 3;

impl Actor {
    pub(crate) fn new(manners: Manners) -> Actor {
        Actor { manners, mailbox: VecDeque::new(), busy: false, said: 0, had: VecDeque::new() }
    }

    pub(crate) fn reset(&mut self) {
        self.mailbox.clear();
        self.had.clear();
        self.busy = false;
    }

    /// Timers whose messages wait here, and whether those messages are events.
    pub(crate) fn timers(&self) -> Vec<(String, bool)> {
        let timer = |message: &OsMessage| {
            let data: serde_json::Value = serde_json::from_str(message.data.as_str()).ok()?;
            data["timer"].as_str().map(|timer| (timer.to_owned(), message.kind == OsKind::Event))
        };
        self.mailbox.iter().filter_map(|(_, message)| timer(message)).collect()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.mailbox.is_empty()
    }

    /// The first actor handles `X0.Ask`, and so on; all listen to facts.
    pub(crate) fn manifest(&self) -> Manifest {
        let at = MANNERS.iter().position(|one| *one == self.manners).unwrap_or_default();
        let types = [(OsKind::Query, format!("X{at}.Ask")), (OsKind::Command, format!("X{at}.Do"))];
        let branch = |(kind, ty): (OsKind, String)| {
            let ty = OsType::new(&ty).ok()?;
            Some(Branch { kind, ty, description: String::new(), data: Schema::any(), output: Schema::any() })
        };
        Manifest {
            name: format!("X{at}").into(),
            description: format!("{:?}", self.manners),
            inbound: types.into_iter().filter_map(branch).collect(),
            outbound: None,
            subscribes: OsType::new("Fact.Emitted").into_iter().collect(),
            bus: Vec::new(),
        }
    }

    /// Begins the next message, if the actor is idle. Returns how long it will work on it.
    pub(crate) fn begin(&mut self, dice: &mut Dice, patience_ms: u64) -> Option<u64> {
        if self.busy || self.mailbox.is_empty() {
            return None;
        }
        self.busy = true;
        Some(match self.manners {
            Manners::Slow => dice.between(1, patience_ms * 2),
            _ => dice.between(0, 20),
        })
    }

    /// Finishes the message in progress. Returns what the actor sends. `elsewhere` are requests that other actors were
    /// given.
    pub(crate) fn acts(
        &mut self,
        from: CapabilityId,
        dice: &mut Dice,
        now: Now,
        elsewhere: &[String],
    ) -> Vec<Input> {
        self.busy = false;
        let Some((delivery, message)) = self.mailbox.pop_front() else { return Vec::new() };
        let mut inputs = Vec::new();
        // An actor that is a child process, written to and read from, cannot say which use of an id it answers.
        let during = dice.chance(500).then_some(delivery);
        if message.kind.is_request() {
            let mut say = |during, cause: &str| {
                self.said += 1;
                let message = reply(&message, cause, self.said, now);
                inputs.extend(message.map(|message| speech(from, during, message)));
            };
            let own = message.metadata.id.as_str();
            match self.manners {
                Manners::Silent => {}
                Manners::Double => {
                    say(during, own);
                    say(during, own);
                }
                Manners::Liar => {
                    if let Some(other) = dice.pick(elsewhere) {
                        say(during, other);
                    }
                    say(during, own);
                }
                Manners::Crashing if dice.chance(200) => {
                    let fault = OsFault::new(500, "it ended");
                    return vec![Input::Crashed {
                        capability: from,
                        begun: vec![delivery],
                        over: None,
                        fault,
                    }];
                }
                _ => say(during, own),
            }
        }
        // An event while the message is in progress, or after it, that names a cause: the present message or an earlier
        // one. A liar names a request of another actor or one that never existed.
        let at = MANNERS.iter().position(|one| *one == self.manners).unwrap_or_default();
        let late = dice.chance(300);
        let cause = match self.manners {
            _ if !message.kind.is_request() || dice.chance(500) => None,
            Manners::Liar => match dice.pick(elsewhere).filter(|_| dice.chance(500)) {
                Some(other) => OsId::new(other).ok(),
                None => OsId::new(&format!("never-{}", self.said)).ok(),
            },
            _ if late => {
                let had: Vec<OsId> = self.had.iter().cloned().collect();
                dice.pick(&had).cloned()
            }
            _ => Some(message.metadata.id.clone()),
        };
        let event = cause.and_then(|cause| {
            self.said += 1;
            fact(at, cause, self.said, now)
        });
        let event = event.map(|event| speech(from, (!late).then_some(delivery), event));
        let done = Input::Done { from, delivery, result: Ok(()) };
        match late {
            true => inputs.extend([Some(done), event].into_iter().flatten()),
            false => inputs.extend([event, Some(done)].into_iter().flatten()),
        }
        self.had.push_back(message.metadata.id.clone());
        if self.had.len() > HAD_MAX {
            self.had.pop_front();
        }
        inputs
    }

    pub(crate) fn is_honest(&self) -> bool {
        !matches!(self.manners, Manners::Liar | Manners::Crashing)
    }
}

fn speech(from: CapabilityId, during: Option<DeliveryId>, message: OsMessage) -> Input {
    Input::Emit { from, during, message, wait: false, trusted: false }
}

/// An event that names its author, for the checker.
fn fact(author: usize, cause: OsId, said: u64, now: Now) -> Option<OsMessage> {
    let data = serde_json::json!({ "author": author }).to_string();
    Some(OsMessage {
        kind: OsKind::Event,
        ty: OsType::new("Fact.Emitted").ok()?,
        data: JsonText::from_stored(data.into()),
        metadata: OsMetadata {
            id: OsId::new(&format!("fact-{author}-{said}")).ok()?,
            timestamp: now.wall,
            correlation: None,
            causation: Some(cause),
            other: None,
        },
    })
}

/// The reply repeats the request's own data, so that the checkers know which use of the id was answered.
fn reply(request: &OsMessage, cause: &str, said: u64, now: Now) -> Option<OsMessage> {
    Some(OsMessage {
        kind: OsKind::Reply,
        ty: request.ty.clone(),
        data: JsonText::from_stored(request.data.bytes().clone()),
        metadata: OsMetadata {
            id: OsId::new(&format!("said-{said}")).ok()?,
            timestamp: now.wall,
            correlation: None,
            causation: OsId::new(cause).ok(),
            other: None,
        },
    })
}
