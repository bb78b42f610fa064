//! `millrace jobs list|show|start|cancel`: work over many dead letters that the server does by itself.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_model::TopicName;
use millrace_wire::http::{JobDoc, JobFilter, JobKind, JobList, JobPreview, JobRequest};
use ureq::http::Method;

use crate::commands::{json_flag, text};
use crate::failure::Failure;
use crate::http::{Http, read};
use crate::log;
use crate::output::{Output, columns};
use crate::settings::{Scope, args, resolve};

pub(super) fn command() -> Command {
    let verb = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).arg(json_flag()).args(args(&[Scope::Client]))
    };
    let job = || {
        Arg::new("job")
            .value_name("JOB")
            .required(true)
            .value_parser(value_parser!(u64))
            .help("The job's number")
    };
    let time = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("MS").value_parser(value_parser!(u64)).help(help)
    };
    let start = verb("start", "Replay or delete all dead letters of a topic that match a filter")
        .long_about(
            "Replay or delete all dead letters of a topic that match a filter.\n\nThe server does it: the job goes on \
             when this command has ended, and after a restart. It is about the letters that there are now. At least \
             one of --group, --reason, --from and --to is needed.",
        )
        .arg(Arg::new("kind").value_name("replay|delete").required(true).value_parser(["replay", "delete"]).help("What to do"))
        .arg(Arg::new("topic").value_name("TOPIC").required(true).help("The topic whose events became dead letters"))
        .arg(Arg::new("group").long("group").value_name("GROUP").help("Only letters of this group"))
        .arg(Arg::new("reason").long("reason").value_name("TEXT").help("Only letters with this reason, the whole text"))
        .arg(time("from", "Only letters from this time on, in milliseconds since 1970"))
        .arg(time("to", "Only letters before this time"))
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..))
                .help("Letters per second at most [default: as many as possible]"),
        )
        .arg(Arg::new("dry-run").long("dry-run").action(ArgAction::SetTrue).help("Only count the letters"));
    Command::new("jobs")
        .about("Replay or delete many dead letters, and see how far that is")
        .subcommand_required(true)
        .subcommand(verb("list", "List the jobs of the namespace, the newest first"))
        .subcommand(verb("show", "Show how far a job is").arg(job()))
        .subcommand(start)
        .subcommand(verb("cancel", "End a job after the letters it is at; nothing is undone").arg(job()))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((verb, matches)) = matches.subcommand() else { return Ok(()) };
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let mut call = JobsCall { http: Http::new(&config)?, json: matches.get_flag("json"), out: Output::new() };
    let path = || format!("/jobs/{}", matches.get_one::<u64>("job").copied().unwrap_or_default());
    match verb {
        "list" => call.list(),
        "show" => call.one(Method::GET, &path()),
        "cancel" => call.one(Method::DELETE, &path()),
        "start" => call.start(&request(matches)?),
        _ => Ok(()),
    }
}

fn request(matches: &ArgMatches) -> Result<JobRequest, Failure> {
    let topic = TopicName::new(text(matches, "topic").unwrap_or_default());
    let filter = JobFilter {
        group: text(matches, "group").map(str::to_owned),
        reason: text(matches, "reason").map(str::to_owned),
        from: matches.get_one("from").copied(),
        to: matches.get_one("to").copied(),
    };
    if filter == JobFilter::default() {
        return Err(Failure::Usage("give at least one of --group, --reason, --from and --to".into()));
    }
    Ok(JobRequest {
        kind: if text(matches, "kind") == Some("delete") { JobKind::Delete } else { JobKind::Replay },
        topic: topic.map_err(|error| Failure::Usage(error.to_string()))?,
        filter,
        rate_per_second: matches.get_one("rate").copied(),
        dry_run: matches.get_flag("dry-run"),
    })
}

struct JobsCall {
    http: Http,
    json: bool,
    out: Output,
}

impl JobsCall {
    fn list(&mut self) -> Result<(), Failure> {
        let body = self.http.request(Method::GET, "/jobs", "")?;
        if self.json {
            return self.out.document(&body);
        }
        let JobList { jobs } = read(&body)?;
        if jobs.is_empty() {
            return self.out.document("there are no jobs");
        }
        let mut rows = vec![["JOB", "KIND", "TOPIC", "STATE", "DONE", "BY"].map(String::from).to_vec()];
        rows.extend(jobs.iter().map(|job| {
            vec![
                job.job.clone(),
                kind(job.kind).to_owned(),
                job.topic.to_string(),
                job.state.clone(),
                format!("{}/{}", job.done, job.total),
                job.by.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        }));
        self.out.document(&columns(&rows).join("\n"))
    }

    fn one(&mut self, method: Method, path: &str) -> Result<(), Failure> {
        let body = self.http.request(method, path, "")?;
        self.tell(&body)
    }

    fn start(&mut self, request: &JobRequest) -> Result<(), Failure> {
        let text = serde_json::to_string(request).map_err(|error| Failure::Failed(error.to_string()))?;
        let body = self.http.request(Method::POST, "/jobs", &text)?;
        if !request.dry_run || self.json {
            return self.tell(&body);
        }
        let JobPreview { total, complete } = read(&body)?;
        let more = if complete { "" } else { " and more" };
        self.out.document(&format!("{total} letters{more} match; nothing was done"))
    }

    fn tell(&mut self, body: &str) -> Result<(), Failure> {
        if self.json {
            return self.out.document(body);
        }
        let job: JobDoc = read(body)?;
        let mut said = format!(
            "job {}: {} of {}{} letters of {}, {}",
            job.job,
            job.done,
            if job.total_is_least { "at least " } else { "" },
            job.total,
            job.topic,
            match job.kind {
                JobKind::Replay => format!("{} replayed, {} before", job.replayed, job.duplicates),
                JobKind::Delete => format!("{} deleted", job.deleted),
            }
        );
        if job.failed > 0 {
            said += &format!(", {} failed", job.failed);
        }
        said += &format!("; {}", job.state);
        if let Some(error) = &job.error {
            said += &format!(": {}", error.escape_debug());
        }
        for failure in &job.failures {
            let detail = failure.detail.escape_debug();
            said += &format!("\n  partition {}, offset {}: {detail}", failure.partition, failure.offset);
        }
        self.out.document(&said)
    }
}

fn kind(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Replay => "replay",
        JobKind::Delete => "delete",
    }
}
