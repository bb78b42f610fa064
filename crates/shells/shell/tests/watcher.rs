//! The watcher reports each commit until its reader has understood it, and no commit twice after that.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use millrace_model::*;
use millrace_shell::{Watcher, changed_streams};
use millrace_store::*;

fn stream(topic: &str) -> Stream {
    TopicKey::parse(&format!("default/{topic}")).unwrap().stream(Partition(0))
}

fn append(store: &MemoryStore, topic: &str) {
    let event = NewEvent { id: None, body: Arc::new(EventBody::of(JsonText::parse("1").unwrap())) };
    let op = Op::Append(Append { stream: stream(topic), event, dedupe_window_ms: 0 });
    store.commit(&[Batch { ops: vec![op], ..Batch::default() }]).unwrap();
}

fn watcher(store: &MemoryStore) -> Watcher {
    let pace = Pace::new(Duration::from_millis(10), Duration::from_millis(100));
    Watcher::new(store, pace, std::sync::Arc::new(|| ())).unwrap()
}

fn ends(store: &MemoryStore, changes: Changes) -> Result<Vec<(String, u64, u64)>, StoreError> {
    changed_streams(store, changes, |stream, start, next| (stream.topic.to_string(), start.0, next.0))
}

#[test]
fn only_commits_after_the_start_are_news_and_only_once() {
    let store = MemoryStore::default();
    append(&store, "before");
    let mut watcher = watcher(&store);
    assert!(watcher.poll(&store, Ok).unwrap().news.is_none());
    append(&store, "a");
    append(&store, "a");
    append(&store, "b");
    let poll = watcher.poll(&store, |changes| ends(&store, changes)).unwrap();
    let news = [("default/a".to_owned(), 1, 3), ("default/b".to_owned(), 1, 2)];
    assert_eq!((poll.news.as_deref(), poll.more), (Some(&news[..]), false));
    assert!(watcher.poll(&store, Ok).unwrap().news.is_none());
}

#[test]
fn news_that_could_not_be_read_is_reported_again() {
    let store = MemoryStore::default();
    let mut watcher = watcher(&store);
    append(&store, "a");
    let unreadable = |_| Err::<(), _>(StoreError::Unreadable("just now".into()));
    assert!(watcher.poll(&store, unreadable).is_err());
    assert_eq!(watcher.poll(&store, |changes| ends(&store, changes)).unwrap().news.unwrap().len(), 1);
}

#[test]
fn many_commits_are_read_in_several_polls_without_a_pause() {
    let store = MemoryStore::default();
    let mut watcher = watcher(&store);
    (0..1500).for_each(|_| append(&store, "a"));
    let mut through = 0;
    loop {
        let poll = watcher.poll(&store, |changes| ends(&store, changes)).unwrap();
        assert_eq!(poll.more, poll.pause.is_zero());
        match poll.news.as_deref() {
            Some([(_, _, next)]) => through = *next,
            other => assert_eq!(other, None),
        }
        if !poll.more {
            break;
        }
    }
    assert_eq!(through, 1501);
}
