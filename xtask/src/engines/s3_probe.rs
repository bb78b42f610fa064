//! Whether an S3 server does its work, which an open port does not say yet, and the account that tests use there.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const ANSWER_MAX: Duration = Duration::from_secs(5);
const BUCKET: &str = "/millrace-ready";

/// Returns variables with an account. The servers take any; stores on object storage take theirs from the environment.
pub(super) fn account() -> Vec<(String, String)> {
    let variables = [
        ("AWS_ACCESS_KEY_ID", "tests"),
        ("AWS_SECRET_ACCESS_KEY", "secret-of-tests"),
        ("AWS_REGION", "us-east-1"),
    ];
    variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Makes a bucket and an object in it, and removes them.
pub(super) fn stores_objects(port: u16) -> bool {
    let object = format!("{BUCKET}/object");
    // 409: an earlier look has made the bucket.
    let is_made = matches!(request(port, "PUT", BUCKET), Some(200 | 409));
    let is_stored = is_made && request(port, "PUT", &object) == Some(200);
    if is_stored {
        // Nobody minds if they stay.
        let _ = request(port, "DELETE", &object);
        let _ = request(port, "DELETE", BUCKET);
    }
    is_stored
}

/// Makes a request without a body and returns the status of the answer.
fn request(port: u16, method: &str, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(ANSWER_MAX)).ok()?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    status(&String::from_utf8_lossy(&answer))
}

fn status(answer: &str) -> Option<u16> {
    answer.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_read_from_the_first_line() {
        assert_eq!(status("HTTP/1.1 200 OK\r\n\r\n"), Some(200));
        assert_eq!(status("HTTP/1.0 409 Conflict\r\n"), Some(409));
        assert_eq!(status(""), None);
    }
}
