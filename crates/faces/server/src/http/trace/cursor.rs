//! Where a trace goes on: how far the walk over the streams has come, and which events a later page cannot know
//! otherwise.

use millrace_model::{Namespace, Offset, Partition, Timestamp, TopicKey, TopicName, keys};
use millrace_wire::ErrorCode;

use crate::http::trace::scan::Position;
use crate::refusal::Refusal;

/// Heads that a cursor carries, and their bytes: it is part of an address.
const HEADS_MAX: usize = 64;
const HEADS_BYTES_MAX: usize = 4 << 10;
/// Largest time and offset: the largest integer that every JSON reader represents exactly.
const INTEGER_MAX: u64 = (1 << 53) - 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) position: Position,
    /// Nothing was left out so far.
    pub(super) whole: bool,
    /// Ids of events of the trace of which some consequences do not name the trace's root.
    pub(super) heads: Vec<String>,
}

impl Cursor {
    pub(super) fn new(position: Position, heads: &[String], whole: bool) -> Cursor {
        let mut bytes = 0;
        let fits = |head: &&String| {
            bytes += keys::escaped(head).len() + 1;
            bytes <= HEADS_BYTES_MAX
        };
        // The newest heads: their consequences are more likely to be still to come.
        let kept: Vec<String> = heads.iter().rev().take(HEADS_MAX).take_while(fits).cloned().collect();
        Cursor { position, whole: whole && kept.len() == heads.len(), heads: kept }
    }

    pub(super) fn text(&self) -> String {
        let Position { ts, stream, offset } = &self.position;
        let whole = u8::from(self.whole);
        let mut text = format!("{},{},{offset},{},{whole}", ts.0, stream.partition, stream.topic.topic());
        for head in &self.heads {
            text.push(',');
            text.push_str(&keys::escaped(head));
        }
        text
    }

    pub(super) fn parse(text: &str, namespace: &Namespace) -> Result<Cursor, Refusal> {
        read(text, namespace).ok_or_else(|| {
            let detail = format!("after is {text:.80?}: it must be `next` of the page before");
            Refusal::new(ErrorCode::BadFrame, detail)
        })
    }
}

fn read(text: &str, namespace: &Namespace) -> Option<Cursor> {
    let mut parts = text.split(',');
    let integer = |text: &str| text.parse().ok().filter(|number| *number <= INTEGER_MAX);
    let ts = Timestamp(integer(parts.next()?)?);
    let partition = Partition(parts.next()?.parse().ok()?);
    let offset = Offset(integer(parts.next()?)?);
    let topic = TopicKey::new(namespace, &TopicName::new(parts.next()?).ok()?);
    let whole = match parts.next()? {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    let heads: Vec<String> = parts.map(keys::unescaped).collect::<Option<_>>()?;
    let fits = heads.len() <= HEADS_MAX;
    fits.then(|| Cursor { position: Position { ts, stream: topic.stream(partition), offset }, whole, heads })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text_and_is_bounded() {
        let namespace = Namespace::default();
        let stream = TopicKey::new(&namespace, &TopicName::new("orders").unwrap()).stream(Partition(3));
        let position = Position { ts: Timestamp(7), stream, offset: Offset(9) };
        let heads: Vec<String> = (0..3).map(|n| format!("a,b %{n}")).collect();
        let cursor = Cursor::new(position.clone(), &heads, true);
        assert!(cursor.whole && !Cursor::new(position.clone(), &heads, false).whole);
        assert_eq!(Cursor::parse(&cursor.text(), &namespace).unwrap(), cursor);
        let many: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        let cursor = Cursor::new(position.clone(), &many, true);
        assert!(!cursor.whole && cursor.heads.len() == HEADS_MAX);
        let long = vec!["ü".repeat(100); 60];
        assert!(Cursor::new(position, &long, true).text().len() < HEADS_BYTES_MAX + 100);
        const LARGE_TS: &str = "9007199254740992,0,1,t,1";
        const LARGE_OFFSET: &str = "1,0,18446744073709551615,t,1";
        for text in [
            "",
            "1",
            "1,0,1",
            "1,0,1,a..b",
            "x,0,1,t,1",
            "1,0,1,t",
            "1,0,1,t,2",
            "1,0,1,t,1,~",
            LARGE_TS,
            LARGE_OFFSET,
        ] {
            assert!(Cursor::parse(text, &namespace).is_err(), "{text}");
        }
    }
}
