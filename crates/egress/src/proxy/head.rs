//! The heads of HTTP/1 messages: read strictly, judged, and written anew.
//!
//! A head is never passed on as it came. What two readers could understand differently is malformed: a line that does
//! not end with CR LF, folded lines, space before a colon, two lengths, a length beside an encoding, an encoding
//! other than `chunked`. What concerns one hop only is dropped (RFC 9110, section 7.6.1), and `Host`, framing and
//! `Connection` are written from what was understood. Pure.

use std::num::NonZeroU16;

use super::body::Length;
use crate::refusal::{Excerpt, Reason};
use crate::target::Target;

/// The most header fields of a head.
const MOST_FIELDS: usize = 128;
/// What concerns one hop only, and what we write ourselves.
const NOT_PASSED_ON: [&str; 13] = [
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
pub(crate) const HTTP_PORT: NonZeroU16 = NonZeroU16::new(80).unwrap();

/// Where a head ends, or what is wrong with its lines so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadEnd {
    /// Not in these bytes.
    Unknown,
    /// After this many bytes.
    At(usize),
    /// A line does not end with CR LF.
    BadLine,
}

/// Looks for the end of a head in `data`, of which the first `seen` bytes were looked at before.
pub(crate) fn find_end(data: &[u8], seen: usize) -> HeadEnd {
    let news = data.iter().enumerate().skip(seen);
    for (at, _) in news.filter(|(_, byte)| **byte == b'\n') {
        if data[..at].last() != Some(&b'\r') {
            return HeadEnd::BadLine;
        }
        if data[..at].ends_with(b"\r\n\r") {
            return HeadEnd::At(at + 1);
        }
    }
    HeadEnd::Unknown
}

/// The version of a message, of those that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http10,
    Http11,
}

/// The header fields of a message, as they came.
#[derive(Debug, Default)]
struct Fields(Vec<(String, Vec<u8>)>);

impl Fields {
    fn of(parsed: &[httparse::Header<'_>]) -> Self {
        Self(parsed.iter().map(|field| (field.name.to_owned(), field.value.to_vec())).collect())
    }

    /// The values of the fields of this name.
    fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0
            .iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_slice())
    }

    /// Writes those that are passed on.
    fn write(&self, head: &mut Vec<u8>) {
        let named: Vec<String> = self
            .all("connection")
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase())
            .collect();
        for (name, value) in &self.0 {
            let lower = name.to_ascii_lowercase();
            if !NOT_PASSED_ON.contains(&lower.as_str()) && !named.contains(&lower) {
                write_field(head, name, value);
            }
        }
    }

    /// The one `Content-Length`. Several are malformed although they agree: there is no need for them.
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

    /// Whether the body is chunked; any other encoding is malformed.
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

fn write_framing(head: &mut Vec<u8>, length: Length) {
    match length {
        Length::None | Length::UntilClose => {}
        Length::Exactly(count) => write_field(head, "Content-Length", count.to_string().as_bytes()),
        Length::Chunked => write_field(head, "Transfer-Encoding", b"chunked"),
    }
    write_field(head, "Connection", b"close");
    head.extend_from_slice(b"\r\n");
}

const fn version_of(minor: Option<u8>) -> Version {
    match minor {
        Some(0) => Version::Http10,
        _ => Version::Http11,
    }
}

/// What is wrong with a head, in words that hold no part of it.
const fn explain(error: httparse::Error) -> &'static str {
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

/// A request's head, as it came.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    /// The request target: a URL, a path, `HOST:PORT` or `*`.
    pub(crate) asked: String,
    pub(crate) version: Version,
    fields: Fields,
}

/// Whom a plain request may be for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Route<'a> {
    /// Whomever its URL names.
    ByUrl,
    /// The target of the tunnel that it came through.
    Tunnel(&'a Target),
}

impl RequestHead {
    /// Reads a whole head, its empty line included.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Reason> {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let parsed = request.parse(bytes).map_err(|error| Reason::MalformedRequest(explain(error)))?;
        let (Some(method), Some(asked), true) =
            (request.method, request.path, parsed == httparse::Status::Complete(bytes.len()))
        else {
            return Err(Reason::MalformedRequest("the first line is malformed"));
        };
        let (method, asked) = (method.to_owned(), asked.to_owned());
        Ok(Self { method, asked, version: version_of(request.version), fields: Fields::of(request.headers) })
    }

    /// The target of a `CONNECT`, which must have no body.
    pub(crate) fn connect_target(&self) -> Result<Target, Reason> {
        if self.length()? != Length::None {
            return Err(Reason::MalformedRequest("a `CONNECT` has no body"));
        }
        Target::parse(&self.asked)
            .map_err(|problem| Reason::NoTarget { asked: Excerpt::of_url(&self.asked), problem })
    }

    /// The request as it is sent on.
    pub(crate) fn forward(&self, route: Route<'_>) -> Result<Forward, Reason> {
        let (target, path) = match route {
            Route::ByUrl => self.url()?,
            Route::Tunnel(target) if self.asked.starts_with('/') => (target.clone(), self.asked.clone()),
            Route::Tunnel(target) if self.asked == "*" && self.method == "OPTIONS" => {
                (target.clone(), self.asked.clone())
            }
            Route::Tunnel(target) => match self.url()? {
                (named, path) if named == *target => (named, path),
                (named, _) => return Err(Reason::OtherHost { host: Excerpt::new(named.to_string()) }),
            },
        };
        self.check_host(&target)?;
        let length = self.length()?;
        let mut head = format!("{} {path} HTTP/1.1\r\n", self.method).into_bytes();
        let authority = match target.port() {
            80 => target.host().to_string(),
            _ => target.to_string(),
        };
        write_field(&mut head, "Host", authority.as_bytes());
        self.fields.write(&mut head);
        write_framing(&mut head, length);
        Ok(Forward { target, head, length, is_head: self.method == "HEAD", version: self.version })
    }

    /// What an absolute URL names, and the rest of it.
    fn url(&self) -> Result<(Target, String), Reason> {
        const SCHEME: &str = "http://";
        let asked = &self.asked;
        if !asked.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME)) {
            return Err(match asked.split_once("://") {
                Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                    Reason::Scheme { url: Excerpt::of_url(asked) }
                }
                _ => Reason::NoProxyRequest { asked: Excerpt::of_url(asked) },
            });
        }
        if asked.contains('#') {
            return Err(Reason::MalformedRequest("its URL has a fragment"));
        }
        let rest = &asked[SCHEME.len()..];
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let target = Target::parse_or(authority, HTTP_PORT)
            .map_err(|problem| Reason::NoTarget { asked: Excerpt::of_url(authority), problem })?;
        let path = match path {
            "" if self.method == "OPTIONS" => "*".to_owned(),
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/{path}"),
        };
        Ok((target, path))
    }

    /// `Host` and URL must name the same: a server decides by the one, we have decided by the other.
    fn check_host(&self, target: &Target) -> Result<(), Reason> {
        let mut values = self.fields.all("host");
        match (values.next(), values.next(), self.version) {
            (_, Some(_), _) => Err(Reason::MalformedRequest("it has two `Host` fields")),
            (None, _, Version::Http10) => Ok(()),
            (None, _, Version::Http11) => Err(Reason::MalformedRequest("it has no `Host` field")),
            (Some(value), None, _) => {
                let named =
                    std::str::from_utf8(value).ok().and_then(|text| Target::parse_or(text, HTTP_PORT).ok());
                if named.as_ref() == Some(target) {
                    Ok(())
                } else {
                    Err(Reason::OtherHost { host: Excerpt::new(value) })
                }
            }
        }
    }

    fn length(&self) -> Result<Length, Reason> {
        let chunked = self.fields.is_chunked().map_err(Reason::MalformedRequest)?;
        match (chunked, self.fields.content_length().map_err(Reason::MalformedRequest)?) {
            (true, Some(_)) => {
                Err(Reason::MalformedRequest("it has a `Content-Length` beside its `Transfer-Encoding`"))
            }
            (true, None) if self.version == Version::Http10 => {
                Err(Reason::MalformedRequest("HTTP/1.0 has no `Transfer-Encoding`"))
            }
            (true, None) => Ok(Length::Chunked),
            (false, Some(0)) if self.method == "CONNECT" => Ok(Length::None),
            (false, Some(count)) => Ok(Length::Exactly(count)),
            (false, None) => Ok(Length::None),
        }
    }
}

/// A request as it is sent on.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) target: Target,
    pub(crate) head: Vec<u8>,
    pub(crate) length: Length,
    /// Whether the answer has no body, whatever its head says.
    pub(crate) is_head: bool,
    /// What the client understands.
    pub(crate) version: Version,
}

/// An answer's head, as it is passed on.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: Vec<u8>,
    pub(crate) length: Length,
}

impl Answer {
    /// Reads a whole head, its empty line included, of the answer to `request`.
    pub(crate) fn parse(bytes: &[u8], request: &Forward) -> Result<Self, Reason> {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = response.parse(bytes).map_err(|error| Reason::MalformedAnswer(explain(error)))?;
        let (Some(status @ 100..), true) = (response.code, parsed == httparse::Status::Complete(bytes.len()))
        else {
            return Err(Reason::MalformedAnswer("the first line is malformed"));
        };
        let reason = response.reason.unwrap_or_default();
        let fields = Fields::of(response.headers);
        let chunked = fields.is_chunked().map_err(Reason::MalformedAnswer)?;
        let counted = fields.content_length().map_err(Reason::MalformedAnswer)?;
        let length = match (chunked, counted) {
            (true, Some(_)) => {
                return Err(Reason::MalformedAnswer(
                    "it has a `Content-Length` beside its `Transfer-Encoding`",
                ));
            }
            (true, None) => Length::Chunked,
            (false, Some(count)) => Length::Exactly(count),
            (false, None) => Length::UntilClose,
        };
        let has_no_body = request.is_head || matches!(status, 100..=199 | 204 | 304);
        let mut head = format!("HTTP/1.1 {status:03} {reason}\r\n").into_bytes();
        fields.write(&mut head);
        // An answer without a body may tell the length that the body would have had.
        let told = match (length, request.version, status) {
            (_, _, 100..=199 | 204) => Length::None,
            (Length::Chunked, _, _) if has_no_body => Length::None,
            // The client does not know the encoding: its body ends with the connection.
            (Length::Chunked, Version::Http10, _) => Length::UntilClose,
            (length, _, _) => length,
        };
        if status < 200 {
            head.extend_from_slice(b"\r\n");
        } else {
            write_framing(&mut head, told);
        }
        Ok(Self { status, head, length: if has_no_body { Length::None } else { length } })
    }
}

#[cfg(test)]
mod tests;
