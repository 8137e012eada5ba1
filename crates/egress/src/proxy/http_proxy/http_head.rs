//! The heads of HTTP/1 messages: parsed strictly, checked, and written anew.
//!
//! A head is never forwarded as it arrived. Everything that two readers could understand differently is malformed: a line that does
//! not end with CR LF, folded lines, space before a colon, two lengths, a length beside an encoding, an encoding other than
//! `chunked`. Hop-by-hop fields are dropped (RFC 9110, section 7.6.1). `Host`, framing and `Connection` are written from the parsed
//! values. This module does no I/O.

use std::num::NonZeroU16;

use super::http_framing::{BodyLength, Version};
use crate::refusal::{EscapedExcerpt, RefusalReason};
use crate::target::Target;

/// The maximum number of header fields.
const MAX_FIELDS: usize = 128;
/// Hop-by-hop fields, and fields that we write ourselves.
const NOT_FORWARDED: [&str; 13] = [
    "connection",
    "content-length",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
pub(crate) const DEFAULT_HTTP_PORT: NonZeroU16 = NonZeroU16::new(80).unwrap();

/// The end of a head, or what is wrong with its lines so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadEnd {
    /// The head does not end in these bytes.
    Incomplete,
    /// The head ends after this many bytes.
    At(usize),
    /// A line does not end with CR LF.
    BadLine,
}

/// Searches the end of a head in `data`. The first `seen` bytes were searched before.
pub(crate) fn find_head_end(data: &[u8], seen: usize) -> HeadEnd {
    let news = data.iter().enumerate().skip(seen);
    for (at, _) in news.filter(|(_, byte)| **byte == b'\n') {
        if data[..at].last() != Some(&b'\r') {
            return HeadEnd::BadLine;
        }
        if data[..at].ends_with(b"\r\n\r") {
            return HeadEnd::At(at + 1);
        }
    }
    HeadEnd::Incomplete
}

/// The header fields of a message, as they arrived.
#[derive(Debug, Default)]
struct HeaderFields(Vec<(String, Vec<u8>)>);

impl HeaderFields {
    fn from_parsed(parsed: &[httparse::Header<'_>]) -> Self {
        Self(parsed.iter().map(|field| (field.name.to_owned(), field.value.to_vec())).collect())
    }

    /// The values of the fields of this name.
    fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0
            .iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_slice())
    }

    /// Writes the fields that are forwarded.
    fn write_forwarded(&self, head: &mut Vec<u8>) {
        let named: Vec<String> = self
            .all("connection")
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase())
            .collect();
        for (name, value) in &self.0 {
            let lower = name.to_ascii_lowercase();
            if !NOT_FORWARDED.contains(&lower.as_str()) && !named.contains(&lower) {
                write_field(head, name, value);
            }
        }
    }

    /// The single `Content-Length`. Several are malformed even if they agree, since no client needs that.
    fn content_length(&self) -> Result<Option<u64>, &'static str> {
        let mut values = self.all("content-length");
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err("it has two `Content-Length` fields");
        }
        let digits = (1..=19).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
        number.map(Some).ok_or("its `Content-Length` is no number")
    }

    /// Whether the body is chunked. Any other encoding is malformed.
    fn is_chunked(&self) -> Result<bool, &'static str> {
        let mut values = self.all("transfer-encoding");
        match (values.next(), values.next()) {
            (None, _) => Ok(false),
            (Some(value), None) if value.eq_ignore_ascii_case(b"chunked") => Ok(true),
            _ => Err("its `Transfer-Encoding` is not `chunked`"),
        }
    }
}

fn write_field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

fn write_framing(head: &mut Vec<u8>, length: BodyLength) {
    match length {
        BodyLength::None | BodyLength::UntilClose => {}
        BodyLength::Exact(count) => write_field(head, "Content-Length", count.to_string().as_bytes()),
        BodyLength::Chunked => write_field(head, "Transfer-Encoding", b"chunked"),
    }
    write_field(head, "Connection", b"close");
    head.extend_from_slice(b"\r\n");
}

const fn parse_version(minor: Option<u8>) -> Version {
    match minor {
        Some(0) => Version::Http10,
        _ => Version::Http11,
    }
}

/// Describes a parse error without quoting the head.
const fn describe_error(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "the name of a header field is malformed",
        httparse::Error::HeaderValue => "the value of a header field is malformed",
        httparse::Error::NewLine => "a line does not end with CR LF",
        httparse::Error::Status => "the status is malformed",
        httparse::Error::Token => "the first line is malformed",
        httparse::Error::TooManyHeaders => "there are more than 128 header fields",
        httparse::Error::Version => "the version is not HTTP/1.0 or HTTP/1.1",
    }
}

/// The head of a request, as it arrived.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    /// The request target: a URL, a path, `HOST:PORT` or `*`.
    pub(crate) request_target: String,
    pub(crate) version: Version,
    fields: HeaderFields,
}

/// How the target of a plain request is found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestForm<'a> {
    /// Its URL names it.
    AbsoluteUrl,
    /// It is the target of the tunnel through which the request came.
    Tunnel(&'a Target),
}

impl RequestHead {
    /// Reads a whole head, its empty line included.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, RefusalReason> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let parsed =
            request.parse(bytes).map_err(|error| RefusalReason::MalformedRequest(describe_error(error)))?;
        let (Some(method), Some(requested), true) =
            (request.method, request.path, parsed == httparse::Status::Complete(bytes.len()))
        else {
            return Err(RefusalReason::MalformedRequest("the first line is malformed"));
        };
        let (method, requested) = (method.to_owned(), requested.to_owned());
        Ok(Self {
            method,
            request_target: requested,
            version: parse_version(request.version),
            fields: HeaderFields::from_parsed(request.headers),
        })
    }

    /// The target of a `CONNECT`, which must have no body.
    pub(crate) fn connect_target(&self) -> Result<Target, RefusalReason> {
        if self.body_length()? != BodyLength::None {
            return Err(RefusalReason::MalformedRequest("a `CONNECT` has no body"));
        }
        Target::parse(&self.request_target).map_err(|problem| RefusalReason::InvalidTarget {
            requested: EscapedExcerpt::from_url(&self.request_target),
            problem,
        })
    }

    /// The request as it is sent to the server.
    pub(crate) fn forward(&self, route: RequestForm<'_>) -> Result<ForwardedRequest, RefusalReason> {
        let (target, path) = match route {
            RequestForm::AbsoluteUrl => self.parse_url()?,
            RequestForm::Tunnel(target) if self.request_target.starts_with('/') => {
                (target.clone(), self.request_target.clone())
            }
            RequestForm::Tunnel(target) if self.request_target == "*" && self.method == "OPTIONS" => {
                (target.clone(), self.request_target.clone())
            }
            RequestForm::Tunnel(target) => match self.parse_url()? {
                (named, path) if named == *target => (named, path),
                (named, _) => {
                    return Err(RefusalReason::HostMismatch { host: EscapedExcerpt::new(named.to_string()) });
                }
            },
        };
        self.check_host(&target)?;
        let length = self.body_length()?;
        let mut head = format!("{} {path} HTTP/1.1\r\n", self.method).into_bytes();
        let authority = match target.port() {
            80 => target.host().to_string(),
            _ => target.to_string(),
        };
        write_field(&mut head, "Host", authority.as_bytes());
        self.fields.write_forwarded(&mut head);
        write_framing(&mut head, length);
        Ok(ForwardedRequest { target, head, length, is_head: self.method == "HEAD", version: self.version })
    }

    /// The target of an absolute URL, and its path.
    fn parse_url(&self) -> Result<(Target, String), RefusalReason> {
        const SCHEME: &str = "http://";
        let requested = &self.request_target;
        if !requested.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME)) {
            return Err(match requested.split_once("://") {
                Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                    RefusalReason::UnsupportedScheme { url: EscapedExcerpt::from_url(requested) }
                }
                _ => RefusalReason::NotProxyRequest { requested: EscapedExcerpt::from_url(requested) },
            });
        }
        if requested.contains('#') {
            return Err(RefusalReason::MalformedRequest("its URL has a fragment"));
        }
        let rest = &requested[SCHEME.len()..];
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let target = Target::parse_with_default_port(authority, DEFAULT_HTTP_PORT).map_err(|problem| {
            RefusalReason::InvalidTarget { requested: EscapedExcerpt::from_url(authority), problem }
        })?;
        let path = match path {
            "" if self.method == "OPTIONS" => "*".to_owned(),
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/{path}"),
        };
        Ok((target, path))
    }

    /// Checks that `Host` and URL name the same target: the server decides by `Host`, and the policy was checked by
    /// the URL.
    fn check_host(&self, target: &Target) -> Result<(), RefusalReason> {
        let mut values = self.fields.all("host");
        match (values.next(), values.next(), self.version) {
            (_, Some(_), _) => Err(RefusalReason::MalformedRequest("it has two `Host` fields")),
            (None, _, Version::Http10) => Ok(()),
            (None, _, Version::Http11) => Err(RefusalReason::MalformedRequest("it has no `Host` field")),
            (Some(value), None, _) => {
                let named = std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| Target::parse_with_default_port(text, DEFAULT_HTTP_PORT).ok());
                if named.as_ref() == Some(target) {
                    Ok(())
                } else {
                    Err(RefusalReason::HostMismatch { host: EscapedExcerpt::new(value) })
                }
            }
        }
    }

    fn body_length(&self) -> Result<BodyLength, RefusalReason> {
        let chunked = self.fields.is_chunked().map_err(RefusalReason::MalformedRequest)?;
        match (chunked, self.fields.content_length().map_err(RefusalReason::MalformedRequest)?) {
            (true, Some(_)) => Err(RefusalReason::MalformedRequest(
                "it has a `Content-Length` beside its `Transfer-Encoding`",
            )),
            (true, None) if self.version == Version::Http10 => {
                Err(RefusalReason::MalformedRequest("HTTP/1.0 has no `Transfer-Encoding`"))
            }
            (true, None) => Ok(BodyLength::Chunked),
            (false, Some(0)) if self.method == "CONNECT" => Ok(BodyLength::None),
            (false, Some(count)) => Ok(BodyLength::Exact(count)),
            (false, None) => Ok(BodyLength::None),
        }
    }
}

/// A request as it is sent to the server.
#[derive(Debug)]
pub(crate) struct ForwardedRequest {
    pub(crate) target: Target,
    pub(crate) head: Vec<u8>,
    pub(crate) length: BodyLength,
    /// Whether the response has no body, whatever its head says.
    pub(crate) is_head: bool,
    /// The client's HTTP version.
    pub(crate) version: Version,
}

/// The head of a response, as it is sent to the client.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) head: Vec<u8>,
    pub(crate) length: BodyLength,
}

impl ResponseHead {
    /// Reads a whole head, its empty line included, of the answer to `request`.
    pub(crate) fn parse(bytes: &[u8], request: &ForwardedRequest) -> Result<Self, RefusalReason> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let parsed =
            response.parse(bytes).map_err(|error| RefusalReason::MalformedResponse(describe_error(error)))?;
        let (Some(status @ 100..), true) = (response.code, parsed == httparse::Status::Complete(bytes.len()))
        else {
            return Err(RefusalReason::MalformedResponse("the first line is malformed"));
        };
        let reason = response.reason.unwrap_or_default();
        let fields = HeaderFields::from_parsed(response.headers);
        let chunked = fields.is_chunked().map_err(RefusalReason::MalformedResponse)?;
        let counted = fields.content_length().map_err(RefusalReason::MalformedResponse)?;
        let length = match (chunked, counted) {
            (true, Some(_)) => {
                return Err(RefusalReason::MalformedResponse(
                    "it has a `Content-Length` beside its `Transfer-Encoding`",
                ));
            }
            (true, None) => BodyLength::Chunked,
            (false, Some(count)) => BodyLength::Exact(count),
            (false, None) => BodyLength::UntilClose,
        };
        let has_no_body = request.is_head || matches!(status, 100..=199 | 204 | 304);
        let mut head = format!("HTTP/1.1 {status:03} {reason}\r\n").into_bytes();
        fields.write_forwarded(&mut head);
        // A response without a body may still state the length that the body would have.
        let framing = match (length, request.version, status) {
            (_, _, 100..=199 | 204) => BodyLength::None,
            (BodyLength::Chunked, _, _) if has_no_body => BodyLength::None,
            // An HTTP/1.0 client does not know chunks, so its body ends with the connection.
            (BodyLength::Chunked, Version::Http10, _) => BodyLength::UntilClose,
            (length, _, _) => length,
        };
        if status < 200 {
            head.extend_from_slice(b"\r\n");
        } else {
            write_framing(&mut head, framing);
        }
        Ok(Self { status, head, length: if has_no_body { BodyLength::None } else { length } })
    }
}

#[cfg(test)]
mod tests;
