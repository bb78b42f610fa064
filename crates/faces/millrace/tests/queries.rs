//! Compares queries with a naive model: random state, random filters, and queries of the past with a replay.

mod harness;

use std::collections::BTreeMap;

use harness::Harness;
use millrace::{Entity, Filter, StateCommit, Stateful, Stored};
use millrace_state::Declared;
use millrace_stores::{StoreOptions, StoreUrl, open_shared};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Item {
    #[key]
    id: String,
    n: i64,
    x: f64,
    tag: Option<String>,
    on: bool,
}

/// A filter as data, so that the model can evaluate it on the value itself.
#[derive(Clone, Debug)]
enum Want {
    NEq(i64),
    NNe(i64),
    NLt(i64),
    NGe(i64),
    NIn(Vec<i64>),
    XLe(f64),
    XGt(f64),
    TagEq(Option<String>),
    TagStarts(String),
    TagContains(String),
    TagLt(String),
    TagNull,
    TagSome,
    On(bool),
    IdEnds(String),
    And(Box<Want>, Box<Want>),
    Or(Box<Want>, Box<Want>),
    Not(Box<Want>),
}

impl Want {
    fn filter(&self) -> Filter<Item> {
        let f = Item::fields();
        match self {
            Want::NEq(n) => f.n.eq(*n),
            Want::NNe(n) => f.n.ne(n),
            Want::NLt(n) => f.n.lt(n),
            Want::NGe(n) => f.n.ge(n),
            Want::NIn(list) => f.n.in_(list),
            Want::XLe(x) => f.x.le(x),
            Want::XGt(x) => f.x.gt(x),
            Want::TagEq(tag) => f.tag.eq(tag),
            Want::TagStarts(text) => f.tag.starts_with(text),
            Want::TagContains(text) => f.tag.contains(text),
            Want::TagLt(text) => f.tag.lt(text.as_str()),
            Want::TagNull => f.tag.is_null(),
            Want::TagSome => f.tag.is_not_null(),
            Want::On(on) => f.on.eq(on),
            Want::IdEnds(text) => f.id.ends_with(text),
            Want::And(left, right) => left.filter() & right.filter(),
            Want::Or(left, right) => left.filter() | right.filter(),
            Want::Not(want) => !want.filter(),
        }
    }

    fn holds(&self, item: &Item) -> bool {
        let tag = item.tag.as_deref();
        match self {
            Want::NEq(n) => item.n == *n,
            Want::NNe(n) => item.n != *n,
            Want::NLt(n) => item.n < *n,
            Want::NGe(n) => item.n >= *n,
            Want::NIn(list) => list.contains(&item.n),
            Want::XLe(x) => item.x <= *x,
            Want::XGt(x) => item.x > *x,
            Want::TagEq(wanted) => item.tag == *wanted,
            Want::TagStarts(text) => tag.is_some_and(|tag| tag.starts_with(text.as_str())),
            Want::TagContains(text) => tag.is_some_and(|tag| tag.contains(text.as_str())),
            Want::TagLt(text) => tag.is_some_and(|tag| tag < text.as_str()),
            Want::TagNull => tag.is_none(),
            Want::TagSome => tag.is_some(),
            Want::On(on) => item.on == *on,
            Want::IdEnds(text) => item.id.ends_with(text.as_str()),
            Want::And(left, right) => left.holds(item) && right.holds(item),
            Want::Or(left, right) => left.holds(item) || right.holds(item),
            Want::Not(want) => !want.holds(item),
        }
    }
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![-3..4i64, any::<i64>()]
}

fn real() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(-1.5), Just(0.1 + 0.2), -1e300..1e300f64]
}

fn text() -> impl Strategy<Value = String> {
    "[ab%_/é-]{0,3}"
}

fn item() -> impl Strategy<Value = Item> {
    ("[a-c/.-]{1,2}", number(), real(), proptest::option::of(text()), any::<bool>())
        .prop_map(|(id, n, x, tag, on)| Item { id, n, x, tag, on })
}

fn want() -> impl Strategy<Value = Want> {
    let leaf = prop_oneof![
        number().prop_map(Want::NEq),
        number().prop_map(Want::NNe),
        number().prop_map(Want::NLt),
        number().prop_map(Want::NGe),
        proptest::collection::vec(number(), 0..3).prop_map(Want::NIn),
        real().prop_map(Want::XLe),
        real().prop_map(Want::XGt),
        proptest::option::of(text()).prop_map(Want::TagEq),
        text().prop_map(Want::TagStarts),
        text().prop_map(Want::TagContains),
        text().prop_map(Want::TagLt),
        Just(Want::TagNull),
        Just(Want::TagSome),
        any::<bool>().prop_map(Want::On),
        text().prop_map(Want::IdEnds),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(left, right)| Want::And(left.into(), right.into())),
            (inner.clone(), inner.clone()).prop_map(|(left, right)| Want::Or(left.into(), right.into())),
            inner.prop_map(|want| Want::Not(want.into())),
        ]
    })
}

#[derive(Clone, Debug)]
enum Act {
    Ensure(Item),
    Retract(String),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![4 => item().prop_map(Act::Ensure), 1 => "[a-c/.-]{1,2}".prop_map(Act::Retract)]
}

/// Checks on SQLite, with one case, the keys, pages and prefixes that the other tests check on the memory store with
/// many.
#[test]
fn the_past_is_the_same_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = StoreUrl::Sqlite(folder.path().join("state.db"));
    let mut harness = Harness::on(open_shared(&url, &StoreOptions::default()).unwrap().store);
    let item = |id: String, n| Act::Ensure(Item { id, n, x: 0.5, tag: None, on: true });
    let mut groups: Vec<Vec<Act>> = Vec::new();
    for round in 0..4 {
        // More identities than one read of the store returns; some are retracted in between.
        let ids = (0..700).filter(|n| n % 7 != round).map(|n| item(format!("a/{n}.é-"), n + round));
        let gone = (0..700).filter(|n| n % 11 == round).map(|n| Act::Retract(format!("a/{n}.é-")));
        groups.push(ids.chain(gone).collect());
    }
    let worlds = play(&mut harness, &groups);
    assert_eq!(worlds.len(), 5);
    for (commit, world) in &worlds {
        let query = harness.state.query::<Item>().as_of(*commit);
        assert_eq!(values(query.collect().unwrap()), in_key_order(world));
        let paged: usize = query.pages(100).map(|page| page.unwrap().len()).sum();
        assert_eq!(paged, world.len());
        let starting = world.keys().filter(|id| id.starts_with("a/6")).count() as u64;
        assert_eq!(query.key_prefix("a/6").count().unwrap(), starting);
    }
}

type World = BTreeMap<String, Item>;

/// Commits one group of acts at a time. Returns the expected state after each commit that was made.
fn play(harness: &mut Harness, groups: &[Vec<Act>]) -> Vec<(StateCommit, World)> {
    let mut worlds = vec![(StateCommit(0), World::new())];
    for group in groups {
        let mut world = worlds.last().map(|(_, world)| world.clone()).unwrap_or_default();
        for act in group {
            match act {
                Act::Ensure(item) => {
                    harness.ensure(item.clone());
                    world.insert(item.id.clone(), item.clone());
                }
                Act::Retract(id) => {
                    harness.declare(Declared::without_entity::<Item>(id).expect("the key is fine"));
                    world.remove(id);
                }
            }
        }
        let changed = worlds.last().is_some_and(|(_, before)| *before != world);
        let commit = harness.commit();
        assert_eq!(commit.is_some(), changed, "a commit is made exactly when something changes");
        worlds.extend(commit.map(|commit| (commit, world)));
    }
    worlds
}

fn values(rows: Vec<Stored<Item>>) -> Vec<Item> {
    rows.into_iter().map(Stored::into_inner).collect()
}

/// Returns the items ordered by their escaped key, which is the order of rows of equal rank.
fn in_key_order(world: &World) -> Vec<Item> {
    let mut items: Vec<Item> = world.values().cloned().collect();
    items.sort_by_key(|item| millrace_session::model::keys::escaped(&item.id));
    items
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_query_finds_what_a_naive_loop_finds(
        groups in proptest::collection::vec(proptest::collection::vec(act(), 0..6), 1..5),
        want in want(),
        (offset, limit) in (0..4usize, 0..5usize),
        pick in any::<prop::sample::Index>(),
    ) {
        let mut harness = Harness::new();
        let worlds = play(&mut harness, &groups);
        let (commit, world) = &worlds[pick.index(worlds.len())];
        let now = worlds.last().map(|(_, world)| world).unwrap();
        for (world, as_of) in [(world, Some(*commit)), (now, None), (now, Some(StateCommit(u64::MAX)))] {
            let query = || {
                let query = harness.state.query::<Item>().filter(|_| want.filter());
                as_of.map_or_else(|| query.clone(), |commit| query.clone().as_of(commit))
            };
            let expected: Vec<Item> =
                in_key_order(world).into_iter().filter(|item| want.holds(item)).collect();
            prop_assert_eq!(values(query().collect().unwrap()), expected.clone());
            prop_assert_eq!(query().count().unwrap(), expected.len() as u64);
            prop_assert_eq!(query().exists().unwrap(), !expected.is_empty());
            let sum: i128 = expected.iter().map(|item| i128::from(item.n)).sum();
            prop_assert_eq!(query().sum(|f| f.n).unwrap(), sum);
            prop_assert_eq!(query().min(|f| f.n).unwrap(), expected.iter().map(|item| item.n).min());
            prop_assert_eq!(query().max(|f| f.n).unwrap(), expected.iter().map(|item| item.n).max());

            let mut sorted = expected.clone();
            sorted.sort_by(|left, right| left.tag.cmp(&right.tag).then(right.n.cmp(&left.n)));
            let window: Vec<Item> = sorted.into_iter().skip(offset).take(limit).collect();
            let ordered = query().order_by(|f| f.tag.asc()).order_by(|f| f.n.desc()).offset(offset).limit(limit);
            prop_assert_eq!(values(ordered.collect().unwrap()), window);
            let plain: Vec<Item> = expected.iter().skip(offset).take(limit).cloned().collect();
            prop_assert_eq!(values(query().offset(offset).limit(limit).collect().unwrap()), plain);

            let paged: Vec<Item> =
                query().pages(limit).flat_map(|page| values(page.unwrap())).collect();
            let as_map = |items: Vec<Item>| -> World {
                items.into_iter().map(|item| (item.id.clone(), item)).collect()
            };
            prop_assert_eq!(paged.len(), expected.len());
            prop_assert_eq!(as_map(paged), as_map(expected));
        }
    }

    #[test]
    fn the_past_is_the_replay_of_what_was_committed(
        groups in proptest::collection::vec(proptest::collection::vec(act(), 0..6), 1..8),
    ) {
        let mut harness = Harness::new();
        let worlds = play(&mut harness, &groups);
        for (commit, world) in &worlds {
            prop_assert_eq!(values(harness.state.query::<Item>().as_of(*commit).collect().unwrap()), in_key_order(world));
            for id in ["a", "b", "c", "a/", "-", ".a", "a-"] {
                let found = harness.state.get_as_of::<Item>(id, *commit).unwrap().map(Stored::into_inner);
                prop_assert_eq!(found.as_ref(), world.get(id));
                let versions = harness.state.history::<Item>(id, StateCommit(0)).unwrap();
                let last = versions.iter().rfind(|version| version.commit <= *commit);
                let told = last.and_then(|version| version.decode::<Item>().unwrap());
                prop_assert_eq!(told.as_ref(), world.get(id));
            }
        }
        let listed = harness.state.list_commits(1000, StateCommit(0)).unwrap();
        prop_assert_eq!(listed.len(), worlds.len() - 1);
    }
}
