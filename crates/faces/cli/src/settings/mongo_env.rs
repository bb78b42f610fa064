//! The store in the spelling of the bus's source document: `MONGO_URL`, and `MONGO_DB` for the name of the database.

use crate::failure::Failure;
use crate::settings::sources::env;

pub(super) const URL: &str = "MONGO_URL";
const DATABASE: &str = "MONGO_DB";

/// Returns the URL of the store, if the environment names one.
pub(super) fn store() -> Result<Option<String>, Failure> {
    let Some(url) = env(URL)? else { return Ok(None) };
    Ok(Some(match env(DATABASE)? {
        Some(database) => with_database(&url, &database),
        None => url,
    }))
}

/// Puts the name of a database into a URL, instead of the one that it has.
fn with_database(url: &str, database: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let (scheme, rest) = base.split_once("://").unwrap_or(("mongodb", base));
    let hosts = rest.split('/').next().unwrap_or_default();
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{scheme}://{hosts}/{database}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_is_the_one_that_was_named() {
        for (url, wanted) in [
            ("mongodb://h", "mongodb://h/app"),
            ("mongodb://h/", "mongodb://h/app"),
            ("mongodb://u:p@a,b/other?x=1", "mongodb://u:p@a,b/app?x=1"),
            ("mongodb+srv://h?x=1", "mongodb+srv://h/app?x=1"),
        ] {
            assert_eq!(with_database(url, "app"), wanted);
        }
    }
}
