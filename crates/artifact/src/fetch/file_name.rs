//! The name of a fetched file: from `Content-Disposition` (RFC 6266), else from the URL; always a valid artifact name.
//!
//! Names are untrusted: only the part after the last slash counts, and characters that artifact names must not contain become `_`.

use std::borrow::Cow;

use conjure_conversation::{ArtifactName, ArtifactNameError};
use percent_encoding::percent_decode_str;

use super::web_url::WebUrl;

/// The longest header that is parsed, in bytes.
const MAX_HEADER_BYTES: usize = 4 << 10;
/// The longest extension that is kept when a name is shortened, in bytes with its dot.
const MAX_EXTENSION_BYTES: usize = 16;

/// The name of content fetched from `url` with this `Content-Disposition`.
pub(crate) fn file_name(disposition: Option<&[u8]>, url: &WebUrl) -> String {
    let by_server = disposition.and_then(name_in_header).and_then(|name| sanitize(&name));
    let segment = url.last_segment();
    let by_url = || sanitize(&percent_decoded(segment).unwrap_or_else(|| segment.to_owned()));
    let by_host = || sanitize(&url.target().host().to_string());
    by_server.or_else(by_url).or_else(by_host).unwrap_or_else(|| "download".to_owned())
}

/// The name in a `Content-Disposition`: `filename*` before `filename`.
fn name_in_header(header: &[u8]) -> Option<String> {
    if header.len() > MAX_HEADER_BYTES {
        return None;
    }
    // Servers write UTF-8 where the standard has ISO 8859-1.
    let latin = || header.iter().map(|byte| char::from(*byte)).collect();
    let text = std::str::from_utf8(header).map_or_else(|_| latin(), str::to_owned);
    let parameters = parameters(&text);
    let value = |parameter: &str| {
        let found = parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(parameter));
        found.map(|(_, value)| value.as_str())
    };
    value("filename*").and_then(decode_extended).or_else(|| value("filename").map(str::to_owned))
}

/// Parses the parameters after the type, with quotes removed. Malformed parameters are skipped.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text.split_once(';').map_or("", |(_, rest)| rest);
    while !rest.is_empty() {
        let end = rest.find([';', '=']).unwrap_or(rest.len());
        let name = rest[..end].trim().to_owned();
        rest = &rest[end..];
        let Some(after) = rest.strip_prefix('=') else {
            rest = rest.strip_prefix(';').unwrap_or_default();
            continue;
        };
        let after = after.trim_start();
        let value;
        (value, rest) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        rest = rest.split_once(';').map_or("", |(_, rest)| rest);
        found.push((name, value));
    }
    found
}

/// Parses a quoted string after its first quote. Returns it and the rest after its last quote.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, character)| character)),
            character => value.push(character),
        }
    }
    (value, "")
}

/// Decodes a value of RFC 8187: a charset, a language, and percent-encoded bytes.
fn decode_extended(value: &str) -> Option<String> {
    let mut parts = value.splitn(3, '\'');
    let (charset, _, encoded) = (parts.next()?, parts.next()?, parts.next()?);
    if charset.eq_ignore_ascii_case("utf-8") {
        percent_decoded(encoded)
    } else if charset.eq_ignore_ascii_case("iso-8859-1") {
        Some(percent_decode_str(encoded).map(char::from).collect())
    } else {
        None
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

/// The nearest valid artifact name, if there is one.
fn sanitize(name: &str) -> Option<String> {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_refused = |character| {
        matches!(ArtifactName::new(format!("a{character}a")), Err(ArtifactNameError::Character { .. }))
    };
    let name: String =
        name.trim().chars().map(|character| if is_refused(character) { '_' } else { character }).collect();
    let name = truncate(&name);
    ArtifactName::new(name.trim()).ok().map(String::from)
}

/// Shortens a name to the allowed length and keeps its extension.
fn truncate(name: &str) -> String {
    let max_len = ArtifactName::MAX_BYTES;
    if name.len() <= max_len {
        return name.to_owned();
    }
    let extension =
        name.rfind('.').map(|at| &name[at..]).filter(|extension| extension.len() <= MAX_EXTENSION_BYTES);
    let extension = extension.unwrap_or_default();
    let stem = &name[..name.floor_char_boundary(max_len - extension.len())];
    format!("{stem}{extension}")
}

#[cfg(test)]
mod tests;
