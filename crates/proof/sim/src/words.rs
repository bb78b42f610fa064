//! Writes inputs and effects as one short line each, for the trace.

use millrace_bus::{Effect, Input, Reply, ReplyTo, Request};
use millrace_model::{Batch, Op};

use crate::payload::number;

pub(crate) fn input(input: &Input) -> String {
    match input {
        Input::Open { conn, .. } => format!("> open {}", conn.0),
        Input::Close { conn } => format!("> close {}", conn.0),
        Input::Evict { conn } => format!("> evict {}", conn.0),
        Input::Congested { conn } => format!("> congested {}", conn.0),
        Input::Drained { conn } => format!("> drained {}", conn.0),
        Input::Request { to, request: what, .. } => format!("> {} {}", to_whom(*to), request(what)),
        Input::Committed { token, outcome } => format!("> committed {} {outcome:?}", token.0),
        Input::TooLarge { token, bytes } => format!("> too large {} {bytes}", token.0),
        Input::StorageFailed { reason } => format!("> storage failed: {reason}"),
        Input::PauseDelivery { is_paused } => format!("> pause delivery: {is_paused}"),
        Input::NoSpace { reason } => format!("> no space: {reason:?}"),
        Input::Page { token, page: None } => format!("> page {} unreadable", token.0),
        Input::Page { token, page: Some(page) } => {
            let offsets: Vec<u64> = page.events.iter().map(|event| event.offset.0).collect();
            format!("> page {} {offsets:?} through {}", token.0, page.through)
        }
        Input::Found { token, offsets } => format!("> found {} {offsets:?}", token.0),
        Input::DueRows { token, rows } => format!("> due rows {} {:?}", token.0, rows.as_ref().map(Vec::len)),
        Input::ForeignCommits { bounds, delayed } => {
            let bounds: Vec<String> = bounds.iter().map(|at| format!("{} {}", at.stream, at.next)).collect();
            let delayed = if delayed.is_some() { ", delayed events" } else { "" };
            format!("> elsewhere {}{delayed}", bounds.join(", "))
        }
        Input::RetainedChecked { token, outcome } => format!("> retained checked {} {outcome:?}", token.0),
        Input::TopicRead { token, found } => format!("> topic read {} {found:?}", token.0),
        Input::Stop => "> stop".to_owned(),
    }
}

fn to_whom(to: ReplyTo) -> String {
    match to {
        ReplyTo::Conn { conn, request } => format!("c{}#{request}", conn.0),
        ReplyTo::Call { call } => format!("call#{call}"),
        ReplyTo::Nobody => "nobody".to_owned(),
    }
}

fn request(request: &Request) -> String {
    match request {
        Request::Publish(publish) => {
            let (topic, event) = (publish.topic.topic(), &publish.event);
            let (n, key, id) = (number(&event.body), &event.body.key, &event.id);
            format!("publish {topic} n={n:?} key={key:?} id={id:?} at={:?}", publish.deliver_at)
        }
        Request::PublishBatch(batch) => {
            let numbers: Vec<_> = batch.events.iter().map(|event| number(&event.body)).collect();
            format!("publish batch {} {numbers:?}", batch.topic.topic())
        }
        Request::Subscribe(subscribe) => {
            let (topic, group) = (subscribe.topic.topic(), &subscribe.group);
            let (window, mode, from) = (subscribe.max_inflight, subscribe.ack_mode, subscribe.from);
            format!(
                "subscribe {topic}/{group} window={window:?} {mode:?} from={from:?} reset={}",
                subscribe.reset
            )
        }
        Request::Ack(ack) => {
            format!(
                "ack {}/{}/{} {} confirm={}",
                ack.topic.topic(),
                ack.group,
                ack.partition,
                ack.offset,
                ack.confirm
            )
        }
        Request::Nack(nack) => {
            let (topic, group, delay) = (nack.topic.topic(), &nack.group, nack.delay_ms);
            format!(
                "nack {topic}/{group}/{} {} delay={delay:?} confirm={}",
                nack.partition, nack.offset, nack.confirm
            )
        }
        Request::GiveBack(given) => {
            let (topic, group) = (given.topic.topic(), &given.group);
            format!("give back {topic}/{group}/{} {}", given.partition, given.offset)
        }
        other => format!("{other:?}"),
    }
}

pub(crate) fn effect(effect: &Effect) -> String {
    match effect {
        Effect::Commit { token, batch } => format!("< commit {} {}", token.0, self::batch(batch)),
        Effect::Read { token, stream, from, events_max, .. } => {
            format!("< read {} {stream} from {from} max {events_max}", token.0)
        }
        Effect::Reply { to, reply } => format!("< {} {}", to_whom(*to), self::reply(reply)),
        Effect::Deliver { conn, group, event, attempts } => {
            let (topic, partition) = (event.stream.topic.topic(), event.stream.partition);
            format!("< c{} deliver {topic}/{group}/{partition} {} attempts={attempts}", conn.0, event.offset)
        }
        other => format!("< {other:?}"),
    }
}

fn reply(reply: &Reply) -> String {
    match reply {
        // Gauges and counters would only repeat what the lines above say.
        Reply::Stats(_) => "stats".to_owned(),
        Reply::Topics { topics, more } => format!("{} topics, more: {more}", topics.len()),
        Reply::Refused(error) => format!("refused {}: {error}", error.code().as_str()),
        other => format!("{other:?}"),
    }
}

pub(crate) fn batch(batch: &Batch) -> String {
    let ops: Vec<String> = batch.ops.iter().map(op).collect();
    format!("{} {} checks [{}]", batch.durability.as_str(), batch.checks.len(), ops.join(", "))
}

fn op(op: &Op) -> String {
    match op {
        Op::Append(append) => format!("append {} n={:?}", append.stream, number(&append.event.body)),
        Op::Delay(delay) => format!("delay {} {} to {}", delay.topic, delay.id, delay.due.0),
        Op::Put { space, key, value } => {
            format!("put {} {key} {}", space.as_str(), String::from_utf8_lossy(value))
        }
        Op::PutNew { space, key, .. } => format!("put if new {} {key}", space.as_str()),
        Op::Claim(claim) => format!("claim {} of {} for {}", claim.events_max, claim.topic, claim.handler),
        Op::Reconcile(reconcile) => format!("reconcile {} intents", reconcile.intents.len()),
        Op::Delete { space, key } => format!("delete {} {key}", space.as_str()),
        Op::Trim { stream, start } => format!("trim {stream} to {start}"),
        Op::Remove { stream, offsets, .. } => format!("remove {} of {stream}", offsets.len()),
        Op::Drop { topic } => format!("drop {topic}"),
    }
}
