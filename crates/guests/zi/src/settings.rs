//! Reads the grants and the log level of the program from its environment variables.
//!
//! A native guest is code of this program: grants do not confine it. They say which capabilities the library offers,
//! and where their requests may lead, so that the same guest behaves as it does under a host that confines it. The
//! defaults and the names of most variables are those of the reference host. A variable that cannot be understood is
//! reported, and grants nothing.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use millrace_zabi::{
    Capability, CapsListForm, FileRoot, FileRootError, Grants, LocalBus, NetAllowList, ParseRuleError,
    TcpPolicy,
};
use thiserror::Error;
use tracing_subscriber::filter::LevelFilter;

const GRANTS: &str = "ZI_GRANTS";
const HTTP: &str = "ZI_ENABLE_HTTP_CAP";
const FOLDER: &str = "ZI_FS_ROOT";
const CONNECT: &str = "ZI_NET_ALLOW";
const LISTEN: &str = "ZI_NET_LISTEN_ALLOW";
const CAPS_LIST: &str = "ZI_CAPS_LIST";
const LOG: &str = "ZI_LOG";

/// The capabilities of a program that sets no variable.
const STOCK: [Capability; 7] = [
    Capability::EventBus,
    Capability::FileAio,
    Capability::NetTcp,
    Capability::ProcArgv,
    Capability::ProcEnv,
    Capability::SysInfo,
    Capability::SysLoop,
];

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) grants: Grants,
    pub(crate) caps_list: CapsListForm,
    /// Which messages of the host itself are written to standard error.
    pub(crate) log_level: LevelFilter,
    pub(crate) mistakes: Vec<SettingError>,
}

/// A variable that cannot be understood.
#[derive(Debug, Error)]
pub(crate) enum SettingError {
    #[error(
        "{GRANTS}: `{word}` is not `all`, `none` or the name of a capability, such as sys/loop; nothing is granted"
    )]
    UnknownCapability { word: String },
    #[error("{variable}: {source}; nothing is allowed")]
    Rule { variable: &'static str, source: ParseRuleError },
    #[error("{FOLDER}: {0}; file/aio is not granted")]
    Folder(#[from] FileRootError),
    #[error("{CAPS_LIST}: `{word}` is not `documented` or `described`; the documented form is used")]
    UnknownForm { word: String },
    #[error("{LOG}: `{word}` is not `off`, `error`, `warn`, `info`, `debug` or `trace`; errors are logged")]
    UnknownLevel { word: String },
}

impl Settings {
    /// `variable` returns the value of an environment variable.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<OsString>) -> Settings {
        let mut mistakes = Vec::new();
        // An empty variable counts as unset, as with the reference.
        let value = |name: &str| variable(name).filter(|value| !value.is_empty());
        let text = |name: &str| value(name).map(|value| value.to_string_lossy().into_owned());

        let is_http_on = text(HTTP).is_some_and(|value| value != "0");
        let named = granted_capabilities(text(GRANTS).as_deref(), is_http_on);
        let capabilities = named.unwrap_or_else(|mistake| {
            mistakes.push(mistake);
            Vec::new()
        });

        let mut list = |variable: &'static str| {
            text(variable).unwrap_or_default().parse::<NetAllowList>().unwrap_or_else(|source| {
                mistakes.push(SettingError::Rule { variable, source });
                NetAllowList::default()
            })
        };
        let policy = TcpPolicy { connect: list(CONNECT), listen: list(LISTEN) };

        let mut grants = Grants::none();
        for capability in capabilities {
            grants = match capability {
                Capability::AsyncDefault => grants.async_default(),
                Capability::EventBus => grants.event_bus(Arc::new(LocalBus::default())),
                Capability::FileAio => {
                    match value(FOLDER).map_or_else(FileRoot::unconfined, FileRoot::open) {
                        Ok(root) => grants.file_aio(root),
                        Err(error) => {
                            mistakes.push(error.into());
                            grants
                        }
                    }
                }
                Capability::NetHttp => grants.net_http(policy.listen.clone()),
                Capability::NetTcp => grants.net_tcp(policy.clone()),
                Capability::ProcArgv => grants.proc_argv(std::env::args_os().map(OsString::into_vec)),
                Capability::ProcEnv => grants.proc_env(environment()),
                Capability::SysInfo => grants.sys_info(),
                Capability::SysLoop => grants.sys_loop(),
            };
        }

        let caps_list = match text(CAPS_LIST).as_deref() {
            None | Some("documented") => CapsListForm::Documented,
            Some("described") => CapsListForm::WithDescription,
            Some(word) => {
                mistakes.push(SettingError::UnknownForm { word: word.to_owned() });
                CapsListForm::Documented
            }
        };
        let level = text(LOG).map_or(Ok(LevelFilter::ERROR), |word| {
            word.parse().map_err(|_| SettingError::UnknownLevel { word })
        });
        let log_level = level.unwrap_or_else(|mistake| {
            mistakes.push(mistake);
            LevelFilter::ERROR
        });
        Settings { grants, caps_list, log_level, mistakes }
    }
}

fn granted_capabilities(words: Option<&str>, is_http_on: bool) -> Result<Vec<Capability>, SettingError> {
    match words {
        None => Ok(STOCK.into_iter().chain(is_http_on.then_some(Capability::NetHttp)).collect()),
        Some("all") => Ok(Capability::ALL.to_vec()),
        Some("none") => Ok(Vec::new()),
        Some(words) => words.split(',').map(|word| named_capability(word.trim())).collect(),
    }
}

fn named_capability(word: &str) -> Result<Capability, SettingError> {
    let named =
        word.split_once('/').and_then(|(kind, name)| Capability::named(kind.as_bytes(), name.as_bytes()));
    named.ok_or_else(|| SettingError::UnknownCapability { word: word.to_owned() })
}

/// Returns the variables of the program, each `NAME=VALUE`.
fn environment() -> impl Iterator<Item = Vec<u8>> {
    std::env::vars_os().map(|(name, value)| [name.into_vec(), value.into_vec()].join(&b'='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Vec<Capability>, Vec<String>) {
        let find =
            |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.into());
        let settings = Settings::read(find);
        (settings.grants.list(), settings.mistakes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn without_variables_the_stock_capabilities_are_granted() {
        assert_eq!(read(&[]), (STOCK.to_vec(), vec![]));
        assert_eq!(read(&[(GRANTS, ""), (HTTP, "0"), (CONNECT, "")]), (STOCK.to_vec(), vec![]));
        let (with_http, mistakes) = read(&[(HTTP, "1")]);
        assert_eq!((with_http.len(), mistakes.len()), (STOCK.len() + 1, 0));
        assert!(with_http.contains(&Capability::NetHttp));
    }

    #[test]
    fn capabilities_are_granted_by_name() {
        let two = vec![Capability::NetTcp, Capability::SysLoop];
        assert_eq!(read(&[(GRANTS, "sys/loop, net/tcp")]), (two, vec![]));
        assert_eq!(read(&[(GRANTS, "none")]), (vec![], vec![]));
        assert_eq!(read(&[(GRANTS, "all")]), (Capability::ALL.to_vec(), vec![]));
    }

    #[test]
    fn mistakes_are_told_and_grant_nothing() {
        for (variable, value, granted) in [
            (GRANTS, "sys/loop,disk", 0),
            (GRANTS, "sys/Loop", 0),
            (CONNECT, "no-port", STOCK.len()),
            (LISTEN, "a:b", STOCK.len()),
            (FOLDER, "/no/such/folder", STOCK.len() - 1),
            (CAPS_LIST, "long", STOCK.len()),
            (LOG, "loud", STOCK.len()),
        ] {
            let (capabilities, mistakes) = read(&[(variable, value)]);
            assert_eq!((capabilities.len(), mistakes.len()), (granted, 1), "{variable}={value}");
            assert!(mistakes[0].starts_with(variable), "{mistakes:?}");
        }
    }
}
