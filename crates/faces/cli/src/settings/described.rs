//! The settings of a server for `GET /settings`: what `config print` shows, and which values are possible.

use millrace_server::SettingDoc;
use serde_json::{Value as Json, json};

use crate::settings::{Config, Effective, Scope, SettingDef, SettingKind, SettingValue};

/// Read again at SIGHUP; everything else takes a restart. Tokens and capabilities, which are no settings of their own, are
/// read again, too.
const AT_SIGHUP: [&str; 3] = ["tls-cert", "tls-key", "tls-client-ca"];

/// The settings that `serve` has.
pub(crate) fn described(effective: &Effective) -> Vec<SettingDoc> {
    let defaults = Config::default();
    let of_server = |setting: &SettingDef| {
        use Scope::{Bound, Everywhere, Serve, Socket, Store};
        matches!(setting.scope, Serve | Store | Socket | Bound | Everywhere)
    };
    let settings = effective.settings().filter(|(setting, ..)| of_server(setting));
    let doc = |(setting, value, source): (&SettingDef, SettingValue, &super::SettingSource)| SettingDoc {
        name: setting.name.to_owned(),
        value: shown(setting, value),
        from: source.to_string(),
        default: shown(setting, (setting.get)(&defaults)),
        accepts: setting.kind.accepted(),
        bound: setting.scope == Scope::Bound,
        changes: if is_read_again(setting.name) { "SIGHUP" } else { "restart" }.to_owned(),
        about: setting.help.to_owned(),
    };
    settings.map(doc).collect()
}

/// The settings that a reload has read again.
pub(crate) fn described_again(effective: &Effective) -> Vec<SettingDoc> {
    let mut docs = described(effective);
    docs.retain(|doc| is_read_again(&doc.name));
    docs
}

fn is_read_again(name: &str) -> bool {
    AT_SIGHUP.contains(&name)
}

/// The value as JSON, without what is secret in it.
pub(crate) fn shown(setting: &SettingDef, value: SettingValue) -> Json {
    match (setting.kind, value) {
        (SettingKind::Secret | SettingKind::Address { .. }, value) => json!(setting.kind.shown(&value)),
        (_, SettingValue::Text(text)) => json!(text),
        (_, SettingValue::Number(number)) => json!(number),
        (_, SettingValue::Flag(flag)) => json!(flag),
        (_, SettingValue::List(items)) => json!(items),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::all;

    #[test]
    fn secrets_and_passwords_are_not_shown() {
        let text = |text: &str| SettingValue::Text(text.to_owned());
        for setting in all() {
            let told = match setting.kind {
                SettingKind::Secret => shown(setting, text("hidden")),
                SettingKind::Address { .. } if setting.name == "store" => {
                    shown(setting, text("postgres://user:hidden@db.example/bus"))
                }
                SettingKind::Address { .. } => shown(setting, text("http://user:hidden@collector.example")),
                _ => continue,
            };
            assert!(!told.to_string().contains("hidden"), "{}: {told}", setting.name);
        }
    }
}
