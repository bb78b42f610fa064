//! The web console's files: from the binary, or from a folder while they are being written.
//!
//! `/console/` is the page, asked for anew every time; everything else is below `/console/a/DIGEST/` and may be kept
//! for ever, because the digest changes with the files.

use std::path::{Component, Path, PathBuf};

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use millrace_console::{DIGEST, FILES, INDEX, kind_of};
use millrace_wire::ErrorCode;

use crate::app::SharedApp;
use crate::edge::{Edge, SharedEdge};
use crate::follower::SharedFollower;
use crate::refusal::Refusal;

/// Stands for the digest in the page.
const DIGEST_MARK: &str = "__DIGEST__";
/// The digest of files that are read anew each time.
const UNKEPT: &str = "dev";
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The page's rights: its own scripts and styles, requests to this server, and nothing else. `style-src` allows no
/// style attributes; the modules set `element.style`, which is no attribute for this rule.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const NEVER: HeaderValue = HeaderValue::from_static("no-cache");

/// Whether and from where the console is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ConsoleFiles {
    Off,
    #[default]
    BuiltIn,
    /// A copy of `web/` that is read for every request.
    Folder(PathBuf),
}

/// `/console`: without the slash, relative addresses would lead elsewhere.
pub(crate) async fn slash<S: HasEdge>(State(state): State<S>) -> Response {
    match state.edge().settings.console {
        ConsoleFiles::Off => off().into_response(),
        _ => redirect("console/"),
    }
}

pub(crate) async fn page<S: HasEdge>(State(state): State<S>) -> Response {
    let edge = state.edge();
    let digest = match edge.settings.console {
        ConsoleFiles::BuiltIn => DIGEST,
        _ => UNKEPT,
    };
    match bytes_of(&edge, INDEX).await {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes).replace(DIGEST_MARK, digest);
            served(kind_of(INDEX), NEVER, text.into_bytes())
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// `/console/a/DIGEST/FILE`. An address with another digest is one of an older page: the files of that version are
/// gone, and answering with newer ones would mix two versions in one page.
pub(crate) async fn file<S: HasEdge>(State(state): State<S>, uri: Uri) -> Response {
    let edge = state.edge();
    let path = uri.path();
    let named = path.strip_prefix("/console/a/").and_then(|rest| rest.split_once('/'));
    let Some((digest, name)) = named else { return missing(path).into_response() };
    let (expected, kept) = match edge.settings.console {
        ConsoleFiles::BuiltIn => (DIGEST, FOR_EVER),
        _ => (UNKEPT, NEVER),
    };
    if digest != expected {
        return missing(path).into_response();
    }
    match bytes_of(&edge, name).await {
        Ok(bytes) => served(kind_of(name), kept, bytes),
        Err(refusal) => refusal.into_response(),
    }
}

/// Whether a request for `/` comes from a browser that wants a page, and the console is there to show.
pub(crate) fn wants_page(edge: &Edge, headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    edge.settings.console != ConsoleFiles::Off
        && accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/html"))
}

/// Relative, so that a path in front of a proxy stays.
pub(crate) fn redirect(to: &'static str) -> Response {
    let place = (header::LOCATION, HeaderValue::from_static(to));
    (StatusCode::TEMPORARY_REDIRECT, [place, (header::CACHE_CONTROL, NEVER)]).into_response()
}

async fn bytes_of(edge: &Edge, name: &str) -> Result<Vec<u8>, Refusal> {
    match &edge.settings.console {
        ConsoleFiles::Off => Err(off()),
        ConsoleFiles::BuiltIn => {
            let file = FILES.iter().find(|file| file.path == name);
            file.map(|file| file.bytes.to_vec()).ok_or_else(|| missing(name))
        }
        ConsoleFiles::Folder(folder) => {
            let path = below(folder, name).ok_or_else(|| missing(name))?;
            let read = tokio::task::spawn_blocking(move || read_bounded(&path)).await;
            read.ok().and_then(Result::ok).ok_or_else(|| missing(name))
        }
    }
}

fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    std::fs::read(path)
}

/// A path below the folder: nothing that leads out of it.
fn below(folder: &Path, name: &str) -> Option<PathBuf> {
    let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    plain.then(|| folder.join(name))
}

fn served(kind: &'static str, kept: HeaderValue, bytes: Vec<u8>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, kept),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ];
    (headers, bytes).into_response()
}

fn missing(path: &str) -> Refusal {
    let detail = format!("the console has no file {path:.200}: open /console/ again");
    Refusal::new(ErrorCode::BadFrame, detail).status(StatusCode::NOT_FOUND)
}

fn off() -> Refusal {
    Refusal::new(ErrorCode::BadFrame, "this server has no console: it was started with --console off")
        .status(StatusCode::NOT_FOUND)
}

/// The state of a server that leads or follows: both serve the console.
pub(crate) trait HasEdge {
    fn edge(&self) -> SharedEdge;
}

impl HasEdge for SharedApp {
    fn edge(&self) -> SharedEdge {
        self.edge.clone()
    }
}

impl HasEdge for SharedFollower {
    fn edge(&self) -> SharedEdge {
        self.edge.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_of_the_folder_is_read() {
        let folder = Path::new("/srv/web");
        assert_eq!(below(folder, "pages/a.js"), Some(PathBuf::from("/srv/web/pages/a.js")));
        for name in ["../a", "/etc/passwd", "a/../../b", "./../x"] {
            assert_eq!(below(folder, name), None, "{name}");
        }
    }
}
