//! The meaning of an answer other than success: the object is missing, the condition is not met, the request may have
//! happened, or it never will.

use crate::provider::{Provider, RequestKind};

/// Longer messages of a server are cut: they are for a line of a log.
const MESSAGE_CHARS_MAX: usize = 200;

/// An answer other than success: the status, and the code and message that object storage puts into the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No such object.
    Missing,
    /// The condition of the request is not met: the key is taken, or the version is another one.
    ConditionUnmet,
    /// The request may or may not have happened, or may work later.
    Unknown,
    /// The request did not happen and never will.
    Refused,
}

impl Answer {
    pub(crate) fn new(status: u16, code_header: Option<&str>, body: &str) -> Answer {
        let code = element(body, "Code").or_else(|| code_header.map(str::to_owned)).unwrap_or_default();
        let message = element(body, "Message").unwrap_or_default();
        // Azure adds lines with the number of the request.
        let message = message.lines().next().unwrap_or_default().chars().take(MESSAGE_CHARS_MAX).collect();
        Answer { status, code, message }
    }

    /// Codes come first: S3 uses 400 and 403 both for what passes and for what does not.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.code.as_str() {
            "NoSuchBucket" | "ContainerNotFound" | "ContainerDisabled" | "InvalidBucketName" => {
                return Verdict::Refused;
            }
            "NoSuchKey" | "BlobNotFound" => return Verdict::Missing,
            "PreconditionFailed" | "ConditionNotMet" | "BlobAlreadyExists" => return Verdict::ConditionUnmet,
            "SlowDown"
            | "ServerBusy"
            | "ServiceUnavailable"
            | "InternalError"
            | "OperationTimedOut"
            | "RequestTimeout"
            | "RequestLimitExceeded"
            | "TooManyRequests"
            | "ConditionalRequestConflict"
            | "OperationAborted"
            | "IncompleteBody"
            | "BadDigest"
            | "XAmzContentSHA256Mismatch"
            | "Md5Mismatch" => {
                return Verdict::Unknown;
            }
            _ => {}
        }
        match self.status {
            404 | 410 => Verdict::Missing,
            412 | 304 => Verdict::ConditionUnmet,
            // Another request with the same key is under way, and may fail.
            409 => Verdict::Unknown,
            408 | 425 | 429 => Verdict::Unknown,
            501 | 505 => Verdict::Refused,
            500.. => Verdict::Unknown,
            _ => Verdict::Refused,
        }
    }

    /// Returns what an operator should do, if that is known.
    pub(crate) fn advice(&self, provider: Provider, request: RequestKind) -> Option<String> {
        let advice = match (self.code.as_str(), self.status) {
            ("NoSuchBucket" | "ContainerNotFound", _) => {
                "create the bucket first, or correct its name".to_owned()
            }
            ("RequestTimeTooSkewed", _) => "set the clock of this machine".to_owned(),
            ("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "AuthenticationFailed", _) => {
                "correct the credentials in the environment".to_owned()
            }
            ("ExpiredToken" | "TokenRefreshRequired" | "InvalidToken", _) => {
                "the session token is not valid any more: start with a new one, or with a role".to_owned()
            }
            ("AuthorizationHeaderMalformed" | "PermanentRedirect" | "TemporaryRedirect", _)
            | (_, 300..=399) => {
                "the bucket is in another region or at another endpoint: set ?region= or ?endpoint="
                    .to_owned()
            }
            (_, 401) => "correct the credentials in the environment".to_owned(),
            ("AccessDenied", _) | (_, 403) => {
                format!("the right that is missing: {}", provider.right(request))
            }
            _ => return None,
        };
        Some(advice)
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.status)?;
        if !self.code.is_empty() {
            write!(f, " {}", self.code)?;
        }
        if !self.message.is_empty() {
            write!(f, " ({})", self.message.trim_end_matches('.'))?;
        }
        Ok(())
    }
}

/// Returns the text of the first XML element of a name. Errors of object storage are so simple that a parser would only
/// add ways to fail.
fn element(body: &str, name: &str) -> Option<String> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#39;", "'"), ("&amp;", "&")];
    Some(entities.iter().fold(text.trim().to_owned(), |text, (entity, plain)| text.replace(entity, plain)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(status: u16, code: &str) -> Verdict {
        Answer::new(status, None, &format!("<Error><Code>{code}</Code></Error>")).verdict()
    }

    #[test]
    fn verdicts_follow_the_code_and_then_the_status() {
        for (status, code, expected) in [
            (404, "NoSuchKey", Verdict::Missing),
            (404, "", Verdict::Missing),
            (404, "NoSuchBucket", Verdict::Refused),
            (404, "ContainerNotFound", Verdict::Refused),
            (412, "PreconditionFailed", Verdict::ConditionUnmet),
            (412, "", Verdict::ConditionUnmet),
            (409, "BlobAlreadyExists", Verdict::ConditionUnmet),
            (409, "ConditionalRequestConflict", Verdict::Unknown),
            (409, "OperationAborted", Verdict::Unknown),
            (503, "SlowDown", Verdict::Unknown),
            (500, "InternalError", Verdict::Unknown),
            (502, "", Verdict::Unknown),
            (400, "RequestTimeout", Verdict::Unknown),
            (400, "ExpiredToken", Verdict::Refused),
            (429, "", Verdict::Unknown),
            (403, "AccessDenied", Verdict::Refused),
            (401, "", Verdict::Refused),
            (301, "PermanentRedirect", Verdict::Refused),
            (501, "NotImplemented", Verdict::Refused),
        ] {
            assert_eq!(verdict(status, code), expected, "{status} {code}");
        }
    }

    #[test]
    fn code_and_message_come_from_the_body_or_the_header() {
        let body =
            "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>a &amp; b.</Message></Error>";
        let answer = Answer::new(403, None, body);
        assert_eq!(answer.to_string(), "403 AccessDenied (a & b)");
        let advice = answer.advice(Provider::S3, RequestKind::Delete).unwrap();
        assert!(advice.contains("s3:DeleteObject"), "{advice}");
        assert_eq!(Answer::new(404, Some("BlobNotFound"), "").to_string(), "404 BlobNotFound");
        let long = format!("<Message>{}</Message>", "m".repeat(10_000));
        assert_eq!(Answer::new(500, None, &long).message.len(), MESSAGE_CHARS_MAX);
    }
}
