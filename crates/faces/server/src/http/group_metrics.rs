//! The figures of groups and of dead letters in `GET /metrics`.

use millrace_bus::{GroupGauges, Stats};
use millrace_model::TopicKey;

use crate::app::App;
use crate::http::lag;
use crate::http::prometheus::Page;
use crate::refusal::Refusal;
use crate::to_wire::OTHER;

const OTHER_GROUP: [(&str, &str); 3] = [("namespace", OTHER), ("topic", OTHER), ("group", OTHER)];

pub(crate) fn write_groups(page: &mut Page, stats: &Stats, labels_max: usize) {
    let (shown, rest) = stats.by_group.split_at(labels_max.min(stats.by_group.len()));
    let mut family = |name: &str, help: &str, value: fn(&GroupGauges) -> u64| {
        page.head("gauge", name, help);
        for one in shown {
            page.labelled(name, &labels(one), value(one));
        }
        if !rest.is_empty() {
            page.labelled(name, &OTHER_GROUP, rest.iter().map(value).sum::<u64>());
        }
    };
    family("group_events_lag", "Events stored and not committed, by group.", |one| one.lag);
    family("group_events_inflight", "Events delivered and not acknowledged, by group.", |one| one.inflight);
    family("group_paused", "1 if a group was paused from outside and gets nothing.", |one| one.paused.into());
    let ages: Vec<_> = stats.by_group.iter().map(|one| Some(one.oldest_inflight_ms)).collect();
    let help = "How long the oldest delivery that is not acknowledged has lasted, by group.";
    write_ages(page, ("group_oldest_inflight_seconds", help), stats, &ages, labels_max);
}

/// How far groups are behind in time, in the order of [`Stats::by_group`]; `None` where that is not known.
pub(crate) struct GroupLags(Vec<Option<u64>>);

impl GroupLags {
    pub(crate) async fn read(app: &App, stats: &Stats) -> Result<GroupLags, Refusal> {
        let groups = stats.by_group.clone();
        let now = app.broker.clock().now().wall;
        let read = app.read(move |store| {
            let mut lookups = 0;
            groups.iter().map(|group| lag::lag_ms(store, group, now, &mut lookups)).collect()
        });
        read.await.map(GroupLags)
    }
}

pub(crate) fn write_lags(page: &mut Page, stats: &Stats, lags: &GroupLags, labels_max: usize) {
    let help = "Age of the oldest event that a group has not committed; 0 without a lag.";
    write_ages(page, ("group_lag_seconds", help), stats, &lags.0, labels_max);
}

/// Writes ages in milliseconds, in the order of the groups. Those of groups without lines of their own are not summed
/// up: the oldest is shown.
fn write_ages(
    page: &mut Page,
    (name, help): (&str, &str),
    stats: &Stats,
    ages_ms: &[Option<u64>],
    labels_max: usize,
) {
    page.head("gauge", name, help);
    for (group, age_ms) in stats.by_group.iter().zip(ages_ms).take(labels_max) {
        if let Some(age_ms) = age_ms {
            page.labelled(name, &labels(group), *age_ms as f64 / 1e3);
        }
    }
    if let Some(age_ms) = ages_ms.iter().skip(labels_max).copied().flatten().max() {
        page.labelled(name, &OTHER_GROUP, age_ms as f64 / 1e3);
    }
}

fn labels(one: &GroupGauges) -> [(&str, &str); 3] {
    [("namespace", one.topic.namespace()), ("topic", one.topic.topic()), ("group", one.group.as_str())]
}

/// Writes how many dead letters there are, by the topic of their events.
pub(crate) fn write_dead_letters(page: &mut Page, stats: &Stats, labels_max: usize) {
    let name = "dead_letters";
    page.head("gauge", name, "Dead letters that are kept, by the topic of their events.");
    let letters = stats.dead_letters.iter().filter_map(|(key, count)| Some((key.dead_letters_of()?, *count)));
    let letters: Vec<(TopicKey, u64)> = letters.collect();
    let (shown, rest) = letters.split_at(labels_max.min(letters.len()));
    for (topic, count) in shown {
        page.labelled(name, &[("namespace", topic.namespace()), ("topic", topic.topic())], *count);
    }
    if !rest.is_empty() {
        let count: u64 = rest.iter().map(|(_, count)| count).sum();
        page.labelled(name, &[("namespace", OTHER), ("topic", OTHER)], count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_model::Group;

    #[test]
    fn groups_past_the_bound_are_summed_up() {
        let group = |name: &str, lag| GroupGauges {
            topic: TopicKey::parse("default/t").unwrap(),
            group: Group::new(name).unwrap(),
            inflight: 0,
            oldest_inflight_ms: lag,
            lag,
            paused: false,
            behind: Vec::new(),
        };
        let stats = Stats { by_group: vec![group("a", 1), group("b", 2), group("c", 4)], ..Stats::default() };
        let mut page = Page::default();
        write_groups(&mut page, &stats, 1);
        let out = page.text();
        let line = "millrace_group_events_lag{namespace=\"default\",topic=\"t\",group=\"a\"} 1\n";
        assert!(out.contains(line), "{out}");
        assert!(out.contains("topic=\"(other)\",group=\"(other)\"} 6\n"), "{out}");
        assert!(!out.contains("\"b\""), "{out}");
        let oldest = "millrace_group_oldest_inflight_seconds";
        let other = "{namespace=\"(other)\",topic=\"(other)\",group=\"(other)\"} 0.004\n";
        assert!(out.contains(&format!("{oldest}{other}")), "an age is not summed up: {out}");
    }
}
