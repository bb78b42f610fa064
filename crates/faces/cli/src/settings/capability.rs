//! `[[capability]]` of the file: child processes of the CQRS loop. Like tokens they have no flag and no environment
//! variable, here because each of them is a table.

use std::collections::BTreeMap;

use millrace_server::ChildSettings;
use toml::{Table, Value};

use crate::failure::Failure;
use crate::settings::SettingSource;
use crate::settings::entry::{EntryError, text};

pub(super) const KEY: &str = "capability";
const KEYS: [&str; 5] = ["name", "command", "restart", "env", "cwd"];

pub(super) fn capabilities(found: &Value, source: &SettingSource) -> Result<Vec<ChildSettings>, Failure> {
    let usage = |what: String| Failure::Usage(format!("{what} ({source})"));
    let list = found
        .as_array()
        .ok_or_else(|| usage("capability is no list of tables: write [[capability]]".into()))?;
    let mut read: Vec<ChildSettings> = Vec::with_capacity(list.len());
    for (at, entry) in list.iter().enumerate() {
        let child = capability(entry).map_err(|what| usage(format!("capability[{at}]: {what}")))?;
        if read.iter().any(|other| other.name == child.name) {
            return Err(usage(format!("capability[{at}]: the name {:?} stands above already", child.name)));
        }
        read.push(child);
    }
    Ok(read)
}

/// Reads an entry.
fn capability(entry: &Value) -> Result<ChildSettings, EntryError> {
    let table = entry.as_table().ok_or(EntryError::NoTable)?;
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let (key, known) = (key.clone(), KEYS.join(", "));
        return Err(EntryError::UnknownKey { key, what: "capability", known });
    }
    let name = text(table, "name")?.ok_or(EntryError::NoCapabilityName)?;
    if !ChildSettings::name_is_legal(name) {
        return Err(EntryError::BadCapabilityName(name.to_owned()));
    }
    let restart = match table.get("restart") {
        None => true,
        Some(value) => value.as_bool().ok_or(EntryError::BadRestart)?,
    };
    let cwd = text(table, "cwd")?.map(Into::into);
    Ok(ChildSettings { name: name.to_owned(), command: command(table)?, restart, env: env(table)?, cwd })
}

/// Reads the command: a list of words, or a line that is split into words as a shell does, without any other shell
/// syntax.
fn command(table: &Table) -> Result<Vec<String>, EntryError> {
    let words = match table.get("command") {
        None => return Err(EntryError::NoCommand),
        Some(Value::String(line)) => shlex::split(line).ok_or_else(|| EntryError::OpenQuote(line.clone()))?,
        Some(Value::Array(words)) => words
            .iter()
            .map(|word| word.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .ok_or(EntryError::WordIsNoText)?,
        Some(_) => return Err(EntryError::BadCommand),
    };
    match words.first() {
        Some(program) if !program.is_empty() && !words.iter().any(|word| word.contains('\0')) => Ok(words),
        _ => Err(EntryError::NoProgram),
    }
}

fn env(table: &Table) -> Result<BTreeMap<String, String>, EntryError> {
    let Some(env) = table.get("env") else { return Ok(BTreeMap::new()) };
    let env = env.as_table().ok_or(EntryError::EnvIsNoTable)?;
    let entry = |(name, value): (&String, &Value)| {
        let fine = !name.is_empty() && !name.contains(['=', '\0']);
        let value = value.as_str().filter(|value| fine && !value.contains('\0'));
        value
            .map(|value| (name.clone(), value.to_owned()))
            .ok_or_else(|| EntryError::BadVariable(name.clone()))
    };
    env.iter().map(entry).collect()
}

/// Describes a capability for people. Values of `env` may be secrets, so only their names are shown.
pub(crate) fn capability_line(child: &ChildSettings) -> String {
    let command = shlex::try_join(child.command.iter().map(String::as_str)).unwrap_or_default();
    let mut line = format!("name={} command={command} restart={}", child.name, child.restart);
    if let Some(cwd) = &child.cwd {
        line.push_str(&format!(" cwd={}", cwd.display()));
    }
    if !child.env.is_empty() {
        let names: Vec<&str> = child.env.keys().map(String::as_str).collect();
        line.push_str(&format!(" env={}", names.join(",")));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<ChildSettings>, String> {
        let table: Table = text.parse().unwrap();
        let read = capabilities(&table[KEY], &SettingSource::File("f".into()));
        read.map_err(|failure| failure.message().unwrap_or_default().to_owned())
    }

    #[test]
    fn a_command_is_a_list_or_a_line_of_words() {
        let text = "[[capability]]\nname = 'A'\ncommand = ['a b', 'c']\n\
                    [[capability]]\nname = 'B'\ncommand = '''x 'a b' c\\ d'''\nrestart = false\ncwd = '/srv'\n\
                    env = { SECRET = 's3cret' }";
        let [a, b] = &read(text).unwrap()[..] else { panic!("two") };
        assert_eq!((a.command.as_slice(), a.restart), (&["a b".to_owned(), "c".to_owned()][..], true));
        assert_eq!((b.command.as_slice(), b.restart), (&["x", "a b", "c d"].map(String::from)[..], false));
        assert_eq!(capability_line(a), "name=A command='a b' c restart=true");
        assert_eq!(capability_line(b), "name=B command=x 'a b' 'c d' restart=false cwd=/srv env=SECRET");
    }

    #[test]
    fn mistakes_are_named() {
        for (entry, message) in [
            ("command = 'a'", "name is missing"),
            ("name = 'a b'\ncommand = 'a'", "name is \"a b\": it must be 1 to 100 letters"),
            ("name = 'A'", "command is missing: give the program and its arguments"),
            ("name = 'A'\ncommand = ''", "command names no program"),
            ("name = 'A'\ncommand = []", "command names no program"),
            ("name = 'A'\ncommand = [1]", "command has an entry that is no text"),
            ("name = 'A'\ncommand = 1", "command is neither text nor a list"),
            ("name = 'A'\ncommand = \"a 'b\"", "a quote is not closed"),
            ("name = 'A'\ncommand = 'a'\nrestart = 1", "restart must be true or false"),
            ("name = 'A'\ncommand = 'a'\nenv = { N = 1 }", "env.N must be text"),
            ("name = 'A'\ncommand = 'a'\ncwd = 1", "cwd must be text"),
            ("name = 'A'\ncommand = 'a'\ncolour = 1", "colour is no setting of a capability"),
        ] {
            let error = read(&format!("[[capability]]\n{entry}")).unwrap_err();
            assert!(error.contains(message) && error.contains("capability[0]"), "{error}");
        }
        let twice = "[[capability]]\nname = 'A'\ncommand = 'a'\n".repeat(2);
        assert!(read(&twice).unwrap_err().contains("capability[1]: the name \"A\" stands above already"));
        assert!(read("capability = 1").is_err() && read("[capability]\nname = 'A'").is_err());
    }
}
