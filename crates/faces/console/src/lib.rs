//! The files of the web console: pages, modules and styles below `web/`, compiled into the binary.
//!
//! Data only. How they are served, with which headers, is in the crate `server` (`http/console.rs`); what they show
//! comes from the public HTTP interface, and nothing here knows it. There is nothing to build: the modules are plain
//! ES modules without dependencies, checked by TypeScript through their comments (`tests/` beside this crate).
//!
//! Start with [`FILES`].

/// A file of the console.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Below `web/`, with `/` between folders.
    pub path: &'static str,
    pub bytes: &'static [u8],
}

impl File {
    /// The media type, by the name's ending.
    pub fn kind(&self) -> &'static str {
        kind_of(self.path)
    }
}

/// Returns the media type of a file, by its name's ending.
pub fn kind_of(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// All files, by path.
pub const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Changes with any byte of any file: a part of the addresses that browsers may keep for ever.
pub const DIGEST: &str = include!(concat!(env!("OUT_DIR"), "/digest.rs"));

/// The page that the console begins with.
pub const INDEX: &str = "index.html";

#[cfg(test)]
mod tests {
    use super::*;

    /// The aim for all files together.
    const BYTES_MAX: usize = 250 * 1024;

    #[test]
    fn the_index_is_there_and_every_file_has_a_known_kind() {
        assert!(FILES.iter().any(|file| file.path == INDEX));
        for file in FILES {
            assert_ne!(file.kind(), "application/octet-stream", "{}", file.path);
            assert!(!file.bytes.is_empty(), "{}", file.path);
        }
        assert!(FILES.is_sorted_by_key(|file| file.path));
    }

    #[test]
    fn the_files_stay_small() {
        let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes");
        for file in FILES.iter().filter(|file| file.path.ends_with(".js")) {
            let lines = file.bytes.iter().filter(|byte| **byte == b'\n').count();
            assert!(lines <= 400, "{} has {lines} lines", file.path);
        }
    }

    /// The policy forbids them; a browser would only say so to the user who meets them.
    #[test]
    fn no_file_needs_what_the_policy_forbids() {
        for file in FILES {
            let text = std::str::from_utf8(file.bytes).expect("text");
            for banned in
                [".innerHTML", ".outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!text.contains(banned), "{} has {banned}", file.path);
            }
            if file.path.ends_with(".html") {
                assert!(!text.contains(" style=") && !text.contains("<style"), "{}", file.path);
                assert!(!text.contains(" onclick") && !text.contains("<script>"), "{}", file.path);
            }
        }
    }
}
