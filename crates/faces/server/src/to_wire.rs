//! Translates answers, deliveries and refusals of the engine into frames and bodies.

use std::time::Instant;

use millrace_broker::{Item, ShellView};
use millrace_bus::{self as bus, BusError, BusLimits, OffsetsView, PartitionView, Reply, Stats, TopicView};
use millrace_model::{
    ConfigError, Group, NameError, Namespace, Offset, Partition, TopicKey, TopicName, TraceId,
};
use millrace_wire::http::{
    CheckedDoc, GroupDoc, GroupList, GroupOffsets, GroupPlace, GroupStats, MetricsDoc, PartitionOffsets,
    Problem, Sought, StatsDoc, StreamDoc, TopicDefaults, TopicDoc, TopicOffsets, TopicStats,
};
use millrace_wire::{
    About, ErrorCode, FrameError, Position, PublishedPlace, Rid, Shown, write_message, write_ok,
    write_published, write_published_batch, write_subscribed,
};

use crate::moved::Moved;
use crate::observe::TracedPublish;

/// A request of a connection that waits for its answer.
#[derive(Clone, Debug)]
pub(crate) struct UnansweredRequest {
    pub(crate) arrived: Instant,
    pub(crate) rid: Option<Rid>,
    pub(crate) op: &'static str,
    /// The publish as the collector of traces is told of it; `None` if nothing of it is traced.
    pub(crate) traced: Option<Box<TracedPublish>>,
    /// The trace of the event that it publishes.
    pub(crate) trace: Option<TraceId>,
    /// The topic and group that a refusal is about, used where the engine's error does not name them.
    pub(crate) topic: Option<TopicName>,
    pub(crate) group: Option<Group>,
    /// How many events a frame of this subscription may have; 1 unless the request says more.
    pub(crate) batch_max: u32,
}

/// Returns the frame for an item. `request` is the request that it answers; a request that wanted no answer gets no
/// frame unless it is refused. With `payload_sha256` deliveries carry the digest of their payload.
pub(crate) fn frame(item: Item, request: Option<&UnansweredRequest>, payload_sha256: bool) -> Option<String> {
    let mut out = String::new();
    match item {
        Item::Delivery { group, event, attempts } => {
            out.reserve(event.body.bytes() + 320);
            write_message(&mut out, &group, &event, Shown { attempts, payload_sha256 });
        }
        Item::Reply { reply, .. } => {
            let rid = request.and_then(|request| request.rid.as_ref());
            match reply {
                Reply::Refused(error) => {
                    let mut error = refused(&error, request.and_then(|request| request.group.as_ref()));
                    let topic = request.and_then(|request| request.topic.as_ref());
                    let about = &mut error.about;
                    about.topic = about.topic.take().or_else(|| topic.map(|topic| topic.as_str().into()));
                    error.rid(rid.cloned()).write(&mut out);
                }
                Reply::Acked | Reply::Nacked | Reply::FlowAdded | Reply::Unsubscribed { .. } => {
                    write_ok(&mut out, request?.op, rid);
                }
                reply => answer(&mut out, &reply, rid),
            }
        }
        Item::Notice { error, group } => refused(&error, group.as_ref()).write(&mut out),
    }
    (!out.is_empty()).then_some(out)
}

/// Returns the frame for a request that this server could not carry out because another one leads.
pub(crate) fn moved(moved: &Moved, request: Option<&UnansweredRequest>) -> String {
    let name = |text: &str| text.into();
    let about = About {
        topic: request.and_then(|request| request.topic.as_ref()).map(|topic| name(topic.as_str())),
        group: request.and_then(|request| request.group.as_ref()).map(|group| name(group.as_str())),
        ..About::default()
    };
    let rid = request.and_then(|request| request.rid.clone());
    let mut out = String::new();
    moved.frame().about(about).rid(rid).write(&mut out);
    out
}

/// Writes an answer that carries data as a frame; the body of an HTTP response to a publish has the same form.
pub(crate) fn answer(out: &mut String, reply: &Reply, rid: Option<&Rid>) {
    match reply {
        Reply::Published { topic, id, at, due, durability } => {
            let place = match (at, due) {
                (Some((partition, offset)), _) => {
                    PublishedPlace::At { partition: *partition, offset: *offset }
                }
                (None, due) => PublishedPlace::Due(due.unwrap_or_default()),
            };
            out.reserve(192);
            write_published(out, topic.topic(), place, id, *durability, rid);
        }
        Reply::PublishedBatch { topic, offsets, durability, .. } => {
            write_published_batch(out, topic.topic(), offsets, *durability, rid);
        }
        Reply::Subscribed { topic, group, partitions } => {
            write_subscribed(out, topic.topic(), group.as_str(), positions(partitions), rid);
        }
        reply => tracing::error!(?reply, "an answer that no frame asks for"),
    }
}

/// Makes the error frame. `group` is used for an error that does not name its group.
fn refused(error: &BusError, group: Option<&Group>) -> FrameError {
    let mut about = about(error);
    about.group = about.group.or_else(|| group.map(|group| group.as_str().into()));
    FrameError::new(code(error), error.to_string()).about(about)
}

pub(crate) fn problem(error: &BusError) -> Problem {
    let problem = Problem::from(refused(error, None));
    match shown(error) {
        BusError::UnknownTopic(_)
        | BusError::NoAutoCreate(_)
        | BusError::TopicDeleted(_)
        | BusError::UnknownGroup { .. }
        | BusError::UnknownPartition { .. } => problem.status(404),
        BusError::BadConfig(ConfigError::Shrinks { .. })
        | BusError::SchemaBreaks { .. }
        | BusError::SchemaUncompared { .. } => problem.status(409),
        BusError::TopicExists(_) => problem.status(412),
        // Not a status for a retry: the same batch would be refused again.
        BusError::BatchTooLong { .. } => problem.status(413),
        BusError::NoSpace(_) => problem.status(507),
        _ => problem,
    }
}

pub(crate) fn code(error: &BusError) -> ErrorCode {
    match error.code() {
        bus::ErrorCode::BadTopic => ErrorCode::BadTopic,
        bus::ErrorCode::BadGroup => ErrorCode::BadGroup,
        bus::ErrorCode::BadFrame => ErrorCode::BadFrame,
        bus::ErrorCode::Forbidden => ErrorCode::Forbidden,
        bus::ErrorCode::UnknownOffset => ErrorCode::UnknownOffset,
        bus::ErrorCode::FilterConflict => ErrorCode::FilterConflict,
        bus::ErrorCode::GroupBusy => ErrorCode::GroupBusy,
        bus::ErrorCode::LimitReached => ErrorCode::LimitReached,
        bus::ErrorCode::TooLarge => ErrorCode::TooLarge,
        bus::ErrorCode::SchemaMismatch => ErrorCode::SchemaMismatch,
        bus::ErrorCode::StorageFailed => ErrorCode::StorageFailed,
        bus::ErrorCode::ShuttingDown => ErrorCode::ShuttingDown,
    }
}

/// The error that the caller sees: a hidden topic is reported as unknown.
fn shown(error: &BusError) -> &BusError {
    match error {
        BusError::Hidden { shown, .. } => shown,
        other => other,
    }
}

pub(crate) fn about(error: &BusError) -> About {
    let of = |topic: &TopicKey| About::topic(topic.topic());
    let of_group = |topic, group: &Group| About { group: Some(group.as_str().into()), ..of(topic) };
    match error {
        BusError::UnknownTopic(topic)
        | BusError::NoAutoCreate(topic)
        | BusError::TopicExists(topic)
        | BusError::TopicDeleted(topic)
        | BusError::NoSchemaHere(topic)
        | BusError::NoLetters(topic)
        | BusError::SchemaChanging(topic)
        | BusError::EventsUnread(topic)
        | BusError::SchemaMismatch { topic, .. }
        | BusError::SchemaWork { topic, .. }
        | BusError::SchemaUncompared { topic, .. }
        | BusError::Forbidden { topic, .. } => of(topic),
        BusError::SchemaBreaks { topic, event, .. } => match event {
            bus::BreakingEvent::Retained(partition, offset) => {
                About { partition: Some(*partition), offset: Some(*offset), ..of(topic) }
            }
            bus::BreakingEvent::Delayed | bus::BreakingEvent::Arriving => of(topic),
        },
        BusError::UnknownGroup { topic, group }
        | BusError::NotAMember { topic, group }
        | BusError::GroupForbidden { topic, group, .. }
        | BusError::FilterConflict { topic, group, .. }
        | BusError::GroupHasMembers { topic, group, .. }
        | BusError::GroupBusy { topic, group } => of_group(topic, group),
        BusError::UnknownPartition { topic, partition, .. } => {
            About { partition: Some(*partition), ..of(topic) }
        }
        BusError::UnknownOffset { topic, group, partition, offset, .. } => {
            About { partition: Some(*partition), offset: Some(*offset), ..of_group(topic, group) }
        }
        BusError::Hidden { shown, .. } => about(shown),
        BusError::BadConfig(_)
        | BusError::BadSchema(_)
        | BusError::LimitReached { .. }
        | BusError::TotalReached { .. }
        | BusError::OutOfRange { .. }
        | BusError::BatchTooLarge { .. }
        | BusError::BatchTooLong { .. }
        | BusError::EmptyBatch
        | BusError::NeedsConnection
        | BusError::GroupGone
        | BusError::StorageFailed(_)
        | BusError::Unreadable(_)
        | BusError::NoSpace(_)
        | BusError::ShuttingDown => About::default(),
    }
}

fn positions(partitions: &[(Partition, Offset)]) -> impl Iterator<Item = Position> + '_ {
    partitions.iter().map(|(partition, next)| Position { partition: *partition, next: *next })
}

/// The topic name in a key. Keys are made of checked names, so the check cannot fail.
pub(crate) fn topic_name(topic: &TopicKey) -> Result<TopicName, NameError> {
    TopicName::new(topic.topic())
}

fn stream(view: &PartitionView) -> StreamDoc {
    StreamDoc { partition: view.partition, start: view.start, next: view.next }
}

pub(crate) fn streams(view: &TopicView) -> Vec<StreamDoc> {
    view.partitions.iter().map(stream).collect()
}

pub(crate) fn topic(view: TopicView) -> Result<TopicDoc, NameError> {
    let schema_version = view.schema.as_ref().and_then(|schema| schema.version);
    let streams = streams(&view);
    let compared = view.schema.map(|schema| schema.checked).unwrap_or_default();
    Ok(TopicDoc {
        topic: topic_name(&view.topic)?,
        streams,
        config: view.config,
        groups: view.groups,
        schema_version,
        schema_checked: compared.ranges.into_iter().map(checked).collect(),
        schema_checked_delayed: compared.delayed,
        defaults: None,
        figures: None,
    })
}

fn checked(range: bus::CheckedRange) -> CheckedDoc {
    let bus::CheckedRange { partition, from, through } = range;
    CheckedDoc { partition, from, through }
}

/// The topic as an entry of a list, without its schema: a schema may be longer than all the rest.
pub(crate) fn topic_in_list(view: TopicView) -> Result<TopicDoc, NameError> {
    let mut doc = topic(view)?;
    doc.config.schema = None;
    Ok(doc)
}

pub(crate) fn topic_defaults(limits: &BusLimits) -> TopicDefaults {
    TopicDefaults {
        max_attempts: limits.max_attempts,
        ack_timeout_ms: limits.ack_timeout_ms,
        dedupe_window_ms: limits.dedupe_window_ms,
        durability: limits.durability,
        ack_mode: limits.ack_mode,
    }
}

pub(crate) fn offsets(view: OffsetsView) -> Result<TopicOffsets, NameError> {
    let partition = |(view, groups): (PartitionView, std::collections::BTreeMap<Group, bus::GroupView>)| {
        let groups = groups.into_iter().map(|(name, view)| (name, group_offsets(view))).collect();
        PartitionOffsets { partition: view.partition, start: view.start, next: view.next, groups }
    };
    Ok(TopicOffsets {
        topic: topic_name(&view.topic)?,
        partitions: view.partitions.into_iter().map(partition).collect(),
    })
}

pub(crate) fn group_offsets(view: bus::GroupView) -> GroupOffsets {
    let bus::GroupView { committed, updated, lag, inflight } = view;
    GroupOffsets { committed, updated, lag, inflight }
}

pub(crate) fn groups(view: bus::GroupsView) -> Result<GroupList, NameError> {
    let place =
        |(partition, view): (Partition, bus::GroupView)| GroupPlace { partition, at: group_offsets(view) };
    let group = |detail: bus::GroupDetail| GroupDoc {
        withheld: false,
        group: detail.group,
        members: detail.members as u64,
        paused: detail.paused,
        created: detail.created,
        filter: (!detail.filter.is_empty()).then_some(detail.filter),
        partitions: detail.partitions.into_iter().map(place).collect(),
    };
    Ok(GroupList { topic: topic_name(&view.topic)?, groups: view.groups.into_iter().map(group).collect() })
}

pub(crate) fn sought(
    topic: &TopicKey,
    group: Group,
    partitions: &[(Partition, Offset)],
) -> Result<Sought, NameError> {
    Ok(Sought {
        topic: topic_name(topic)?,
        group,
        partitions: positions(partitions).collect(),
        dry_run: false,
    })
}

/// Makes the document of `/stats`. Counters are of the whole server; topics are listed for one namespace only.
pub(crate) fn stats(stats: &Stats, uptime_ms: u64, namespace: &Namespace) -> StatsDoc {
    let counters = &stats.counters;
    let by_topic = stats.by_topic.iter().filter(|(key, _)| key.namespace() == namespace.as_str());
    StatsDoc {
        uptime_ms,
        published: counters.published,
        duplicates: counters.duplicates,
        delivered: counters.delivered,
        acks: counters.acked,
        nacks: counters.nacked,
        redeliveries: counters.redelivered,
        timeouts: counters.timed_out,
        dead_letters: counters.dead_lettered.total(),
        skipped: counters.skipped,
        filtered: counters.filtered,
        inflight: stats.inflight,
        lag: stats.lag,
        connections: stats.connections,
        subscriptions: stats.subscriptions,
        topics: stats.topics,
        groups: stats.groups,
        by_topic: by_topic
            .map(|(key, topic)| {
                let counts = TopicStats { published: topic.published, delivered: topic.delivered };
                (key.topic().to_owned(), counts)
            })
            .collect(),
    }
}

/// How many topics and groups a document of metrics may name; the rest is summed up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labels {
    pub(crate) topics: usize,
    pub(crate) groups: usize,
}

/// Stands for all names past a bound; no legal name looks like this.
pub(crate) const OTHER: &str = "(other)";

/// Makes the document for `system.metrics`, without refusals, which the edge counts.
pub(crate) fn metrics(stats: &Stats, shell: &ShellView, namespace: &Namespace, labels: Labels) -> MetricsDoc {
    let mut doc = MetricsDoc {
        stats: self::stats(stats, shell.uptime_ms, namespace),
        system: stats.counters.system,
        commits: shell.commits,
        commit_batches: shell.commit_batches,
        commit_events: shell.commit_events,
        commit_seconds: shell.sync.sum as f64 / 1e6,
        backlog_batches: shell.backlog_batches,
        backlog_bytes: shell.backlog_bytes,
        requests_waiting: shell.requests_waiting,
        outbound_bytes: shell.outbound_bytes,
        tail_bytes: stats.tail_bytes,
        fetched_bytes: stats.fetched_bytes,
        ..MetricsDoc::default()
    };
    let by_topic = std::mem::take(&mut doc.stats.by_topic);
    for (at, (name, counts)) in by_topic.into_iter().enumerate() {
        let name = if at < labels.topics { name } else { OTHER.to_owned() };
        let sum = doc.stats.by_topic.entry(name).or_default();
        sum.published += counts.published;
        sum.delivered += counts.delivered;
    }
    let here = stats.by_group.iter().filter(|one| one.topic.namespace() == namespace.as_str());
    for (at, one) in here.enumerate() {
        let shown = at < labels.groups;
        let name = |name: &str| if shown { name.to_owned() } else { OTHER.to_owned() };
        let groups = doc.by_group.entry(name(one.topic.topic())).or_default();
        let sum: &mut GroupStats = groups.entry(name(one.group.as_str())).or_default();
        sum.lag += one.lag;
        sum.inflight += one.inflight;
    }
    doc
}
