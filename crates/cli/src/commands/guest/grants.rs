//! What the flags of `millrace guest` grant.

use std::collections::BTreeSet;

use clap::ArgMatches;
use millrace_zabi::{Capability, Grants, NetAllowList, NetRule, TcpPolicy};

use crate::failure::Failure;

/// Harmless, and nothing works without the first: they reach nothing outside the guest but clocks and facts about the
/// machine.
const ALWAYS: [Capability; 1] = [Capability::SysLoop];

pub(super) fn always_granted() -> String {
    ALWAYS.map(shown).join(", ")
}

pub(super) fn granted(matches: &ArgMatches) -> Result<Grants, Failure> {
    let denied: BTreeSet<Capability> =
        items(matches, "deny").map(|text| capability("deny", text)).collect::<Result<_, _>>()?;
    let mut wanted = BTreeSet::from(ALWAYS);
    for text in items(matches, "allow") {
        let capability = capability("allow", text)?;
        if let Some(flag) = own_flag(capability) {
            return Err(Failure::Usage(format!("--allow is {text:?}: that is granted by {flag}")));
        }
        wanted.insert(capability);
    }
    let mut grants = Grants::none();
    for capability in wanted.difference(&denied) {
        grants = match capability {
            Capability::SysLoop => grants.sys_loop(),
            other => return Err(Failure::Usage(format!("--allow: this host has no {}", shown(*other)))),
        };
    }
    let rules: Vec<NetRule> = items(matches, "net")
        .map(|text| text.parse().map_err(|error| Failure::Usage(format!("--net: {error}"))))
        .collect::<Result<_, _>>()?;
    if !rules.is_empty() && !denied.contains(&Capability::NetTcp) {
        let list = NetAllowList::new(rules);
        grants = grants.net_tcp(TcpPolicy { connect: list.clone(), listen: list });
    }
    Ok(grants)
}

/// The flag that grants a capability together with what it needs to know.
fn own_flag(capability: Capability) -> Option<&'static str> {
    match capability {
        Capability::NetTcp | Capability::NetHttp => Some("--net loopback|HOST:PORT,..."),
        _ => None,
    }
}

/// The items of a flag that may be given several times, each with commas.
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
