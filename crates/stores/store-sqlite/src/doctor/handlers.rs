//! Checks the rows of handlers and of state: readable, about events that exist, and consistent with one another.

use std::collections::BTreeMap;

use millrace_model::{
    ClaimRow, DeadLetterRow, Findings, FinishedRow, HandlerRow, HeadRow, LaneRow, Offset, RowError,
    ScheduleRow, SchemaRow, SessionRow, Space, StateCommitRow, Stream, TopicKey, VersionRow, keys,
};
use millrace_store::StreamBounds;
use rusqlite::Connection;

use super::RESTORE;
use super::file::small_table;
use super::streams::StreamRows;
use crate::error::Attempt;

const RUNS_AGAIN: &str =
    "its handler is not harmed; `millrace doctor` is quiet again once the claim has ended";

pub(super) fn check(
    conn: &Connection,
    rows: &StreamRows,
    bounds: &[StreamBounds],
    findings: &mut Findings,
) -> Attempt<()> {
    readable(conn, findings)?;
    let bounds: BTreeMap<&Stream, &StreamBounds> =
        bounds.iter().map(|bounds| (&bounds.stream, bounds)).collect();
    claims(conn, &bounds, findings)?;
    lanes(conn, &bounds, findings)?;
    off_priority(conn, rows, findings)?;
    heads(conn, findings)?;
    state_commits(conn, findings)
}

fn each(
    conn: &Connection,
    space: Space,
    findings: &mut Findings,
    mut look: impl FnMut(&str, &[u8]) -> Option<String>,
) -> Attempt<()> {
    let mut wrong = Findings::default();
    small_table(conn, space, findings, |key, value| {
        if let Some(what) = look(key, value) {
            wrong.problem(format!("table {}, row {key:?}", space.as_str()), what, RESTORE);
        }
    })?;
    findings.append(wrong);
    Ok(())
}

/// Checks that every row decodes. The tables that have a function of their own below are decoded there.
fn readable(conn: &Connection, findings: &mut Findings) -> Attempt<()> {
    type Decode = fn(&str, &[u8]) -> Result<(), RowError>;
    let decoders: [(Space, Decode); 8] = [
        (Space::Handlers, |key, value| HandlerRow::decode(key, value).map(drop)),
        (Space::Finished, |key, value| FinishedRow::decode(key, value).map(drop)),
        (Space::DeadLetters, |key, value| DeadLetterRow::decode(key, value).map(drop)),
        (Space::Sessions, |key, value| SessionRow::decode(key, value).map(drop)),
        (Space::Schedules, |key, value| ScheduleRow::decode(key, value).map(drop)),
        (Space::History, |key, value| VersionRow::decode(key, value).map(drop)),
        (Space::StateCommits, |key, value| StateCommitRow::decode(key, value).map(drop)),
        (Space::Schemas, |key, value| SchemaRow::decode(key, value).map(drop)),
    ];
    for (space, decode) in decoders {
        each(conn, space, findings, |key, value| decode(key, value).err().map(|error| error.to_string()))?;
    }
    Ok(())
}

type Bounds<'a> = BTreeMap<&'a Stream, &'a StreamBounds>;

/// Checks that a claim is due when its key says so, and that its event is retained. A claim on an event that is gone is
/// no damage: the claim ends the next time it is due.
fn claims(conn: &Connection, bounds: &Bounds<'_>, findings: &mut Findings) -> Attempt<()> {
    let mut notes = Findings::default();
    each(conn, Space::Claims, findings, |key, value| {
        let Some((_, stream, offset)) = keys::claim_place(key) else {
            return Some("names no handler, time and event".to_owned());
        };
        let due = key.split('/').nth(2).and_then(|due| u64::from_str_radix(due, 16).ok());
        let row = match ClaimRow::decode(key, value) {
            Ok(row) => row,
            Err(error) => return Some(error.to_string()),
        };
        if due != Some(row.due.0) {
            return Some(format!("is filed under another time than its own, {}", row.due.0));
        }
        let retained = bounds.get(&stream).is_some_and(|found| (found.start..found.next).contains(&offset));
        if !retained {
            let what = "claims an event that is not retained: it will end as lost";
            notes.note(format!("table claims, row {key:?}"), what, RUNS_AGAIN);
        }
        None
    })?;
    findings.append(notes);
    Ok(())
}

fn lanes(conn: &Connection, bounds: &Bounds<'_>, findings: &mut Findings) -> Attempt<()> {
    each(conn, Space::Lanes, findings, |key, value| {
        let place = keys::lane_place(key).and_then(|(partition, _)| {
            let mut parts = key.split('/');
            let (namespace, _, topic) = (parts.next()?, parts.next()?, parts.next()?);
            Some(TopicKey::parse(&format!("{namespace}/{topic}")).ok()?.stream(partition))
        });
        let Some(stream) = place else { return Some("names no handler, stream and lane".to_owned()) };
        let row = match LaneRow::decode(key, value) {
            Ok(row) => row,
            Err(error) => return Some(format!("{error}: its handler gets no more of this stream")),
        };
        let next = bounds.get(&stream).map_or(Offset::FIRST, |found| found.next);
        // A lane before the stream's start is fine: the next claim begins at the start.
        (row.next.max(row.off) > next).then(|| {
            format!(
                "is at {}, behind the end of its stream at {next}: events to come would be missed",
                row.next.max(row.off)
            )
        })
    })
}

/// Compares the rows of `off_priority` with the events. A row without an event is legal where events may be gone.
/// Events without a row are older than this table.
fn off_priority(conn: &Connection, rows: &StreamRows, findings: &mut Findings) -> Attempt<()> {
    const EVENTS: &str = "SELECT s.topic || '/' || s.partition || '/' || printf('%016x', s.id) || '/' || \
        printf('%04x', 65535 - min(max(e.priority, 0), 1000)) || '/' || printf('%016x', e.offset) \
        FROM events e JOIN streams s ON s.id = e.stream WHERE e.priority <> 100 AND NOT s.dropped AND e.offset >= s.start";
    let mut select = conn.prepare(&format!("SELECT key FROM off_priority EXCEPT {EVENTS}"))?;
    let mut strays = select.query([])?;
    while let Some(row) = strays.next()? {
        let key: String = row.get(0)?;
        let incarnation =
            key.split('/').nth(3).and_then(|incarnation| i64::from_str_radix(incarnation, 16).ok());
        let place = keys::off_priority_place(&key);
        let legal = match (incarnation.and_then(|id| rows.get(&id)), place) {
            // The stream was dropped, and maintenance has not deleted the row yet.
            (None, Some(_)) => incarnation.is_some(),
            (Some(stream), Some((_, offset))) => {
                stream.dropped || offset.0 < stream.start || offset.0 < stream.compacted_to
            }
            (_, None) => false,
        };
        if !legal {
            let what = "there is no event of this priority at this place";
            findings.problem(format!("table off_priority, row {key:?}"), what, RESTORE);
        }
    }
    let sql = format!("SELECT count(*) FROM ({EVENTS} EXCEPT SELECT key FROM off_priority)");
    let missing: i64 = conn.query_row(&sql, [], |row| row.get(0))?;
    if missing > 0 {
        let what =
            format!("{missing} events off the plain priority have no row: handlers take them in plain order");
        findings.note("table off_priority", what, "nothing to do: events of an earlier version have none");
    }
    Ok(())
}

/// Checks that every head equals its newest version.
fn heads(conn: &Connection, findings: &mut Findings) -> Attempt<()> {
    let mut newest = conn.prepare(
        "SELECT key, value FROM history WHERE key >= ?1 || '//' AND key < ?1 || '/0' ORDER BY key DESC LIMIT 1",
    )?;
    let mut broken = None;
    each(conn, Space::Heads, findings, |key, value| {
        let head = match HeadRow::decode(key, value) {
            Ok(head) => head,
            Err(error) => return Some(error.to_string()),
        };
        let found = newest.query_row([key], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?)));
        let (version_key, version) = match found {
            Ok(found) => found,
            Err(rusqlite::Error::QueryReturnedNoRows) => {
                return Some("has no version in table history".to_owned());
            }
            Err(error) => {
                broken.get_or_insert(error);
                return None;
            }
        };
        let version = VersionRow::decode(&version_key, &version).ok()?;
        let same =
            version_key == keys::version(key, head.commit) && version.fields.as_ref() == Some(&head.fields);
        (!same).then(|| format!("is not its newest version, {version_key:?}"))
    })?;
    broken.map_or(Ok(()), |error| Err(error.into()))
}

/// Checks that no commit of state has a number above the counter, which would be given again.
fn state_commits(conn: &Connection, findings: &mut Findings) -> Attempt<()> {
    let counter =
        crate::rows::tables::get(conn, Space::Kv, keys::STATE_COMMITS, crate::rows::tables::Damaged::Empty)?;
    let counted =
        counter.as_ref().map_or(Some(0), |value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
    let place = format!("table kv, row {:?}", keys::STATE_COMMITS);
    let Some(counted) = counted else {
        findings.problem(place, "is no number; the next commit of state finds it again", RESTORE);
        return Ok(());
    };
    let mut last = 0;
    // The problems of these rows are already reported.
    small_table(conn, Space::StateCommits, &mut Findings::default(), |key, _| {
        let number = key.rsplit('/').next().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        last = last.max(number.unwrap_or(0));
    })?;
    if last > counted {
        findings.problem(place, format!("says {counted}, but there is a commit {last}"), RESTORE);
    }
    Ok(())
}
