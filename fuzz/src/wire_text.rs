//! The JSON of `millrace-wire` (frames of the bus, HTTP bodies, CloudEvents, lines of the CQRS loop), with any bytes.
//!
//! A text that is refused gets an error; a text that is understood is written so that it is understood the same way.

use std::fmt::Debug;

use millrace_wire::http::{EventsPage, PublishBody, Replay, Seek, TopicBody};
use millrace_wire::http::{body_text, parse_topic_patch, write_publish_body};
use millrace_wire::os::{self, Line, LineSplitter};
use millrace_wire::{
    ClientFrame, CloudEvent, Envelope, ErrorCode, FrameError, ServerFrame, parse_cloud_event,
    parse_cloud_events,
};
use serde_json::value::RawValue;

/// Small, so that lines which are too long occur.
const LINE_BYTES_MAX: usize = 300;

pub fn check(input: &[u8]) {
    lines(input);
    let Ok(text) = body_text(input) else { return };
    verdict(text);
    written_again(text, ClientFrame::parse, ClientFrame::write);
    written_again(text, ServerFrame::parse, ServerFrame::write);
    written_again(text, Envelope::parse, Envelope::write);
    written_again(text, parse_cloud_event, CloudEvent::write);
    let _ = (EventsPage::parse(text), Replay::parse(text), Seek::parse(text));
    let _ = (TopicBody::parse(text), parse_topic_patch(text));
    for event in parse_cloud_event(text).into_iter().chain(parse_cloud_events(text).into_iter().flatten()) {
        let _ = event.into_event();
    }
    if let Ok(PublishBody::Many(events)) = PublishBody::parse(text) {
        let mut out = String::new();
        write_publish_body(&mut out, &events);
        assert_eq!(PublishBody::parse(&out), Ok(PublishBody::Many(events)), "{text} became {out}");
    }
}

fn written_again<T: Debug + PartialEq>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, FrameError>,
    write: impl Fn(&T, &mut String),
) {
    let Ok(value) = parse(text) else { return };
    let mut out = String::new();
    write(&value, &mut out);
    assert_eq!(parse(&out), Ok(value), "{text} became {out}");
}

/// A text that is no JSON is always called that, and no other text is.
fn verdict(text: &str) {
    let is_json = serde_json::from_str::<&RawValue>(text).is_ok();
    match ClientFrame::parse(text) {
        Ok(_) => assert!(is_json, "{text}"),
        Err(error) => {
            let is_too_deep = error.message.contains("levels deep");
            assert_eq!(error.code == ErrorCode::BadJson, !is_json || is_too_deep, "{text}: {error}");
        }
    }
}

/// Lines are the same however the stream is cut, and a message is written as one line that is read as the same message.
fn lines(input: &[u8]) {
    let whole = split(&mut [input].into_iter());
    assert_eq!(split(&mut input.chunks(7)), whole);
    for line in whole.iter().flatten() {
        let Ok(message) = os::parse(line, None) else { continue };
        let mut out = Vec::new();
        os::encode(&message, &mut out);
        let again = out.strip_suffix(b"\n").expect("a message is a line");
        assert!(!again.contains(&b'\n'), "a message is one line");
        assert_eq!(os::parse(again, None).as_ref(), Ok(&message));
    }
}

/// `None` stands for a line that is too long.
fn split(pieces: &mut dyn Iterator<Item = &[u8]>) -> Vec<Option<Vec<u8>>> {
    let kept = |line: Line<'_>| match line {
        Line::Whole(bytes) => Some(bytes.to_vec()),
        Line::TooLong => None,
    };
    let (mut splitter, mut lines) = (LineSplitter::new(LINE_BYTES_MAX), Vec::new());
    for mut piece in pieces {
        while let Some(line) = splitter.next(&mut piece) {
            lines.push(kept(line));
        }
        assert!(piece.is_empty(), "the splitter takes every byte");
    }
    lines.extend(splitter.finish().map(kept));
    lines
}
