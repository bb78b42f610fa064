//! The handle table: numbers, limits, and when a number is reused.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::handle;
use millrace_reactor::{FIRST_HANDLE, HandleLimits, HandleNumber, HandleTable, HandlesFull};

fn table(handles_max: usize, number_max: u32) -> HandleTable<&'static str> {
    HandleTable::new(HandleLimits { handles_max, number_max: handle(number_max) })
}

fn never(_: HandleNumber) -> bool {
    false
}

#[test]
fn numbers_begin_at_three_and_rise() {
    let mut table = HandleTable::new(HandleLimits::default());
    assert_eq!(FIRST_HANDLE, handle(3));
    assert_eq!(table.open("a", never), Ok(handle(3)));
    assert_eq!(table.close(handle(3)), Some("a"));
    assert_eq!(table.open("b", never), Ok(handle(4)), "v072: an ended number does not return at once");
    assert_eq!((table.get(handle(3)), table.get(handle(4))), (None, Some(&"b")));
    *table.get_mut(handle(4)).unwrap() = "c";
    assert_eq!(table.iter().collect::<Vec<_>>(), [(handle(4), &"c")]);
    assert_eq!((table.len(), table.is_empty()), (1, false));
}

#[test]
fn ending_a_handle_twice_changes_nothing() {
    let mut table = table(8, 100);
    let first = table.open("a", never).unwrap();
    assert_eq!(table.close(first), Some("a"));
    assert_eq!(table.close(first), None);
    assert_eq!(table.close(handle(99)), None);
}

#[test]
fn a_guest_may_open_and_end_handles_for_ever() {
    let mut table = table(4, 20);
    for _ in 0..1000 {
        let number = table.open("a", never).unwrap();
        assert!((3..=20).contains(&number.get()));
        table.close(number);
    }
}

#[test]
fn a_number_returns_only_after_all_others_were_used() {
    let mut table = table(4, 12);
    let numbers: Vec<u32> = (0..25)
        .map(|_| {
            let number = table.open("a", never).unwrap();
            table.close(number);
            number.get()
        })
        .collect();
    let cycle: Vec<u32> = (3..=12).cycle().take(25).collect();
    assert_eq!(numbers, cycle);
}

#[test]
fn open_and_watched_numbers_are_passed_over() {
    let mut table = table(8, 8);
    let kept = table.open("kept", never).unwrap();
    for _ in 0..20 {
        let number = table.open("a", |number| number == handle(5)).unwrap();
        assert!(number != kept && number != handle(5));
        table.close(number);
    }
}

#[test]
fn a_full_table_refuses_and_recovers() {
    let mut table = table(2, 100);
    let first = table.open("a", never).unwrap();
    table.open("b", never).unwrap();
    assert_eq!(table.open("c", never), Err(HandlesFull { open: 2 }));
    table.close(first);
    assert!(table.open("c", never).is_ok());
    assert_eq!(
        self::table(8, 10).open("a", |_| true),
        Err(HandlesFull { open: 0 }),
        "every number is watched"
    );
}

#[test]
fn negative_numbers_are_no_handles() {
    assert_eq!(HandleNumber::new(0x7fff_ffff).map(HandleNumber::get), Some(0x7fff_ffff));
    assert_eq!(HandleNumber::new(0x8000_0000), None);
    assert_eq!(HandleNumber::new(u32::MAX), None);
}
