//! A small S3 in memory that keeps its promises, or breaks exactly one of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex};

use super::http_stub::{HttpStub, StubAnswer, StubRequest, answer};

pub(crate) const BUCKET: &str = "bucket";
/// The clock of the stub: 784,111,777,000 ms since 1970.
pub(crate) const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
pub(crate) const DATE_MS: u64 = 784_111_777_000;

/// The promise that the stub breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    IgnoresIfNoneMatch,
    IgnoresIfMatch,
    /// Compares, and writes later what it found free.
    Races,
    /// A key is not there when it is read for the first time.
    LosesReadAfterWrite,
    /// Refuses a second creation, and overwrites all the same.
    WritesWhatItRefuses,
    /// Knows no conditional requests, and says so.
    NotImplemented,
    NoEntityTags,
    /// Every request.
    SlowDown,
    Denied,
    DeniesDeleting,
    DeniesListing,
    /// Listings are empty.
    ListsNothing,
    NoBucket,
    OtherRegion,
    Hangs,
    /// Writes are done, and the connection is closed before the answer.
    LosesAnswers,
    /// Every creation is told that another one is under way.
    Conflict,
    /// The second half of every object does not come.
    HalfBodies,
}

pub(crate) struct Stub {
    pub(crate) http: HttpStub,
    objects: Arc<Mutex<Objects>>,
}

#[derive(Default)]
struct Objects {
    objects: BTreeMap<String, StoredObject>,
    requests: Vec<String>,
    generations: usize,
}

struct StoredObject {
    body: Vec<u8>,
    reads: usize,
    /// Google's number for the state of an object.
    generation: usize,
}

impl Stub {
    pub(crate) fn start(fault: Fault) -> Stub {
        let objects = Arc::new(Mutex::new(Objects::default()));
        // As many creators as a check lets race, so that all have looked before one writes.
        let creators = Arc::new(Barrier::new(8));
        let shared = Arc::clone(&objects);
        let http = HttpStub::start(move |request| respond(fault, &shared, &creators, request));
        Stub { http, objects }
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.objects.lock().unwrap().objects.keys().cloned().collect()
    }

    /// Returns the requests so far, as method and key, and forgets them.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.objects.lock().unwrap().requests)
    }
}

fn respond(fault: Fault, objects: &Mutex<Objects>, creators: &Barrier, request: &StubRequest) -> StubAnswer {
    let key =
        request.path.trim_start_matches('/').trim_start_matches(BUCKET).trim_start_matches('/').to_owned();
    let key = key.replace("%2F", "/").replace("%2D", "-");
    objects.lock().unwrap().requests.push(format!("{} {key}", request.method));
    match fault {
        Fault::SlowDown => return error(503, "SlowDown", "Please reduce your request rate."),
        Fault::Denied => return error(403, "AccessDenied", "Access Denied"),
        Fault::NoBucket => return error(404, "NoSuchBucket", "The specified bucket does not exist"),
        Fault::OtherRegion => return error(301, "PermanentRedirect", "The bucket is elsewhere."),
        Fault::Hangs => return StubAnswer::Silence,
        _ => {}
    }
    match request.method.as_str() {
        "PUT" => put(fault, objects, creators, key, request),
        "GET" if key.is_empty() && fault == Fault::DeniesListing => {
            error(403, "AccessDenied", "Access Denied")
        }
        "GET" if key.is_empty() && fault == Fault::ListsNothing => {
            answer(200, "<ListBucketResult></ListBucketResult>")
        }
        "GET" if key.is_empty() => list(objects, &request.query),
        "GET" => get(fault, objects, &key),
        "POST" => delete_many(fault, objects, &String::from_utf8_lossy(&request.body)),
        "DELETE" => match objects.lock().unwrap().objects.remove(&key) {
            Some(_) => answer(204, ""),
            None => error(404, "NoSuchKey", "The specified key does not exist."),
        },
        method => error(405, "MethodNotAllowed", method),
    }
}

fn put(
    fault: Fault,
    objects: &Mutex<Objects>,
    creators: &Barrier,
    key: String,
    request: &StubRequest,
) -> StubAnswer {
    let is_creation = request.header("if-none-match") == Some("*");
    let expected = request.header("if-match");
    if fault == Fault::NotImplemented && (is_creation || expected.is_some()) {
        return error(
            501,
            "NotImplemented",
            "A header you provided implies functionality that is not implemented",
        );
    }
    if fault == Fault::Conflict && is_creation {
        return error(409, "ConditionalRequestConflict", "Conflicting operation in progress");
    }
    if fault == Fault::Races && key.contains("-race-") {
        creators.wait();
        let generation = store(objects, key, &request.body);
        return written(fault, &request.body, generation);
    }
    let standing = objects.lock().unwrap().objects.get(&key).map(|object| tag(&object.body));
    let generation = objects.lock().unwrap().objects.get(&key).map_or(0, |object| object.generation);
    let expected_generation = request.header("x-goog-if-generation-match");
    if expected_generation.is_some_and(|expected| expected != generation.to_string()) {
        return error(
            412,
            "PreconditionFailed",
            "At least one of the pre-conditions you specified did not hold.",
        );
    }
    let is_taken = is_creation && standing.is_some() && fault != Fault::IgnoresIfNoneMatch;
    let is_stale = expected.is_some() && expected != standing.as_deref() && fault != Fault::IgnoresIfMatch;
    if is_taken && fault == Fault::WritesWhatItRefuses {
        store(objects, key.clone(), &request.body);
    }
    if is_taken || is_stale {
        return error(
            412,
            "PreconditionFailed",
            "At least one of the pre-conditions you specified did not hold",
        );
    }
    let generation = store(objects, key, &request.body);
    match fault {
        Fault::LosesAnswers => StubAnswer::Cut,
        _ => written(fault, &request.body, generation),
    }
}

/// Returns the number of the object's new state.
fn store(objects: &Mutex<Objects>, key: String, body: &[u8]) -> usize {
    let mut objects = objects.lock().unwrap();
    objects.generations += 1;
    let generation = objects.generations;
    objects.objects.insert(key, StoredObject { body: body.to_vec(), reads: 0, generation });
    generation
}

fn written(fault: Fault, body: &[u8], generation: usize) -> StubAnswer {
    let mut headers = vec![("x-goog-generation", generation.to_string())];
    if fault != Fault::NoEntityTags {
        headers.push(("etag", tag(body)));
    }
    StubAnswer::Answer { status: 200, headers, body: Vec::new() }
}

fn get(fault: Fault, objects: &Mutex<Objects>, key: &str) -> StubAnswer {
    let mut objects = objects.lock().unwrap();
    let missing = error(404, "NoSuchKey", "The specified key does not exist.");
    let Some(object) = objects.objects.get_mut(key) else { return missing };
    object.reads += 1;
    if fault == Fault::LosesReadAfterWrite && object.reads == 1 {
        return missing;
    }
    let mut headers = vec![("date", DATE.to_owned()), ("server", "Stub/1".to_owned())];
    headers.push(("x-goog-generation", object.generation.to_string()));
    headers.push(("last-modified", DATE.to_owned()));
    if fault != Fault::NoEntityTags {
        headers.push(("etag", tag(&object.body)));
    }
    let mut body = object.body.clone();
    if fault == Fault::HalfBodies {
        body.truncate(body.len() / 2);
        return StubAnswer::Short { headers, body, length: object.body.len() };
    }
    StubAnswer::Answer { status: 200, headers, body }
}

fn list(objects: &Mutex<Objects>, query: &str) -> StubAnswer {
    let query = query.replace("%2F", "/");
    let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)).unwrap_or_default();
    let (prefix, before) = (value("prefix="), value("start-after="));
    let objects = objects.lock().unwrap();
    let found = objects.objects.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > before);
    let contents: String = found
        .map(|(key, object)| {
            format!(
                "<Contents><Key>{key}</Key><LastModified>1994-11-06T08:49:37.000Z</LastModified><ETag>{}</ETag>\
                 <Size>{}</Size></Contents>",
                tag(&object.body),
                object.body.len()
            )
        })
        .collect();
    answer(200, &format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"))
}

fn delete_many(fault: Fault, objects: &Mutex<Objects>, body: &str) -> StubAnswer {
    let keys = body.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next());
    let outcome = |key: &str| {
        if fault == Fault::DeniesDeleting {
            return format!(
                "<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            );
        }
        objects.lock().unwrap().objects.remove(key);
        format!("<Deleted><Key>{key}</Key></Deleted>")
    };
    let outcomes: String = keys.map(outcome).collect();
    answer(200, &format!("<DeleteResult>{outcomes}</DeleteResult>"))
}

fn error(status: u16, code: &str, message: &str) -> StubAnswer {
    answer(status, &format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>"))
}

/// As S3 does: the same bytes have the same tag.
fn tag(body: &[u8]) -> String {
    let hash = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("\"{hash:016x}\"")
}
