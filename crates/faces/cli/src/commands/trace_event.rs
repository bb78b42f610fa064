//! `millrace trace --event`: asks a server for everything that an event, letter, message or timer goes back to and
//! everything that followed from it, and shows it as a tree.

use std::collections::BTreeMap;
use std::fmt::Write;

use millrace_wire::http::{Trace, TraceNode, TraceWhat};
use ureq::http::Method;

use crate::failure::Failure;
use crate::http::{Http, read};
use crate::output::Output;
use crate::settings::Config;

/// Pages that are asked for.
const PAGES_MAX: usize = 100;

pub(super) fn run(config: &Config, id: &str, json: bool) -> Result<(), Failure> {
    let (nodes, complete) = fetch(&Http::new(config)?, id)?;
    let mut out = Output::new();
    if json {
        nodes.iter().try_for_each(|node| out.json(node))?;
    } else {
        tree(&nodes).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()?;
    if !complete {
        tracing::warn!(
            "there may be more: the server looks at no more events for one question (--scan-events-max)"
        );
    }
    Ok(())
}

/// Returns the nodes of all pages, and whether they are all there are.
fn fetch(http: &Http, id: &str) -> Result<(Vec<TraceNode>, bool), Failure> {
    // A node that comes again on a later page says more there.
    let (mut nodes, mut places): (Vec<TraceNode>, BTreeMap<String, usize>) = Default::default();
    let (mut after, mut complete) = (String::new(), false);
    for _ in 0..PAGES_MAX {
        let path = format!("/trace?id={}{after}", escaped(id));
        let page: Trace = read(&http.request(Method::GET, &path, "")?)?;
        complete = page.complete;
        for node in page.nodes {
            match places.get(&node.id).and_then(|at| nodes.get_mut(*at)) {
                Some(known) => *known = node,
                None => {
                    places.insert(node.id.clone(), nodes.len());
                    nodes.push(node);
                }
            }
        }
        match page.next {
            Some(next) => after = format!("&after={}", escaped(&next)),
            None => break,
        }
    }
    nodes.sort_by_key(|node| node.at);
    Ok((nodes, complete))
}

/// Escapes a text for the query of an address.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// Returns one line per node, below the node that caused it. A node whose cause is not there stands at the left.
fn tree(nodes: &[TraceNode]) -> Vec<String> {
    let at: BTreeMap<&str, usize> = (0..).zip(nodes).map(|(at, node)| (node.id.as_str(), at)).collect();
    let mut below: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut tops = Vec::new();
    for (own, node) in nodes.iter().enumerate() {
        let parent = node.parent.as_deref().and_then(|parent| at.get(parent).copied());
        match parent.filter(|parent| *parent != own) {
            Some(parent) => below.entry(parent).or_default().push(own),
            None => tops.push(own),
        }
    }
    let began = nodes.first().map_or(0, |node| node.at.0);
    let mut lines = Vec::new();
    let mut shown = vec![false; nodes.len()];
    // Behind the tops all nodes once more: those of a circle hang below none of them.
    for top in tops.into_iter().chain(0..nodes.len()) {
        let mut stack = vec![(top, String::new(), String::new())];
        while let Some((own, mark, indent)) = stack.pop() {
            let (Some(node), Some(is_shown)) = (nodes.get(own), shown.get_mut(own)) else { continue };
            if std::mem::replace(is_shown, true) {
                continue;
            }
            lines.push(format!("{mark}{}", line(node, began)));
            let children = below.remove(&own).unwrap_or_default();
            let last = children.len().saturating_sub(1);
            for (number, child) in children.into_iter().enumerate().rev() {
                let (branch, bar) = if number == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
                stack.push((child, format!("{indent}{branch}"), format!("{indent}{bar}")));
            }
        }
    }
    lines
}

fn line(node: &TraceNode, began: u64) -> String {
    let what = match node.what {
        TraceWhat::Event => "event",
        TraceWhat::Message => "message",
        TraceWhat::Delivery => "group",
        TraceWhat::Claim => "handler",
        TraceWhat::Timer => "timer",
        TraceWhat::Schedule => "schedule",
        TraceWhat::Letter => "letter",
        TraceWhat::Replay => "replay",
    };
    let mut text = format!("{what} {}", node.ty);
    // Deliveries, claims and fires are named by what they are about.
    if !matches!(node.what, TraceWhat::Delivery | TraceWhat::Claim | TraceWhat::Schedule) {
        let _ = write!(text, " {}", node.id);
    }
    if let Some(place) = &node.place
        && matches!(node.what, TraceWhat::Event | TraceWhat::Letter | TraceWhat::Replay)
    {
        let _ = write!(text, " at {}/{}", place.partition, place.offset);
    }
    let _ = write!(text, "  {}", node.status);
    if let Some(attempts) = node.attempts.filter(|attempts| *attempts > 1) {
        let _ = write!(text, " after {attempts} attempts");
    }
    if let Some(to) = &node.to {
        let _ = write!(text, " -> {to}");
    }
    if let Some(error) = &node.error {
        let _ = write!(text, ": {error}");
    }
    let when = match node.at.0.checked_sub(began) {
        Some(0) | None => node.at.to_string(),
        Some(ms) => format!("+{ms} ms"),
    };
    let took = node.ended_at.and_then(|end| end.checked_sub(node.at.0)).filter(|ms| *ms > 0);
    let took = took.map(|ms| format!(", {ms} ms")).unwrap_or_default();
    // Escaped, because consumers wrote parts of it: they must not control the terminal.
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("{text}  ({when}{took})")
}

#[cfg(test)]
mod tests {
    use millrace_client::Timestamp;

    use super::*;

    fn node(id: &str, parent: Option<&str>) -> TraceNode {
        TraceNode {
            id: id.to_owned(),
            parent: parent.map(str::to_owned),
            what: TraceWhat::Event,
            ty: "t".to_owned(),
            at: Timestamp(5),
            ended_at: None,
            from: None,
            to: None,
            status: "stored".to_owned(),
            attempts: None,
            error: None,
            place: None,
            trace_id: None,
        }
    }

    #[test]
    fn each_node_stands_below_its_cause_and_circles_end() {
        let nodes = [
            node("b", Some("a")),
            node("a", None),
            node("c", Some("gone")),
            node("x", Some("y")),
            node("y", Some("x")),
            node("self", Some("self")),
        ];
        let shown: Vec<String> =
            tree(&nodes).iter().map(|line| line.split("  stored").next().unwrap().to_owned()).collect();
        assert_eq!(
            shown,
            ["event t a", "└─ event t b", "event t c", "event t self", "event t x", "└─ event t y"]
        );
    }

    #[test]
    fn what_others_wrote_cannot_control_the_terminal_or_the_address() {
        let mut evil = node("a", None);
        evil.error = Some("\u{1b}[2J\nboom".to_owned());
        assert!(!line(&evil, 0).contains(char::is_control));
        assert_eq!(escaped("a b/ü&#"), "a%20b%2F%C3%BC%26%23");
    }
}
