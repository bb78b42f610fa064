//! Engines that are away at the start.

use std::net::TcpListener;

use millrace::{Session, SessionError, SharedSettings, StoreError};

/// Returns a port on which nobody listens.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn an_engine_that_is_away_is_told_without_secrets() {
    let port = closed_port();
    for url in [
        format!("postgres://ann:hush@127.0.0.1:{port}/db?timeout_ms=300"),
        format!("mongodb://ann:hush@127.0.0.1:{port}/db?timeout_ms=300"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().to_owned();
        let shared = SharedSettings { cache, store_wait_ms: Some(0), ..SharedSettings::default() };
        match Session::builder(&url).shared(shared).open() {
            Err(SessionError::Store(StoreError::Unusable(cause))) => {
                let text = cause.to_string();
                assert!(text.contains("could not be reached") && !text.contains("hush"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}
