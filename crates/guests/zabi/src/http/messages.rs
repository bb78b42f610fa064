//! The frames of `net/http`: requests of the guest, and the event that tells it of an HTTP request.

use std::net::SocketAddr;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use hyper::http::request::Parts;
use millrace_reactor::HandleNumber;
use millrace_reactor::zcl1::{FieldError, FieldReader, FieldWriter};

use super::mapped;

const OP_LISTEN: u16 = 1;
const OP_CLOSE_LISTENER: u16 = 2;
const OP_FETCH: u16 = 3;
const OP_RESPOND_START: u16 = 10;
const OP_RESPOND_INLINE: u16 = 11;
const OP_RESPOND_STREAM: u16 = 12;
const OP_MULTIPART_BEGIN: u16 = 20;
const OP_MULTIPART_END: u16 = 22;
pub(super) const OP_EV_REQUEST: u16 = 100;

const BODY_NONE: u32 = 0;
const BODY_INLINE: u32 = 1;
const BODY_STREAM: u32 = 2;
const HEADERS_MAX: u32 = 128;

/// An error reply; the text is its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpError {
    Invalid(&'static str),
    Denied(&'static str),
    Io(&'static str),
    NoEntry(&'static str),
    OutOfMemory(&'static str),
    NotSupported(&'static str),
    Internal(&'static str),
}

#[derive(Debug)]
pub(super) enum HttpRequest<'a> {
    Listen { port: u16, host: &'a str },
    CloseListener { id: u32 },
    Respond { head: ResponseHead, body: Bytes },
    RespondStream { head: ResponseHead },
}

#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The header as the guest gave it: the length of a body that a response to HEAD does not have.
    pub(super) content_length: Option<HeaderValue>,
}

impl HttpError {
    /// Returns trace and message.
    pub(super) fn texts(self) -> (&'static str, &'static str) {
        match self {
            HttpError::Invalid(message) => ("t_http_invalid", message),
            HttpError::Denied(message) => ("t_http_denied", message),
            HttpError::Io(message) => ("t_http_io", message),
            HttpError::NoEntry(message) => ("t_http_noent", message),
            HttpError::OutOfMemory(message) => ("t_http_oom", message),
            HttpError::NotSupported(message) => ("t_http_nosys", message),
            HttpError::Internal(message) => ("t_http_internal", message),
        }
    }
}

impl From<FieldError> for HttpError {
    fn from(_: FieldError) -> HttpError {
        HttpError::Invalid("bad payload")
    }
}

impl<'a> HttpRequest<'a> {
    pub(super) fn decode(op: u16, payload: &'a [u8]) -> Result<HttpRequest<'a>, HttpError> {
        let mut fields = FieldReader::new(payload);
        let request = match op {
            OP_LISTEN => {
                let port = u16::try_from(fields.u32()?).map_err(|_| HttpError::Invalid("bad port"))?;
                no_flags(fields.u32()?)?;
                HttpRequest::Listen { port, host: fields.text()? }
            }
            OP_CLOSE_LISTENER => HttpRequest::CloseListener { id: fields.u32()? },
            OP_RESPOND_START => {
                HttpRequest::Respond { head: ResponseHead::decode(&mut fields)?, body: Bytes::new() }
            }
            OP_RESPOND_INLINE => {
                let head = ResponseHead::decode(&mut fields)?;
                HttpRequest::Respond { head, body: Bytes::copy_from_slice(fields.prefixed()?) }
            }
            OP_RESPOND_STREAM => HttpRequest::RespondStream { head: ResponseHead::decode(&mut fields)? },
            OP_FETCH | OP_MULTIPART_BEGIN..=OP_MULTIPART_END => {
                return Err(HttpError::NotSupported("not supported"));
            }
            _ => return Err(HttpError::NotSupported("unknown op")),
        };
        fields.finish()?;
        Ok(request)
    }
}

impl ResponseHead {
    /// Reads `u32 code, u32 0` and the headers. The host sets the headers about the connection and the length; those of
    /// the guest are dropped.
    fn decode(fields: &mut FieldReader<'_>) -> Result<ResponseHead, HttpError> {
        let code = u16::try_from(fields.u32()?).ok().filter(|code| (200..600).contains(code));
        let status = code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or(HttpError::Invalid("bad status code"))?;
        no_flags(fields.u32()?)?;
        let count = fields.u32()?;
        if count > HEADERS_MAX {
            return Err(HttpError::Invalid("too many headers"));
        }
        let (mut headers, mut content_length) = (HeaderMap::new(), None);
        for _ in 0..count {
            let (name, value) = (fields.prefixed()?, fields.prefixed()?);
            let name = HeaderName::from_bytes(name).map_err(|_| HttpError::Invalid("bad header name"))?;
            let value = HeaderValue::from_bytes(value).map_err(|_| HttpError::Invalid("bad header value"))?;
            match name {
                CONTENT_LENGTH => content_length = Some(value),
                CONNECTION | TRANSFER_ENCODING => {}
                name => {
                    headers.append(name, value);
                }
            }
        }
        Ok(ResponseHead { status, headers, content_length })
    }
}

/// Returns the payload of EV_REQUEST without the body. Contains the flags word that the reference sends although its
/// documentation omits it.
pub(super) fn encode_request(listener: u32, peer: SocketAddr, parts: &Parts) -> Vec<u8> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let host = parts.headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let authority = parts.uri.authority().map_or(host, |authority| authority.as_str().as_bytes());
    let mut payload = Vec::with_capacity(512);
    let mut fields = FieldWriter::new(&mut payload);
    fields.u32(listener).u32(0).prefixed(parts.method.as_str().as_bytes()).prefixed(path.as_bytes());
    fields.prefixed(b"http").prefixed(authority);
    payload.extend(mapped(peer.ip()));
    let mut fields = FieldWriter::new(&mut payload);
    fields.u32(u32::from(peer.port())).u32(u32::try_from(parts.headers.len()).unwrap_or(u32::MAX));
    for (name, value) in &parts.headers {
        // Names are lower-case already.
        fields.prefixed(name.as_str().as_bytes()).prefixed(value.as_bytes());
    }
    payload
}

/// Appends a body that is sent in the event itself.
pub(super) fn encode_inline_body(payload: &mut Vec<u8>, body: &[u8]) {
    let mut fields = FieldWriter::new(payload);
    match body {
        [] => fields.u32(BODY_NONE),
        body => fields.u32(BODY_INLINE).prefixed(body),
    };
}

/// Appends the handle of a body that is a stream.
pub(super) fn encode_stream_body(payload: &mut Vec<u8>, handle: HandleNumber) {
    FieldWriter::new(payload).u32(BODY_STREAM).u32(handle.get());
}

fn no_flags(flags: u32) -> Result<(), HttpError> {
    if flags == 0 { Ok(()) } else { Err(HttpError::Invalid("flags must be 0")) }
}
