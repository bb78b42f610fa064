//! Where the password comes from, and PostgreSQL's password file: lines of `host:port:database:user:password`.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// A password file of a few lines; a larger one is some other file.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum PasswordFrom {
    Given(Vec<u8>),
    /// Read at each connecting, so that a changed password needs no restart.
    File(PathBuf),
    Nowhere,
}

impl fmt::Debug for PasswordFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PasswordFrom::Given(_) => f.write_str("Given(_)"),
            PasswordFrom::File(path) => write!(f, "File({})", path.display()),
            PasswordFrom::Nowhere => f.write_str("Nowhere"),
        }
    }
}

impl PasswordFrom {
    /// Returns the configuration with its password. The error is a sentence for people.
    pub(crate) fn put_into(&self, config: &Config) -> Result<Config, String> {
        let mut config = config.clone();
        match self {
            PasswordFrom::Given(password) => {
                config.password(password);
            }
            PasswordFrom::File(path) => {
                let password = password_for(&config, &content(path)?);
                let password = password.ok_or_else(|| {
                    let path = path.display();
                    format!("the password file {path} has no line host:port:database:user:password for this connection")
                })?;
                config.password(password);
            }
            PasswordFrom::Nowhere => {}
        }
        Ok(config)
    }
}

fn content(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot read the password file {}: {error}", path.display());
    let file = File::open(path).map_err(failed)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = file.metadata().map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            let path = path.display();
            return Err(format!(
                "the password file {path} can be read by other users: take that right away (chmod 600)"
            ));
        }
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Returns the password of the first line that fits. `*` fits everything; `\` keeps the next character as it is.
fn password_for(config: &Config, text: &str) -> Option<String> {
    let host = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        (Some(_), _) => "localhost".to_owned(),
        (None, address) => address?.to_string(),
    };
    let port = config.get_ports().first().unwrap_or(&5432).to_string();
    let user = config.get_user().unwrap_or_default();
    let wanted = [&host, &port, config.get_dbname().unwrap_or(user), user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let (password, names) = fields.split_last().filter(|(_, names)| names.len() == wanted.len())?;
        let fits = names.iter().zip(wanted).all(|(name, wanted)| name == "*" || name == wanted);
        fits.then(|| password.clone())
    })
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' if fields.len() < 5 => fields.push(String::new()),
            character => {
                let kept = if character == '\\' { characters.next() } else { Some(character) };
                fields.last_mut().into_iter().for_each(|field| field.extend(kept));
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(url: &str, text: &str) -> Option<String> {
        password_for(&url.parse().unwrap(), text)
    }

    #[test]
    fn the_first_line_that_fits_is_taken() {
        let text = "# host:5432:shop:ann:no\nother:5432:shop:ann:no\nhost:*:shop:ann:yes:with:colons\n*:*:*:*:later\n";
        assert_eq!(found("postgres://ann@host/shop", text).as_deref(), Some("yes:with:colons"));
        assert_eq!(found("postgres://ann@host", text).as_deref(), Some("later"));
        assert_eq!(found("postgres://ann@host/shop", "host:5433:shop:ann:x\nbroken line\n"), None);
    }

    #[test]
    fn a_backslash_keeps_the_next_character() {
        assert_eq!(found("postgres://an%3An@h/d", "h:5432:d:an\\:n:a\\\\b\\:c").as_deref(), Some("a\\b:c"));
    }

    #[test]
    fn a_missing_file_or_one_for_everybody_is_an_error_and_shows_no_password() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pass");
        let config: Config = "postgres://ann@host/shop".parse().unwrap();
        let from = PasswordFrom::File(path.clone());
        assert!(from.put_into(&config).unwrap_err().contains("cannot read"));
        std::fs::write(&path, "host:5432:shop:bob:secret\n").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
            assert!(from.put_into(&config).unwrap_err().contains("chmod 600"));
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let error = from.put_into(&config).unwrap_err();
        assert!(error.contains("no line") && !error.contains("secret"), "{error}");
        std::fs::write(&path, "*:*:*:ann:secret\n").unwrap();
        assert_eq!(from.put_into(&config).unwrap().get_password(), Some(&b"secret"[..]));
    }
}
