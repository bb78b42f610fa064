//! State seen from outside: what a commit changes, and what can be read afterwards.

mod harness;

use harness::Harness;
use millrace::{Entity, Identity, Operation, Relation, StateCommit, StateError};
use millrace_state::Declared;
use millrace_state::Pending;
use serde::{Deserialize, Serialize};

#[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
struct User {
    #[key]
    id: String,
    email: Option<String>,
    age: u32,
    score: f64,
}

#[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Org {
    #[key]
    id: u64,
    name: String,
}

#[derive(Relation, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[relation(left = User, right = Org)]
struct Member {
    #[left_key]
    user: String,
    #[right_key]
    org: u64,
    role: String,
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

fn user(id: &str, age: u32) -> User {
    User { id: id.into(), email: None, age, score: 0.1 + f64::from(age) }
}

fn org(id: u64, name: &str) -> Org {
    Org { id, name: name.into() }
}

fn member(user: &str, org: u64, role: &str) -> Member {
    Member { user: user.into(), org, role: role.into() }
}

fn ids(users: &[millrace::Stored<User>]) -> Vec<&str> {
    users.iter().map(|user| user.id.as_str()).collect()
}

#[test]
fn a_commit_writes_only_what_changed() {
    let mut harness = Harness::new();
    harness.ensure([user("a", 1), user("b", 2)]);
    assert_eq!(harness.commit(), Some(StateCommit(1)));
    harness.ensure([user("a", 1), user("b", 2)]);
    assert_eq!(harness.commit(), None);
    harness.ensure([user("a", 1), user("b", 3)]);
    let second = harness.commit().unwrap();
    let changes = harness.state.list_commit_changes(second).unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].operation, Operation::Update);
    assert_eq!(changes[0].identity, Identity::Entity { type_name: "User".into(), key: "b".into() });
    assert_eq!(harness.state.list_commit_changes(StateCommit(99)).unwrap(), []);
}

#[test]
fn what_was_read_and_declared_again_is_no_change() {
    let mut harness = Harness::new();
    // Floats that an inexact parser reads back one step away from the value written.
    let scores = [0.1 + 0.2, 1.0e23, 9.007_199_254_740_993e15, 5e-324, 123_456_789.123_456_78, -0.0];
    harness.ensure(scores.iter().enumerate().map(|(at, &score)| User { score, ..user(&at.to_string(), 1) }));
    harness.commit().unwrap();
    let read = harness.state.query::<User>().collect().unwrap();
    harness.ensure(read.into_iter().map(millrace::Stored::into_inner));
    assert_eq!(harness.commit(), None);
}

#[test]
fn the_last_intent_for_an_identity_wins() {
    let mut harness = Harness::new();
    harness.ensure([user("a", 1), user("b", 1), user("a", 2)]);
    assert_eq!(harness.pending.len(), 3);
    let commit = harness.commit().unwrap();
    assert_eq!(harness.state.list_commit_changes(commit).unwrap().len(), 2);
    assert_eq!(harness.state.get::<User>("a").unwrap().unwrap().age, 2);
    harness.ensure(user("a", 3));
    harness.declare(Declared::without_entity::<User>("a").unwrap());
    harness.commit().unwrap();
    assert!(harness.state.get::<User>("a").unwrap().is_none());
}

#[test]
fn a_retraction_is_a_change_like_any_other() {
    let mut harness = Harness::new();
    harness.ensure([user("a", 1), user("b", 2)]);
    let first = harness.commit().unwrap();
    harness.declare(Declared::without_entity::<User>("a").unwrap());
    let second = harness.commit().unwrap();
    assert_eq!(harness.state.list_commit_changes(second).unwrap()[0].operation, Operation::Retract);
    assert_eq!(ids(&harness.state.query::<User>().collect().unwrap()), ["b"]);
    assert_eq!(ids(&harness.state.query::<User>().as_of(first).collect().unwrap()), ["a", "b"]);
    assert_eq!(harness.state.get_as_of::<User>("a", first).unwrap().unwrap().age, 1);
    assert!(harness.state.get_as_of::<User>("a", second).unwrap().is_none());
    harness.declare(Declared::without_entity::<User>("a").unwrap());
    assert_eq!(harness.commit(), None, "what is gone cannot go again");
    harness.ensure(user("a", 9));
    let third = harness.commit().unwrap();
    assert_eq!(harness.state.list_commit_changes(third).unwrap()[0].operation, Operation::Insert);
    let versions = harness.state.history::<User>("a", StateCommit(0)).unwrap();
    let seen: Vec<_> = versions
        .iter()
        .map(|version| (version.commit, version.decode::<User>().unwrap().map(|user| user.age)))
        .collect();
    assert_eq!(seen, [(first, Some(1)), (second, None), (third, Some(9))]);
    assert_eq!(harness.state.history::<User>("a", second).unwrap().len(), 1);
}

/// Key, commit, operation, and a field.
type Told = (String, StateCommit, Operation, Option<u32>);

#[test]
fn the_history_of_a_type_comes_in_the_order_of_commits_and_in_pages() {
    let mut harness = Harness::new();
    harness.ensure([user("b", 1), user("a", 2), user("c", 3)]);
    harness.ensure(member("a", 7, "role 1"));
    let first = harness.commit().unwrap();
    // More commits of another type than one read of the store returns.
    for n in 2..100 {
        harness.ensure(member("a", 7, &format!("role {n}")));
        harness.commit().unwrap();
    }
    harness.declare(Declared::without_entity::<User>("a").unwrap());
    let second = harness.commit().unwrap();
    harness.ensure(user("a", 9));
    let third = harness.commit().unwrap();
    let told = |since, rows| -> Vec<Vec<Told>> {
        let pages = harness.state.history_of::<User>(since, rows).collect::<Result<Vec<_>, _>>().unwrap();
        let line = |found: millrace::TypeVersion| {
            let Identity::Entity { key, .. } = found.identity else { panic!("not an entity") };
            let age = found.version.decode::<User>().unwrap().map(|user| user.age);
            (key, found.version.commit, found.operation, age)
        };
        pages.into_iter().map(|page| page.into_iter().map(line).collect()).collect()
    };
    let line = |key: &str, commit, operation, age| (key.to_owned(), commit, operation, age);
    let all = [
        line("b", first, Operation::Insert, Some(1)),
        line("a", first, Operation::Insert, Some(2)),
        line("c", first, Operation::Insert, Some(3)),
        line("a", second, Operation::Retract, None),
        line("a", third, Operation::Insert, Some(9)),
    ];
    assert_eq!(told(StateCommit(0), 100), [all.to_vec()]);
    assert_eq!(told(StateCommit(0), 2), [all[..2].to_vec(), all[2..4].to_vec(), all[4..].to_vec()]);
    assert_eq!(told(first, 100), [all[3..].to_vec()]);
    assert!(told(third, 100).is_empty());
    let roles = harness.state.history_of::<Member>(StateCommit(0), 10).map(|page| page.unwrap().len());
    assert_eq!(roles.sum::<usize>(), 99);
}

#[test]
fn commits_are_listed_newest_first_with_their_meta() {
    let mut harness = Harness::new();
    for age in 1..=5 {
        harness.ensure(user("a", age));
        harness.try_commit(&[("why", &age.to_string())]).unwrap();
    }
    let listed = harness.state.list_commits(3, StateCommit(0)).unwrap();
    let shown: Vec<_> = listed.iter().map(|commit| (commit.id.0, commit.meta["why"].as_str())).collect();
    assert_eq!(shown, [(5, "5"), (4, "4"), (3, "3")]);
    assert_eq!(harness.state.list_commits(10, StateCommit(4)).unwrap().len(), 1);
    assert_eq!(harness.state.get_commit(StateCommit(2)).unwrap().unwrap().changes, 1);
    assert_eq!(harness.state.get_commit(StateCommit(6)).unwrap(), None);
}

#[test]
fn commits_far_back_are_found() {
    let mut harness = Harness::new();
    for age in 1..=3000 {
        harness.ensure(user("a", age));
        harness.commit().unwrap();
    }
    let mut found: Vec<u64> = harness
        .state
        .list_commits(usize::MAX, StateCommit(0))
        .unwrap()
        .iter()
        .map(|commit| commit.id.0)
        .collect();
    assert_eq!((found.len(), found[0]), (1000, 3000));
    found.reverse();
    assert!(found.is_sorted());
}

#[test]
fn entities_are_filtered_ordered_counted_and_summed() {
    let mut harness = Harness::new();
    harness.ensure((0..40).map(|n| User {
        email: (n % 4 == 0).then(|| format!("u{n}@example.com")),
        ..user(&format!("u{n:02}"), n % 10)
    }));
    harness.commit().unwrap();
    let users = || harness.state.query::<User>();
    assert_eq!(users().count().unwrap(), 40);
    assert_eq!(users().filter(|f| f.age.ge(8) & f.email.is_null()).count().unwrap(), 6);
    assert_eq!(users().filter(|f| f.age.in_([1, 2]).or(f.id.eq("u00"))).count().unwrap(), 9);
    assert_eq!(users().filter(|f| !f.age.lt(9)).count().unwrap(), 4);
    assert_eq!(users().filter(|f| f.email.starts_with("u1")).filter(|f| f.age.ne(2)).count().unwrap(), 1);
    assert_eq!(users().filter(|f| f.email.eq("u4@example.com")).first().unwrap().unwrap().id, "u04");
    assert_eq!(users().filter(|f| f.email.eq(None)).count().unwrap(), 30);
    assert_eq!(users().filter(|f| f.email.contains("@") & f.email.ends_with(".com")).count().unwrap(), 10);
    assert_eq!(users().sum(|f| f.age).unwrap(), 180);
    assert_eq!(users().avg(|f| f.age).unwrap(), Some(4.5));
    assert_eq!(users().min(|f| f.id).unwrap().as_deref(), Some("u00"));
    assert_eq!(users().max(|f| f.email).unwrap().flatten().as_deref(), Some("u8@example.com"));
    assert_eq!(users().filter(|f| f.age.gt(99)).avg(|f| f.score).unwrap(), None);
    let page = users().order_by(|f| f.age.desc()).order_by(|f| f.id.desc()).offset(1).limit(4);
    assert_eq!(ids(&page.collect().unwrap()), ["u29", "u19", "u09", "u38"]);
    assert!(users().filter(|f| f.age.eq(3)).exists().unwrap());
}

#[test]
fn large_whole_numbers_are_told_apart_and_added_up_exactly() {
    let mut harness = Harness::new();
    let big = u64::MAX;
    harness.ensure([org(big, "x"), org(big - 1, "y")]);
    harness.commit().unwrap();
    let orgs = || harness.state.query::<Org>();
    assert_eq!(orgs().filter(|f| f.id.gt(big - 1)).count().unwrap(), 1);
    assert_eq!(orgs().sum(|f| f.id).unwrap(), 2 * i128::from(big) - 1);
}

#[test]
fn too_many_rows_are_an_error_and_pages_go_through_them() {
    let mut harness = Harness::new();
    for chunk in 0..11 {
        harness.ensure((0..1000).map(|n| org(chunk * 1000 + n, "x")));
        harness.commit().unwrap();
    }
    let orgs = || harness.state.query::<Org>();
    assert!(matches!(orgs().collect(), Err(StateError::TooManyRows { limit: 10_000 })));
    assert!(matches!(orgs().order_by(|f| f.name.asc()).collect(), Err(StateError::TooManyRows { .. })));
    assert_eq!(orgs().limit(10_500).collect().unwrap().len(), 10_500);
    for as_of in [None, harness.state.head().ok()] {
        let query = as_of.map_or_else(orgs, |commit| orgs().as_of(commit));
        let pages: Vec<_> = query.pages(900).map(Result::unwrap).collect();
        assert_eq!(pages.len(), 13);
        let mut seen: Vec<u64> = pages.iter().flatten().map(|org| org.id).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..11_000));
    }
    assert!(matches!(orgs().limit(5).pages(10).next(), Some(Err(StateError::PagesHaveNoOrder))));
}

#[test]
fn relations_carry_their_ends_of_the_same_moment() {
    let mut harness = Harness::new();
    harness.ensure([user("a", 1), user("a-b", 2)]);
    harness.ensure(org(7, "old"));
    harness.ensure([member("a", 7, "admin"), member("a-b", 7, "guest"), member("a", 8, "admin")]);
    let first = harness.commit().unwrap();
    let kinds: Vec<_> = harness
        .state
        .list_commit_changes(first)
        .unwrap()
        .iter()
        .map(|change| change.identity.kind())
        .collect();
    assert!(kinds.is_sorted() && kinds.len() == 6, "entities first: {kinds:?}");
    harness.ensure(org(7, "new"));
    harness.declare(Declared::without_relation::<Member>("a", 8, "").unwrap());
    harness.commit().unwrap();

    let edges = harness.state.query::<Member>().left("a").with_endpoints().collect().unwrap();
    assert_eq!(edges.len(), 1);
    assert_eq!((edges[0].left().unwrap().age, edges[0].right().unwrap().name.as_str()), (1, "new"));
    let before = harness.state.query::<Member>().left("a").as_of(first).with_endpoints().collect().unwrap();
    assert_eq!(before.len(), 2);
    assert_eq!(before[0].right().unwrap().name, "old");
    assert!(before[1].right().is_none(), "organisation 8 was never declared");
    let guests = harness.state.query::<Member>().filter(|f| f.role.eq("guest") & f.org.eq(7));
    assert_eq!(guests.with_endpoints().first().unwrap().unwrap().left().unwrap().id, "a-b");
    assert_eq!(harness.state.get_relation::<Member>("a", 7, "").unwrap().unwrap().role, "admin");
}

#[test]
fn an_instance_key_tells_edges_of_one_pair_apart() {
    let mut harness = Harness::new();
    let visit = |day: &str| Visit { user: "a".into(), org: 7, day: day.into() };
    harness.ensure([visit("mon"), visit("tue"), visit("mon")]);
    harness.commit().unwrap();
    assert_eq!(harness.state.query::<Visit>().between("a", 7).count().unwrap(), 2);
    assert_eq!(harness.state.relation_history::<Visit>("a", 7, "mon", StateCommit(0)).unwrap().len(), 1);
}

#[test]
fn keys_with_odd_characters_stay_apart() {
    let mut harness = Harness::new();
    let odd = ["a", "a-b", "a.b", "a/b", "a//0000000000000001", "~", "é", " ", "a\u{0}", "ab"];
    harness.ensure(odd.map(|id| user(id, 1)));
    let first = harness.commit().unwrap();
    for id in odd {
        assert_eq!(harness.state.get::<User>(id).unwrap().unwrap().id, id);
        assert_eq!(harness.state.history::<User>(id, StateCommit(0)).unwrap().len(), 1, "{id:?}");
    }
    let now = harness.state.query::<User>().collect().unwrap();
    let then = harness.state.query::<User>().as_of(first).collect().unwrap();
    assert_eq!(ids(&now), ids(&then), "the same order now and in the past");
    assert_eq!(harness.state.query::<User>().key_prefix("a").count().unwrap(), 7);
    assert_eq!(harness.state.query::<User>().key_prefix("a/").as_of(first).count().unwrap(), 2);
}

#[test]
fn bad_keys_are_refused() {
    let refused = |id: &str| {
        let mut pending = Pending::default();
        let declared = millrace::IntoIntents::into_intents(user(id, 1));
        declared.and_then(|declared| pending.push(declared)).unwrap_err().to_string()
    };
    assert!(refused("").contains("empty key"));
    assert!(refused(&"k".repeat(1025)).contains("at most 1024"));
}

#[test]
fn state_that_could_not_be_read_is_refused() {
    let refused = millrace::IntoIntents::into_intents(User { score: f64::INFINITY, ..user("a", 1) });
    assert!(matches!(refused, Err(StateError::Unreadable { .. })), "{refused:?}");
}

#[test]
fn a_filter_that_cannot_be_written_is_an_error() {
    #[derive(Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord, Debug, Clone)]
    struct NotAKey(u8, u8);

    #[derive(Entity, Serialize, Deserialize)]
    struct Odd {
        #[key]
        id: String,
        map: std::collections::BTreeMap<NotAKey, u8>,
    }

    let harness = Harness::new();
    let map = [(NotAKey(1, 2), 3)].into_iter().collect::<std::collections::BTreeMap<_, _>>();
    let found = harness.state.query::<Odd>().filter(|f| f.map.eq(&map)).count();
    assert!(matches!(found, Err(StateError::BadFilter { field: "map", .. })), "{found:?}");
}
