//! Derives and attributes without a meaning: the macros refuse them with messages of their own.

use millrace::{Entity, Event, HandlerContext, Relation, on_event};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct Fine {
    a: u8,
}

#[derive(Event, Serialize, Deserialize)]
struct Unit; //~ "struct with named fields"

#[derive(Event, Serialize, Deserialize)]
enum Choice { //~ "struct with named fields"
    A,
}

#[derive(Event, Serialize, Deserialize)]
struct Generic<T> { //~ "cannot be generic"
    a: T,
}

#[derive(Event, Serialize, Deserialize)]
#[event(name = "a b")] //~ "only A-Z a-z 0-9"
struct BadName {}

#[derive(Event, Serialize, Deserialize)]
#[event(priority = 3000000000)] //~ "whole number"
struct BadPriority {}

#[derive(Event, Serialize, Deserialize)]
#[event(colour = 3)] //~ "expected `name"
struct BadOption {}

#[derive(Event, Serialize, Deserialize)]
struct Über {} //~ "give one by #[event(name"

#[derive(Entity, Serialize, Deserialize)]
struct NoKey { //~ "has no #[key]"
    id: String,
}

#[derive(Entity, Serialize, Deserialize)]
struct TwoKeys {
    #[key]
    id: String,
    #[key]
    other: String, //~ "a second #[key]"
}

#[derive(Entity, Serialize, Deserialize)]
struct Flat {
    #[key]
    id: String,
    #[serde(flatten)] //~ "nest them"
    rest: Fine,
}

#[derive(Entity, Serialize, Deserialize)]
struct Good {
    #[key]
    id: String,
}

#[derive(Relation, Serialize, Deserialize)]
struct NoEnds { //~ "names its endpoints"
    #[left_key]
    left: String,
    #[right_key]
    right: String,
}

#[derive(Relation, Serialize, Deserialize)]
#[relation(left = Good, right = Good)]
struct NoRight { //~ "has no #[right_key]"
    #[left_key]
    left: String,
}

#[derive(Relation, Serialize, Deserialize)]
#[relation(left = Good, right = Good)]
struct OneForBoth {
    #[left_key]
    #[right_key]
    both: String, //~ "one field, one role"
}

#[on_event] //~ "name the event type"
fn unnamed(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, speed = 3)] //~ "expected `priority`, `id`, `from`, `timeout_ms`"
fn fast(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, timeout_ms = 0)] //~ "`timeout_ms` is a whole number from 1"
fn no_time(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, timeout_ms = "5s")] //~ "expected integer literal"
fn words(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, max_attempts = 5000000000)] //~ "`max_attempts` is a whole number from 1 to 4294967295"
fn stubborn(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, rate_per_s = 0.0)] //~ "`rate_per_s` is a number from 0.00001"
fn never(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, rate_per_s = true)] //~ "`rate_per_s` is a number from 0.00001"
fn truly(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, paused = 1)] //~ "expected boolean literal"
fn resting(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, order = "keys")] //~ "`order` is "key" or "priority""
fn keys(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, order = key)] //~ "expected string literal"
fn bare(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, concurrency = 2, concurrency = 3)] //~ "`concurrency` is said twice"
fn twice(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, timeout_ms = 2000, lease_ms = 1000)] //~ "the lease ends before the timeout"
fn brief(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, from = "yesterday")] //~ "earliest"
fn late(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine, id = "")] //~ "1 to 255"
fn nameless(_ctx: &mut HandlerContext<Fine>) {}

#[on_event(Fine)]
fn empty() {} //~ "takes one argument"

#[on_event(Fine)]
fn many(_ctx: &mut HandlerContext<Fine>, _more: u8) {} //~ "takes one argument"

#[on_event(Fine)]
fn generic<T>(_ctx: &mut HandlerContext<Fine>) {} //~ "cannot be generic"

fn main() {}
