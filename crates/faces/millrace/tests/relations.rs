//! Queries of relations by their endpoints, and counts by value: compared with a naive loop, and with a limit on the
//! rows read.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use harness::Harness;
use millrace::{Entity, Query, Relation, StateError, Stored};
use millrace_session::model::{Batch, Offset, Outcome, Space, Stream, Timestamp};
use millrace_state::Declared;
use millrace_store::{
    Changes, CommitNumber, KeyRange, Maintained, MemoryStore, Page, ReadLimit, Retention, Row, Store,
    StoreError, StreamBounds,
};
use serde::{Deserialize, Serialize};

#[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
struct User {
    #[key]
    id: String,
    age: u32,
}

#[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Org {
    #[key]
    id: u64,
    city: Option<String>,
}

#[derive(Relation, Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[relation(left = User, right = Org)]
struct Member {
    #[left_key]
    user: String,
    #[right_key]
    org: u64,
    role: String,
    paid: i64,
}

#[derive(Relation, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[relation(left = User, right = Org)]
struct Visit {
    #[left_key]
    user: String,
    #[right_key]
    org: u64,
    #[instance_key]
    day: String,
}

/// Some keys are prefixes of others, and some must be escaped.
const USERS: [&str; 7] = ["a", "a-b", "ab", "a/b", "b", "é", "0"];
const ORGS: [u64; 4] = [1, 11, 2, 111];

fn members() -> Vec<Member> {
    let pairs = USERS.iter().enumerate().flat_map(|(at, user)| ORGS.map(|org| (at, *user, org)));
    let some = pairs.filter(|(at, _, org)| !(at + *org as usize).is_multiple_of(3));
    some.map(|(at, user, org)| Member {
        user: user.into(),
        org,
        role: ["owner", "guest"][at % 2].into(),
        paid: at as i64 * 10 - org as i64,
    })
    .collect()
}

fn harness() -> Harness {
    let mut harness = Harness::new();
    fill(&mut harness);
    harness
}

fn fill(harness: &mut Harness) {
    harness.ensure(members());
    // Some endpoints do not exist.
    harness.ensure(
        USERS.iter().skip(1).enumerate().map(|(at, id)| User { id: (*id).into(), age: at as u32 * 10 }),
    );
    harness
        .ensure(ORGS.iter().take(3).map(|id| Org { id: *id, city: (id % 2 == 1).then(|| format!("c{id}")) }));
    harness.commit().unwrap();
}

fn found(query: &Query<Member>) -> Vec<Member> {
    let mut found: Vec<Member> = query.collect().unwrap().into_iter().map(Stored::into_inner).collect();
    assert_eq!(query.count().unwrap(), found.len() as u64);
    let paged = query.pages(2).map(|page| page.unwrap().len()).sum::<usize>();
    assert_eq!(paged, found.len());
    found.sort_by(|left, right| left.partial_cmp(right).unwrap());
    found
}

fn naive(wanted: impl Fn(&Member) -> bool) -> Vec<Member> {
    let mut all: Vec<Member> = members().into_iter().filter(|member| wanted(member)).collect();
    all.sort_by(|left, right| left.partial_cmp(right).unwrap());
    all
}

#[test]
fn relations_are_found_by_either_end_and_by_both() {
    let mut harness = harness();
    let before = harness.state.head().unwrap();
    // Changes after `before` must not affect queries of the past.
    harness.declare(Declared::without_relation::<Member>("b", 1, "").unwrap());
    harness.ensure(Member { user: "new".into(), org: 1, role: "guest".into(), paid: 0 });
    harness.commit().unwrap();
    let past = || harness.state.query::<Member>().as_of(before);
    assert!(!naive(|member| member.user == "b" && member.org == 1).is_empty(), "the retracted one counts");
    for user in USERS {
        let expected = naive(|member| member.user == user);
        assert_eq!(found(&past().left(user)), expected);
        assert_eq!(found(&past().filter(|f| f.user.eq(user))), expected);
        for org in ORGS {
            let expected = naive(|member| member.user == user && member.org == org);
            for query in [
                past().between(user, org),
                past().left(user).right(org),
                past().right(org).filter(|f| f.user.eq(user)),
                past().filter(|f| f.user.eq(user) & f.org.eq(org)),
                past().filter(|f| f.org.eq(org)).filter(|f| f.user.eq(user)),
            ] {
                assert_eq!(found(&query), expected, "{query:?}");
            }
        }
    }
    for org in ORGS {
        let expected = naive(|member| member.org == org);
        assert_eq!(found(&past().right(org)), expected);
        assert_eq!(found(&past().filter(|f| f.org.eq(org))), expected);
        // Only an equality that must hold narrows the rows to read: `or` and `ne` do not.
        let either = past().filter(|f| f.org.eq(org) | f.user.eq("a"));
        assert_eq!(found(&either), naive(|member| member.org == org || member.user == "a"));
        assert_eq!(found(&past().filter(|f| f.org.ne(org))), naive(|member| member.org != org));
    }
    let now = found(&harness.state.query::<Member>().right(1));
    assert!(now.iter().any(|member| member.user == "new") && now.iter().all(|member| member.user != "b"));
    assert_eq!(found(&past().filter(|f| f.user.eq("a") & f.user.eq("b"))), []);
    assert_eq!(harness.state.query::<User>().filter(|f| f.id.eq("a-b")).count().unwrap(), 1);
}

#[test]
fn relations_are_found_by_the_entities_at_their_ends() {
    let harness = harness();
    let all = || harness.state.query::<Member>();
    let age = |member: &Member| USERS.iter().skip(1).position(|id| *id == member.user).map(|at| at * 10);
    assert_eq!(
        found(&all().left_where(|f| f.age.ge(20))),
        naive(|member| age(member).is_some_and(|age| age >= 20))
    );
    assert_eq!(found(&all().right_where(|f| f.city.eq("c11"))), naive(|member| member.org == 11));
    // Organisation 2 has no city; 111 does not exist, which is not the same.
    assert_eq!(found(&all().right_where(|f| f.city.is_null())), naive(|member| member.org == 2));
    assert_eq!(
        found(
            &all()
                .left_where(|f| f.age.lt(20))
                .right_where(|f| f.city.starts_with("c"))
                .filter(|f| f.paid.gt(0))
        ),
        naive(|member| {
            age(member).is_some_and(|age| age < 20) && [1, 11].contains(&member.org) && member.paid > 0
        })
    );
    let first =
        all().left_where(|f| f.age.eq(10)).order_by(|f| f.org.desc()).limit(1).with_endpoints().first();
    let first = first.unwrap().unwrap();
    assert_eq!(first.left().unwrap().age, 10);
    assert_eq!(
        first.relation.org,
        naive(|member| age(member) == Some(10)).iter().map(|m| m.org).max().unwrap()
    );
}

#[test]
fn a_filter_on_a_key_reads_only_the_rows_it_names() {
    let store = Arc::new(Counting::default());
    let mut harness = Harness::on(store.clone());
    let many = |user: u64| {
        (0..20).map(move |org| Member { user: format!("u{user}"), org, role: "r".into(), paid: 1 })
    };
    harness.ensure((0..50).flat_map(many));
    harness.commit().unwrap();
    let read = |query: Query<Member>| {
        store.heads.store(0, Ordering::Relaxed);
        let count = query.count().unwrap();
        (count, store.heads.load(Ordering::Relaxed))
    };
    let all = || harness.state.query::<Member>();
    assert_eq!(read(all()), (1000, 1000));
    assert_eq!(read(all().filter(|f| f.user.eq("u41"))), (20, 20));
    assert_eq!(read(all().left("u41")), (20, 20));
    assert_eq!(read(all().filter(|f| f.user.eq("u41") & f.org.eq(7))), (1, 1));
    // A query by the right end reads all rows of the type, and no others: there is no index on the right end.
    assert_eq!(read(all().right(7)), (50, 1000));
}

#[test]
fn an_instance_key_is_given_by_those_who_declare_one_and_by_nobody_else() {
    let mut harness = Harness::new();
    let empty = Visit { user: "a".into(), org: 1, day: String::new() };
    let error = millrace::IntoIntents::into_intents(empty).unwrap_err();
    assert!(matches!(&error, StateError::EmptyKey { role: "instance key", .. }), "{error}");
    assert_eq!(error.to_string(), "a `Visit` has an empty instance key: give it at least one character");
    let error = Declared::without_relation::<Visit>("a", 1, "").unwrap_err();
    assert!(matches!(error, StateError::EmptyKey { .. }), "{error}");
    let error = Declared::without_relation::<Member>("a", 1, "mon").unwrap_err();
    assert!(error.to_string().contains("`Member` declares no instance key"), "{error}");

    harness.ensure(Visit { user: "a".into(), org: 1, day: "mon".into() });
    harness.commit().unwrap();
    harness.declare(Declared::without_relation::<Visit>("a", 1, "mon").unwrap());
    harness.commit().unwrap();
    assert_eq!(harness.state.query::<Visit>().count().unwrap(), 0);
}

#[test]
fn rows_are_counted_and_summed_by_value() {
    let harness = harness();
    let all = || harness.state.query::<Member>();
    let sum = |role: &str| {
        let mine = members().into_iter().filter(|member| member.role == role);
        mine.map(|member| i128::from(member.paid)).sum::<i128>()
    };
    let count = |role: &str| members().iter().filter(|member| member.role == role).count() as u64;
    let by_role = all().group_by(|f| f.role);
    let pair = |role: &str| role.to_owned();
    assert_eq!(by_role.count().unwrap(), [(pair("guest"), count("guest")), (pair("owner"), count("owner"))]);
    assert_eq!(
        by_role.sum(|f| f.paid).unwrap(),
        [(pair("guest"), sum("guest")), (pair("owner"), sum("owner"))]
    );
    // Groups are sorted as numbers, and contain only the rows that match.
    let orgs = all().filter(|f| f.user.eq("b")).group_by(|f| f.org).count().unwrap();
    let mut expected: Vec<(u64, u64)> = naive(|m| m.user == "b").iter().map(|m| (m.org, 1)).collect();
    expected.sort_unstable();
    assert_eq!(orgs, expected);
    // Null is a value, and comes first.
    let cities = harness.state.query::<Org>().group_by(|f| f.city).count().unwrap();
    assert_eq!(cities, [(None, 1), (Some("c1".to_owned()), 1), (Some("c11".to_owned()), 1)]);
    assert_eq!(harness.state.query::<Visit>().group_by(|f| f.day).count().unwrap(), []);
}

#[test]
fn too_many_values_are_an_error_and_not_a_cut() {
    let mut harness = Harness::new();
    harness.ensure((0..=10_000).map(|id| Org { id, city: None }));
    harness.commit().unwrap();
    let error = harness.state.query::<Org>().group_by(|f| f.id).count().unwrap_err();
    assert!(matches!(error, StateError::TooManyGroups { field: "id", limit: 10_000 }), "{error}");
    let some = harness.state.query::<Org>().filter(|f| f.id.ge(1)).group_by(|f| f.id).count().unwrap();
    assert_eq!(some.len(), 10_000);
}

/// A store that counts the rows of state that are read.
#[derive(Default)]
struct Counting {
    store: MemoryStore,
    heads: AtomicU64,
}

impl Store for Counting {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        self.store.commit(batches)
    }

    fn read(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, StoreError> {
        self.store.read(stream, from, limit)
    }

    fn seek(&self, stream: &Stream, ts: Timestamp) -> Result<Offset, StoreError> {
        self.store.seek(stream, ts)
    }

    fn retention_start(&self, stream: &Stream, rule: Retention) -> Result<Offset, StoreError> {
        self.store.retention_start(stream, rule)
    }

    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError> {
        let rows = self.store.scan(space, range, rows_max)?;
        if space == Space::Heads {
            self.heads.fetch_add(rows.len() as u64, Ordering::Relaxed);
        }
        Ok(rows)
    }

    fn streams(&self) -> Result<Vec<StreamBounds>, StoreError> {
        self.store.streams()
    }

    fn watch(&self, after: CommitNumber, commits_max: usize) -> Result<Changes, StoreError> {
        self.store.watch(after, commits_max)
    }

    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.store.maintain(rows_max)
    }

    fn claim_serving(&self) -> Result<(), StoreError> {
        self.store.claim_serving()
    }

    fn is_served_elsewhere(&self) -> bool {
        self.store.is_served_elsewhere()
    }
}
