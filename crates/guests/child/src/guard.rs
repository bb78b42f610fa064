//! Children that end with the server however it ends.
//!
//! The end of its stdin tells a child to end, but a child that ignores this would live on after a `kill -9` of the
//! server. Linux kills a process when its parent dies if the process has asked for it. The process must ask itself,
//! between fork and exec, where no safe code of ours can run. So a child is started through a program of ours that asks
//! and then becomes the child: [`Guard`] says how that program is started, [`become_guarded`] is what it does.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The start of the line that the program writes instead of a manifest when it cannot become the child; the error
/// number follows.
const CANNOT: &str = "millrace-guard: cannot become the child: ";

/// How the guarding program is started: a command that ends in a call of [`become_guarded`]. `--parent PID --
/// COMMAND...` is added to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl Guard {
    /// Starts this program itself with these arguments, also when its file was replaced or removed meanwhile. `None`
    /// where that is not possible or of no use: on other systems than Linux.
    pub fn this_program(args: impl IntoIterator<Item = impl Into<OsString>>) -> Option<Guard> {
        let program = PathBuf::from("/proc/self/exe");
        let can = cfg!(target_os = "linux") && program.exists();
        can.then(|| Guard { program, args: args.into_iter().map(Into::into).collect() })
    }

    /// The command that becomes `command`.
    pub(crate) fn wrap(&self, command: &[String]) -> Command {
        let mut guarded = Command::new(&self.program);
        guarded.args(&self.args).arg("--parent").arg(std::process::id().to_string()).arg("--").args(command);
        guarded
    }
}

/// Makes this process the command, to be killed when `parent` ends. Returns only on failure, after it has reported the
/// error to the server.
pub fn become_guarded(parent: u32, command: &[OsString]) -> io::Error {
    let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    let error = match tie_to(parent) {
        Ok(()) => Command::new(program).args(command.iter().skip(1)).exec(),
        Err(error) => error,
    };
    let code = error.raw_os_error().unwrap_or(0);
    // An error means that nobody reads the line: then nobody needs it.
    let _ = writeln!(io::stdout(), "{CANNOT}{code}");
    error
}

/// Asks to be killed with the parent, then checks that the server still is the parent: had it ended before, the request
/// would have no effect.
#[cfg(target_os = "linux")]
fn tie_to(parent: u32) -> io::Result<()> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let is_there = getppid().is_some_and(|id| u32::try_from(id.as_raw_pid()) == Ok(parent));
    is_there.then_some(()).ok_or_else(|| io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()))
}

#[cfg(not(target_os = "linux"))]
fn tie_to(_: u32) -> io::Result<()> {
    Ok(())
}

/// Why the program could not become the child, if its first line says so.
pub(crate) fn failure(line: &[u8]) -> Option<io::Error> {
    let code = std::str::from_utf8(line).ok()?.strip_prefix(CANNOT)?;
    Some(match code.trim_end().parse() {
        Ok(0) | Err(_) => io::Error::other("the program cannot be started"),
        Ok(code) => io::Error::from_raw_os_error(code),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guard_says_is_told_from_a_manifest() {
        assert_eq!(failure(format!("{CANNOT}2").as_bytes()).unwrap().raw_os_error(), Some(2));
        assert!(failure(format!("{CANNOT}x").as_bytes()).is_some());
        assert!(failure(br#"{"name":"A","inbound":[]}"#).is_none());
        assert!(failure(b"\xff").is_none());
    }
}
