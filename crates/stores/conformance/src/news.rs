//! Telling handles of the commits of others.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use millrace_store::{NewsWake, OtherHandles, Store, newest_commit};

use crate::build::{append, batch, stream};
use crate::subject::{Subject, sound};

/// A wake that can be waited for.
fn wake() -> (NewsWake, Receiver<()>) {
    let (called, calls) = channel();
    let wake = move || {
        // An error means that nobody waits any more.
        let _ = called.send(());
    };
    (Arc::new(wake), calls)
}

/// Waits until a call explains every commit up to the `count`th event. Waits for ever if a call is missing.
fn wait_for_events(store: &dyn Store, calls: &Receiver<()>, count: u64) {
    let of = stream("told", 0);
    let next =
        || sound(store.streams()).into_iter().find(|bounds| bounds.stream == of).map(|bounds| bounds.next.0);
    while next().unwrap_or(1) <= count {
        assert!(calls.recv().is_ok(), "the store has dropped the wake");
    }
}

pub(super) fn a_handle_that_is_told_of_others_misses_no_commit(s: &mut Subject) {
    let (first_wake, first_calls) = wake();
    if !sound(s.store().wake_on_news(&first_wake)) {
        return;
    }
    let one = |n: u64| batch(n, vec![append(&stream("told", 0), "x")]);
    let Some(other) = s.beside() else { return };
    sound(other.commit(&[one(1)]));
    wait_for_events(s.store(), &first_calls, 1);
    // The other handle listens as well, and one that is opened after both commits to both.
    let (second_wake, second_calls) = wake();
    assert!(sound(other.wake_on_news(&second_wake)));
    s.done(one(2));
    wait_for_events(&*other, &second_calls, 2);
    if let Some(third) = s.beside() {
        sound(third.commit(&[one(3)]));
        wait_for_events(s.store(), &first_calls, 3);
        wait_for_events(&*other, &second_calls, 3);
    }
    // A handle that listens no more is no trouble, and one that is opened again is told again.
    drop((other, second_wake));
    s.done(one(4));
    s.reopen();
    let (wake, calls) = wake();
    assert!(sound(s.store().wake_on_news(&wake)));
    let Some(other) = s.beside() else { return };
    sound(other.commit(&[one(5)]));
    wait_for_events(s.store(), &calls, 5);
    assert!(sound(newest_commit(s.store())).0 > 0);
}

pub(super) fn a_store_that_tells_nothing_says_that_others_are_silent_or_absent(s: &mut Subject) {
    assert_ne!(s.store().other_handles(), OtherHandles::Told, "nobody has asked to be told");
    let (wake, _calls) = wake();
    if !sound(s.store().wake_on_news(&wake)) {
        assert_ne!(s.store().other_handles(), OtherHandles::Told);
    }
}
