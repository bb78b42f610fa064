//! The small tables: the order of their keys, ranges, limits, and that no table sees the rows of another.

use millrace_model::{Done, Outcome, Space};

use crate::Subject;
use crate::build::{absent, batch, checked, delete, put};
use millrace_store::KeyRange;

pub(super) fn scans_are_in_key_order_within_range_and_limit(subject: &mut Subject) {
    let keys = ["b/1", "a", "b", "b/10", "b/2", "c", "", "ä", "b/\u{0}", "B"];
    subject.done(batch(1, keys.iter().map(|key| put(Space::Cursors, key, "v")).collect()));
    let range = |from: &str, to: Option<&str>| KeyRange { from: from.to_owned(), to: to.map(str::to_owned) };
    for _ in 0..2 {
        for (range, rows_max, expected) in [
            (KeyRange::all(), 100, vec!["", "B", "a", "b", "b/\u{0}", "b/1", "b/10", "b/2", "c", "ä"]),
            (KeyRange::all(), 3, vec!["", "B", "a"]),
            (KeyRange::all(), 0, vec![]),
            (KeyRange::prefix("b/"), 100, vec!["b/\u{0}", "b/1", "b/10", "b/2"]),
            (range("b/1", Some("b/2")), 100, vec!["b/1", "b/10"]),
            (range("b/1", Some("b/2")), 1, vec!["b/1"]),
            (range("bb", None), 100, vec!["c", "ä"]),
            (range("c", Some("a")), 100, vec![]),
        ] {
            let expected: Vec<String> = expected.iter().map(|key| format!("{key}=v")).collect();
            assert_eq!(subject.rows(Space::Cursors, &range, rows_max), expected, "{range:?}");
        }
        subject.reopen();
    }
    subject.done(batch(2, vec![delete(Space::Cursors, "b/1"), put(Space::Cursors, "b/10", "")]));
    assert_eq!(subject.rows(Space::Cursors, &KeyRange::prefix("b/1"), 9), ["b/10="]);
}

pub(super) fn a_check_sees_only_its_own_table(subject: &mut Subject) {
    for space in Space::ALL {
        let once = checked(1, vec![absent(space, "k")], vec![put(space, "k", space.as_str())]);
        assert_eq!(subject.commit(&[once]), [Outcome::Done(Done::default())], "{space:?}");
    }
    for space in Space::ALL {
        assert_eq!(subject.table(space), [format!("k={}", space.as_str())]);
    }
}
