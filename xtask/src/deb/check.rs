//! Checks a package: what it says, what it holds, what lintian and systemd think of it, and whether the program in it
//! serves.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::contents::{COMPLETIONS, CONFIG, DOCS, MAN, PROGRAM, Tree, UNIT, output, run};

pub(crate) fn run_all(package: &Path) -> Result<()> {
    let info = output(Command::new("dpkg-deb").arg("--info").arg(package))?;
    for part in ["Package: millrace", "Depends: libc6", "conffiles", "postinst"] {
        ensure!(info.contains(part), "the package does not say {part:?}:\n{info}");
    }
    check_contents(&output(Command::new("dpkg-deb").arg("--contents").arg(package))?)?;
    run(Command::new("lintian").args(["--fail-on", "error,warning"]).arg(package))?;
    let folder = package.parent().context("a package is in a folder")?.join("unpacked");
    let unpacked = Tree::new(folder)?.0;
    run(Command::new("dpkg-deb").arg("--extract").args([package, &unpacked]))?;
    check_unit(&unpacked)?;
    check_program(&unpacked)
}

fn check_contents(listing: &str) -> Result<()> {
    let files = [PROGRAM, UNIT, CONFIG].map(str::to_owned);
    let pages = ["", "-serve", "-health"].map(|name| format!("{MAN}/millrace{name}.1.gz"));
    let documents = ["copyright", "changelog.gz", "crates.txt"].map(|name| format!("{DOCS}/{name}"));
    let completions = COMPLETIONS.map(|(_, path)| path.to_owned());
    for file in files.iter().chain(&pages).chain(&documents).chain(&completions) {
        let line = listing.lines().find(|line| line.ends_with(&format!(" ./{file}")));
        let line = line.with_context(|| format!("the package has no {file}"))?;
        ensure!(line.contains(" root/root "), "the file belongs to a builder: {line}");
    }
    Ok(())
}

/// Has systemd read the unit, with the program where it was unpacked.
fn check_unit(unpacked: &Path) -> Result<()> {
    let program = unpacked.join(PROGRAM);
    let unit = fs::read_to_string(unpacked.join(UNIT))?;
    let here = unit.replace("/usr/bin/millrace", &program.display().to_string());
    ensure!(here != unit, "the unit does not start the program of the package");
    let copy = unpacked.join("millrace.service");
    fs::write(&copy, here)?;
    let read = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output()?;
    let said = String::from_utf8_lossy(&read.stderr).into_owned();
    let of_unit = said.lines().filter(|line| line.contains("millrace.service") && !is_of_old_systemd(line));
    let complaints: Vec<&str> = of_unit.collect();
    ensure!(complaints.is_empty(), "systemd complains of the unit: {complaints:#?}");
    Ok(())
}

/// The unit gives such a systemd another type in the line before.
fn is_of_old_systemd(line: &str) -> bool {
    line.contains("notify-reload")
}

/// Reads the shipped settings with the program, and serves with them, but for the places that need the service's user.
fn check_program(unpacked: &Path) -> Result<()> {
    let (program, config) = (unpacked.join(PROGRAM), unpacked.join(CONFIG));
    let shown = output(Command::new(&program).args(["config", "print", "--config"]).arg(&config))?;
    ensure!(
        shown.contains("/var/lib/millrace/millrace.db"),
        "the settings are not those of the package:\n{shown}"
    );
    let token = unpacked.join("admin-token");
    let mut server = Command::new(&program)
        .args(["serve", "--store", "memory:", "--socket", "none", "--listen", "127.0.0.1:0", "--config"])
        .arg(&config)
        .arg("--first-token")
        .arg(&token)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the program of the package")?;
    let served = check_serving(&program, &mut server);
    let stopped = Command::new("kill").arg(server.id().to_string()).status();
    let ended = server.wait()?;
    served?;
    ensure!(stopped?.success() && ended.success(), "the server did not stop as it should: {ended}");
    ensure!(token.exists(), "the first start made no token");
    Ok(())
}

fn check_serving(program: &Path, server: &mut Child) -> Result<()> {
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().context("a pipe")?).read_line(&mut line)?;
    let Some((_, rest)) = line.split_once("\"http\":\"") else { bail!("no ready line: {line:?}") };
    let url = rest.split('"').next().unwrap_or_default();
    run(Command::new(program).args(["health", "--url", url]))
}
