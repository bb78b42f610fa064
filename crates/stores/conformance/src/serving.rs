//! The right to serve a store: one handle has it at a time.

use millrace_store::{Store, StoreError};

use crate::build::{append, batch, stream};
use crate::subject::{Subject, sound};

fn refused(store: &dyn Store) {
    match store.claim_serving() {
        Err(StoreError::InUse(_)) => {}
        other => panic!("expected that another handle serves the store, got {other:?}"),
    }
}

pub(super) fn one_handle_serves_the_store_at_a_time(s: &mut Subject) {
    let beside = s.beside();
    assert!(!s.store().is_served_elsewhere());
    sound(s.store().claim_serving());
    sound(s.store().claim_serving());
    assert!(!s.store().is_served_elsewhere(), "the server itself is not elsewhere");
    if let Some(other) = beside {
        assert!(other.is_served_elsewhere());
        refused(&*other);
        // The refusal has changed nothing, and whoever does not serve may still use the store.
        sound(other.commit(&[batch(1, vec![append(&stream("t", 0), "beside")])]));
        assert_eq!(s.payloads(&stream("t", 0)).len(), 1);
        assert!(other.is_served_elsewhere() && !s.store().is_served_elsewhere());
        drop(other);
        sound(s.store().claim_serving());
    }
    s.done(batch(2, vec![append(&stream("t", 0), "served")]));
}

pub(super) fn a_closed_handle_gives_the_right_to_serve_back(s: &mut Subject) {
    sound(s.store().claim_serving());
    let beside = s.beside();
    s.reopen();
    assert!(!s.store().is_served_elsewhere());
    if let Some(other) = beside {
        assert!(!other.is_served_elsewhere());
        sound(other.claim_serving());
        assert!(s.store().is_served_elsewhere());
        refused(s.store());
        drop(other);
        assert!(!s.store().is_served_elsewhere());
    }
    sound(s.store().claim_serving());
}
