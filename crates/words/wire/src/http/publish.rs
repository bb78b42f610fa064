//! `POST /topics/{topic}/events`: one event, or an array of them that is stored whole or not at all.

use millrace_model::{DeliverAt, JSON_DEPTH_MAX, JsonText, NewEvent};
use serde_json::value::RawValue;

use crate::client_frame::read_events;
use crate::error::FrameError;
use crate::event::{read_deliver_at, read_event, write_event};
use crate::fields::FrameFields;

#[derive(Clone, Debug, PartialEq)]
pub enum PublishBody {
    One { event: NewEvent, deliver_at: Option<DeliverAt> },
    Many(Vec<NewEvent>),
}

impl PublishBody {
    pub fn parse(text: &str) -> Result<PublishBody, FrameError> {
        if !text.trim_start().starts_with('[') {
            let fields = FrameFields::of_document(text)?;
            return Ok(PublishBody::One {
                event: read_event(&fields)?,
                deliver_at: read_deliver_at(&fields)?,
            });
        }
        if !JsonText::depth_is_fine(text) {
            return Err(FrameError::bad_json(format_args!("nested more than {JSON_DEPTH_MAX} levels deep")));
        }
        let raw: &RawValue = serde_json::from_str(text).map_err(FrameError::bad_json)?;
        read_events(raw).map(PublishBody::Many)
    }
}

/// Appends an array of events.
pub fn write_publish_body(out: &mut String, events: &[NewEvent]) {
    out.push('[');
    for (at, event) in events.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_event(out, event, None);
    }
    out.push(']');
}
