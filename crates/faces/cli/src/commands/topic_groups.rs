//! `millrace topics groups|delete-group`: the groups of a topic.

use clap::{Arg, ArgMatches, Command};
use millrace_model::{Group, TopicName};
use millrace_wire::http::GroupList;
use serde_json::json;
use ureq::http::Method;

use crate::commands::text;
use crate::commands::topics::TopicsCall;
use crate::failure::Failure;
use crate::http::read;
use crate::output::columns;

pub(super) fn commands(
    verb: &dyn Fn(&'static str, &'static str) -> Command,
    topic: &dyn Fn() -> Arg,
) -> [Command; 2] {
    let group = || Arg::new("group").value_name("GROUP").required(true).help("The group's name");
    [
        verb("groups", "List the groups of a topic and how far they are").arg(topic()),
        verb("delete-group", "Forget a group and its positions; refused while it has members")
            .arg(topic())
            .arg(group()),
    ]
}

pub(super) fn run(
    verb: &str,
    matches: &ArgMatches,
    topic: &TopicName,
    call: TopicsCall,
) -> Result<(), Failure> {
    let group = text(matches, "group").map(Group::new).transpose();
    let group = group.map_err(|error| Failure::Usage(error.to_string()))?;
    match (verb, group) {
        ("groups", _) => call.groups(topic),
        ("delete-group", Some(group)) => call.delete_group(topic, &group),
        _ => Ok(()),
    }
}

impl TopicsCall {
    pub(super) fn groups(mut self, topic: &TopicName) -> Result<(), Failure> {
        let body = self.http.request(Method::GET, &format!("/topics/{topic}/groups"), "")?;
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

    fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.out.line(text.trim_end())?;
        self.out.flush()
    }

    fn delete_group(mut self, topic: &TopicName, group: &Group) -> Result<(), Failure> {
        self.http.request(Method::DELETE, &format!("/topics/{topic}/groups/{group}"), "")?;
        let line = if self.json {
            json!({ "topic": topic, "deleted": group }).to_string()
        } else {
            format!("group {group} of topic {topic} is deleted")
        };
        self.print(&line)
    }
}
