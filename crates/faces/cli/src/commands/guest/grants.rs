//! The capabilities that the flags of `millrace guest` grant.

use std::collections::BTreeSet;
use std::sync::Arc;

use clap::ArgMatches;
use millrace_zabi::{BusPort, Capability, FileRoot, Grants, NetAllowList, NetRule, TcpPolicy};

use crate::commands::{name_and_value, text};
use crate::failure::Failure;

/// The id of the flag `--allow`.
pub(super) const ALLOW: &str = "guest-allow";

/// Granted without a flag: these capabilities reach nothing outside the guest except clocks, facts about the machine,
/// and the arguments on the command line that are meant for the guest.
const ALWAYS: [Capability; 4] =
    [Capability::AsyncDefault, Capability::ProcArgv, Capability::SysInfo, Capability::SysLoop];

pub(super) fn always_granted() -> String {
    ALWAYS.map(shown).join(", ")
}

/// Returns the capabilities that the flags grant.
pub(super) fn wanted(matches: &ArgMatches) -> Result<BTreeSet<Capability>, Failure> {
    let denied: BTreeSet<Capability> =
        items(matches, "deny").map(|text| capability("deny", text)).collect::<Result<_, _>>()?;
    Ok(allowed(matches)?.difference(&denied).copied().collect())
}

/// Returns the grants for the wanted capabilities. `bus` serves `event/bus`, if that is wanted.
pub(super) fn granted(
    matches: &ArgMatches,
    wanted: &BTreeSet<Capability>,
    bus: &Arc<dyn BusPort>,
) -> Result<Grants, Failure> {
    let rules = rules(matches)?;
    let variables = variables(matches)?;
    let mut grants = Grants::none();
    for capability in wanted {
        grants = match capability {
            Capability::AsyncDefault => grants.async_default(),
            Capability::EventBus => grants.event_bus(Arc::clone(bus)),
            Capability::FileAio => grants.file_aio(folder(text(matches, "dir").unwrap_or_default())?),
            Capability::NetHttp => grants.net_http(rules.clone()),
            Capability::NetTcp => grants.net_tcp(TcpPolicy { connect: rules.clone(), listen: rules.clone() }),
            Capability::ProcArgv => grants.proc_argv(words(matches)),
            Capability::ProcEnv => grants.proc_env(variables.clone()),
            Capability::SysInfo => grants.sys_info(),
            Capability::SysLoop => grants.sys_loop(),
        };
    }
    Ok(grants)
}

/// Returns the capabilities that are granted always, by `--allow`, or by a flag of their own.
fn allowed(matches: &ArgMatches) -> Result<BTreeSet<Capability>, Failure> {
    let mut wanted = BTreeSet::from(ALWAYS);
    for text in items(matches, ALLOW) {
        let capability = capability("allow", text)?;
        if let Some((_, usage)) = own_flag(capability) {
            return Err(Failure::Usage(format!("--allow is {text:?}: that is granted by {usage}")));
        }
        wanted.insert(capability);
    }
    let is_given =
        |capability: &Capability| own_flag(*capability).is_some_and(|(flag, _)| matches.contains_id(flag));
    wanted.extend(Capability::ALL.into_iter().filter(is_given));
    Ok(wanted)
}

fn rules(matches: &ArgMatches) -> Result<NetAllowList, Failure> {
    let rules = items(matches, "net").map(|text| {
        text.parse::<NetRule>().map_err(|error| Failure::Usage(format!("--net is {text:?}: {error}")))
    });
    rules.collect::<Result<_, _>>().map(NetAllowList::new)
}

fn variables(matches: &ArgMatches) -> Result<Vec<String>, Failure> {
    let texts = matches.get_many::<String>("env").into_iter().flatten();
    let variables = texts.map(|text| match name_and_value("--env", text)? {
        (name, _) if name.is_empty() => {
            Err(Failure::Usage(format!("--env is {text:?}: the variable has no name")))
        }
        _ => Ok(text.clone()),
    });
    variables.collect()
}

/// Returns the guest's arguments: the module, then everything after `--`.
fn words(matches: &ArgMatches) -> Vec<String> {
    let args = matches.get_many::<String>("args").into_iter().flatten().cloned();
    text(matches, "module").map(str::to_owned).into_iter().chain(args).collect()
}

fn folder(path: &str) -> Result<FileRoot, Failure> {
    FileRoot::open(path).map_err(|error| Failure::Usage(format!("--dir: {error}")))
}

/// Returns the flag that grants a capability together with its parameters, and how to use that flag.
fn own_flag(capability: Capability) -> Option<(&'static str, &'static str)> {
    match capability {
        Capability::FileAio => Some(("dir", "--dir DIR")),
        Capability::NetTcp | Capability::NetHttp => Some(("net", "--net loopback|HOST:PORT,...")),
        Capability::ProcEnv => Some(("env", "--env NAME=VALUE")),
        _ => None,
    }
}

/// Returns the items of a flag that may be given several times, each time with items separated by commas.
fn items<'a>(matches: &'a ArgMatches, flag: &str) -> impl Iterator<Item = &'a str> {
    let texts = matches.get_many::<String>(flag).into_iter().flatten();
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

fn capability(flag: &str, text: &str) -> Result<Capability, Failure> {
    let named =
        text.split_once('/').and_then(|(kind, name)| Capability::named(kind.as_bytes(), name.as_bytes()));
    named.ok_or_else(|| {
        let known = Capability::ALL.map(shown).join(", ");
        Failure::Usage(format!("--{flag} is {text:?}: it must be one of {known}"))
    })
}

fn shown(capability: Capability) -> String {
    format!("{}/{}", capability.kind(), capability.name())
}
