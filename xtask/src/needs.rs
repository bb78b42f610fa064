//! External programs that the tests need. A missing program is installed, or reported as an error; a test is never
//! skipped because a program is missing.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repo;

struct Need {
    command: &'static str,
    debian_packages: &'static [&'static str],
    purpose: &'static str,
}

const NEEDS: &[Need] = &[
    // Debian's gcc only recommends libc6-dev, but nothing compiles without it.
    Need {
        command: "cc",
        debian_packages: &["gcc", "libc6-dev"],
        purpose: "SQLite is built from its C source",
    },
    Need { command: "c++", debian_packages: &["g++"], purpose: "libFuzzer is built from its C++ source" },
    Need { command: "git", debian_packages: &["git"], purpose: "tidy asks git for the list of files" },
    Need {
        command: "node",
        debian_packages: &["nodejs"],
        purpose: "the JavaScript SDK runs on it, and an example of a capability",
    },
    Need {
        command: "openssl",
        debian_packages: &["openssl"],
        purpose: "the SDK is tested over TLS, with an authority made for it",
    },
    Need { command: "npm", debian_packages: &["npm"], purpose: "the JavaScript SDK's packages" },
    Need {
        command: "python3",
        debian_packages: &["python3"],
        purpose: "capabilities of the router in another language are tested with it",
    },
    Need {
        command: "pip3",
        debian_packages: &["python3-pip"],
        purpose: "two object stores that the tests use are installed with it",
    },
    Need {
        command: "setpriv",
        debian_packages: &["util-linux"],
        purpose: "engines for tests run with fewer rights, and end with the tests",
    },
    Need { command: "clang", debian_packages: &["clang"], purpose: "guests of sys/loop are written in C" },
    Need { command: "wasm-ld", debian_packages: &["lld"], purpose: "clang links WebAssembly with it" },
    Need {
        command: "curl",
        debian_packages: &["curl"],
        purpose: "commands that the web console prints are tried as they are printed",
    },
    Need { command: "dpkg-deb", debian_packages: &["dpkg"], purpose: "the Debian package is built with it" },
    Need { command: "gzip", debian_packages: &["gzip"], purpose: "manual pages are compressed in packages" },
    Need {
        command: "strip",
        debian_packages: &["binutils"],
        purpose: "packages leave debug information out",
    },
    Need {
        command: "lintian",
        debian_packages: &["lintian"],
        purpose: "the Debian package is checked with it",
    },
    Need {
        command: "systemd-analyze",
        debian_packages: &["systemd"],
        purpose: "the unit of the Debian package is checked with it",
    },
    Need {
        command: "chromium",
        debian_packages: &["chromium"],
        purpose: "the web console and the SDK's browser page are tested in it",
    },
];

/// The oldest Node.js that the SDK supports. Debian's own package may be older.
const NODE_MAJOR_MIN: u32 = 20;

const CARGO_SUBCOMMANDS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

pub(crate) fn ensure() -> Result<()> {
    ensure_commands(|_| true)?;
    let missing: Vec<&str> = CARGO_SUBCOMMANDS
        .iter()
        .filter(|(subcommand, _)| !repo::has_cargo_subcommand(subcommand))
        .map(|&(_, component)| component)
        .collect();
    if !missing.is_empty() {
        bail!("the toolchain lacks components: run `rustup component add {}`", missing.join(" "));
    }
    check_node(&repo::output("node", &["--version"])?)?;
    println!("{} commands and {} cargo subcommands are here", NEEDS.len(), CARGO_SUBCOMMANDS.len());
    Ok(())
}

/// Installs the commands that `is_wanted` selects and that are not on the path, or reports them as missing.
pub(crate) fn ensure_commands(is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    let missing = NEEDS.iter().filter(|need| is_wanted(need.command) && !is_on_path(need.command));
    let missing: Vec<&Need> = missing.collect();
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

fn check_node(version: &str) -> Result<()> {
    let major = version.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse().ok());
    match major {
        Some(major) if NODE_MAJOR_MIN <= major => Ok(()),
        _ => bail!("node is {}: the JavaScript SDK needs {NODE_MAJOR_MIN} or newer", version.trim()),
    }
}

fn install(missing: &[&Need]) -> Result<()> {
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.debian_packages.iter().copied()).collect();
    if !is_on_path("apt-get") || !is_root()? {
        bail!("{}", request(missing, &packages));
    }
    for need in missing {
        println!("`{}` is missing ({})", need.command, need.purpose);
    }
    apt_get(&["update"])?;
    apt_get(&[&["install", "--yes", "--no-install-recommends"], packages.as_slice()].concat())?;
    match missing.iter().find(|need| !is_on_path(need.command)) {
        Some(need) => bail!("`{}` is still missing after installing {}", need.command, packages.join(" ")),
        None => Ok(()),
    }
}

fn request(missing: &[&Need], packages: &[&str]) -> String {
    let mut text = String::from("missing commands:\n");
    for need in missing {
        text.push_str(&format!("  {} ({})\n", need.command, need.purpose));
    }
    text.push_str(&format!("on Debian: apt-get install {}", packages.join(" ")));
    text
}

fn apt_get(args: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .context("cannot start apt-get")?;
    if !status.success() {
        bail!("`apt-get {}` failed", args.join(" "));
    }
    Ok(())
}

pub(crate) fn is_root() -> Result<bool> {
    let output = Command::new("id").arg("-u").output().context("cannot start id")?;
    Ok(output.stdout.trim_ascii() == b"0")
}

fn is_on_path(command: &str) -> bool {
    find(command).is_some()
}

/// Returns where a command is.
pub(crate) fn find(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(command)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_node_is_refused() {
        assert!(check_node("v20.20.2\n").is_ok());
        assert!(check_node("v18.19.0\n").is_err());
        assert!(check_node("nonsense").is_err());
    }

    #[test]
    fn a_command_is_found_by_its_executable_and_not_by_a_plain_file() {
        assert!(is_on_path("sh"));
        assert!(!is_on_path("no-command-has-this-name"));
        assert!(!is_executable(&repo::root().join("Cargo.toml")));
    }

    #[test]
    fn the_request_names_every_command_its_purpose_and_the_packages() {
        let text = request(&[&NEEDS[0]], NEEDS[0].debian_packages);
        assert_eq!(
            text,
            "missing commands:\n  cc (SQLite is built from its C source)\non Debian: apt-get install gcc libc6-dev"
        );
    }
}
