//! `millrace topics groups|seek|delete-group`: the groups of a topic.

use clap::{Arg, ArgMatches, Command, value_parser};
use millrace_model::{Group, Partition, TopicName};
use millrace_wire::http::{GroupList, Seek, Sought};
use serde_json::json;
use ureq::http::Method;

use crate::commands::topics::{Call, read};
use crate::commands::{start_from, text};
use crate::failure::Failure;
use crate::output::columns;

pub(super) fn commands(
    verb: &dyn Fn(&'static str, &'static str) -> Command,
    topic: &dyn Fn() -> Arg,
) -> [Command; 3] {
    let group = || Arg::new("group").value_name("GROUP").required(true).help("The group's name");
    let seek = verb("seek", "Move a group to another position; refused while its members hold events")
        .arg(topic())
        .arg(group())
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("earliest|latest|offset:N|timestamp:MS")
                .required(true)
                .help("Where the group goes on"),
        )
        .arg(
            Arg::new("partition")
                .long("partition")
                .value_name("N")
                .value_parser(value_parser!(u32))
                .help("Move only this partition [default: all]"),
        );
    [
        verb("groups", "List the groups of a topic and how far they are").arg(topic()),
        seek,
        verb("delete-group", "Forget a group and its positions; refused while it has members")
            .arg(topic())
            .arg(group()),
    ]
}

pub(super) fn run(verb: &str, matches: &ArgMatches, topic: &TopicName, call: Call) -> Result<(), Failure> {
    let group = text(matches, "group").map(Group::new).transpose();
    let group = group.map_err(|error| Failure::Usage(error.to_string()))?;
    match (verb, group) {
        ("groups", _) => call.groups(topic),
        ("seek", Some(group)) => {
            let from = start_from(text(matches, "from").unwrap_or_default())?;
            let partition = matches.get_one("partition").copied().map(Partition);
            call.seek(topic, &group, Seek { from, partition })
        }
        ("delete-group", Some(group)) => call.delete_group(topic, &group),
        _ => Ok(()),
    }
}

impl Call {
    fn groups(mut self, topic: &TopicName) -> Result<(), Failure> {
        let body = self.http.ask(Method::GET, &format!("/topics/{topic}/groups"), "")?;
        if self.json {
            return self.print(&body);
        }
        let list: GroupList = read(&body)?;
        let head = ["GROUP", "MEMBERS", "PARTITION", "COMMITTED", "LAG", "INFLIGHT"];
        let mut rows = vec![head.map(String::from).to_vec()];
        for group in &list.groups {
            for place in &group.partitions {
                let numbers = [place.at.committed.0, place.at.lag, place.at.inflight];
                let cells = [group.group.to_string(), group.members.to_string(), place.partition.to_string()];
                rows.push(cells.into_iter().chain(numbers.map(|number| number.to_string())).collect());
            }
        }
        self.print(&columns(&rows).join("\n"))
    }

    fn seek(mut self, topic: &TopicName, group: &Group, seek: Seek) -> Result<(), Failure> {
        let mut text = String::new();
        seek.write(&mut text);
        let body = self.http.ask(Method::POST, &format!("/topics/{topic}/groups/{group}/seek"), &text)?;
        if self.json {
            return self.print(&body);
        }
        let sought: Sought = read(&body)?;
        let lines: Vec<String> = sought
            .partitions
            .iter()
            .map(|at| format!("group {group} goes on at offset {} of partition {}", at.next, at.partition))
            .collect();
        self.print(&lines.join("\n"))
    }

    fn delete_group(mut self, topic: &TopicName, group: &Group) -> Result<(), Failure> {
        self.http.ask(Method::DELETE, &format!("/topics/{topic}/groups/{group}"), "")?;
        let line = if self.json {
            json!({ "topic": topic, "deleted": group }).to_string()
        } else {
            format!("group {group} of topic {topic} is deleted")
        };
        self.print(&line)
    }
}
