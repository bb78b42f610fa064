//! The settings as command-line flags.

use clap::{Arg, ArgAction};

use crate::settings::{Config, Scope, SettingDef, SettingKind, all};

pub(crate) const CONFIG_FLAG: &str = "config";

/// Returns the flags of a command: the settings of its scopes, and `--config`.
pub(crate) fn args(scopes: &[Scope]) -> Vec<Arg> {
    let file = Arg::new(CONFIG_FLAG)
        .long(CONFIG_FLAG)
        .value_name("FILE")
        .help("Settings in TOML: the keys are the flags with _ for - [env: MILLRACE_CONFIG]")
        .help_heading("Settings");
    let settings =
        all().filter(|setting| setting.scope == Scope::Everywhere || scopes.contains(&setting.scope));
    std::iter::once(file).chain(settings.map(arg)).collect()
}

/// Returns the flag of a setting. The flag has no clap default: a flag that was not given must leave the value to the
/// environment and the file.
fn arg(setting: &'static SettingDef) -> Arg {
    let default = setting.kind.shown(&(setting.get)(&Config::default()));
    let default = if default.is_empty() { default } else { format!(" [default: {default}]") };
    let names =
        std::iter::once(setting.env_name()).chain(setting.also.iter().map(|(name, _)| (*name).to_owned()));
    let env = names.collect::<Vec<_>>().join(", ");
    let arg = Arg::new(setting.name)
        .long(setting.name)
        .help(format!("{}{default} [env: {env}]", setting.help))
        .help_heading(if setting.scope == Scope::Bound { "Bounds" } else { "Settings" })
        .hide_short_help(setting.scope == Scope::Bound);
    match setting.kind {
        SettingKind::Number { .. } => arg.value_name("N"),
        SettingKind::Choice(choices) => arg.value_name(choices.join("|")),
        SettingKind::Text { .. } | SettingKind::Address { .. } | SettingKind::Secret => {
            arg.value_name(setting.name.to_uppercase())
        }
        SettingKind::List { .. } => arg.value_name("LIST").action(ArgAction::Append),
        SettingKind::Flag => {
            arg.value_name("BOOL").num_args(0..=1).require_equals(true).default_missing_value("true")
        }
    }
}
