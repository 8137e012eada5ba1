//! The name of a fetched file: by `Content-Disposition` (RFC 6266), else by the URL, and always fit for an artifact's name.
//!
//! Names come from strangers: of a path only what is behind the last slash counts, and what no name of an artifact may have becomes
//! `_`. It owns no state.

use conjure_conversation::{ArtifactName, ArtifactNameError};

use super::web_url::WebUrl;

/// The longest header that is read, in bytes.
const LONGEST_HEADER: usize = 4 << 10;
/// The longest extension that is kept when a name is cut, in bytes with its dot.
const LONGEST_EXTENSION: usize = 16;

/// The name of what `url` led to, whose answer had this `Content-Disposition`.
pub(crate) fn file_name(disposition: Option<&[u8]>, url: &WebUrl) -> String {
    let by_server = disposition.and_then(told).and_then(|name| fit(&name));
    let segment = url.last_segment();
    let by_url = || fit(&percent_decoded(segment).unwrap_or_else(|| segment.to_owned()));
    let by_host = || fit(&url.target().host().to_string());
    by_server.or_else(by_url).or_else(by_host).unwrap_or_else(|| "download".to_owned())
}

/// The name in a `Content-Disposition`: `filename*` before `filename`.
fn told(header: &[u8]) -> Option<String> {
    if header.len() > LONGEST_HEADER {
        return None;
    }
    // Servers write UTF-8 where the standard has ISO 8859-1.
    let latin = || header.iter().map(|byte| char::from(*byte)).collect();
    let text = std::str::from_utf8(header).map_or_else(|_| latin(), str::to_owned);
    let parameters = parameters(&text);
    let value = |wanted: &str| {
        let found = parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.as_str())
    };
    value("filename*").and_then(extended).or_else(|| value("filename").map(str::to_owned))
}

/// What lies behind the type: names and values, these without their quotes. What is no parameter is passed over.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text.split_once(';').map_or("", |(_, rest)| rest);
    while !rest.is_empty() {
        let end = rest.find([';', '=']).unwrap_or(rest.len());
        let name = rest[..end].trim().to_owned();
        rest = &rest[end..];
        let Some(behind) = rest.strip_prefix('=') else {
            rest = rest.strip_prefix(';').unwrap_or_default();
            continue;
        };
        let behind = behind.trim_start();
        let value;
        (value, rest) = match behind.strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None => {
                let end = behind.find(';').unwrap_or(behind.len());
                (behind[..end].trim().to_owned(), &behind[end..])
            }
        };
        rest = rest.split_once(';').map_or("", |(_, rest)| rest);
        found.push((name, value));
    }
    found
}

/// A quoted string from behind its first quote, and what is behind its last one.
fn unquoted(text: &str) -> (String, &str) {
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

/// A value of RFC 8187: a charset, a language, and percent-encoded bytes.
fn extended(value: &str) -> Option<String> {
    let mut parts = value.splitn(3, '\'');
    let (charset, _, encoded) = (parts.next()?, parts.next()?, parts.next()?);
    if charset.eq_ignore_ascii_case("utf-8") {
        percent_decoded(encoded)
    } else if charset.eq_ignore_ascii_case("iso-8859-1") {
        Some(percent_bytes(encoded).into_iter().map(char::from).collect())
    } else {
        None
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    String::from_utf8(percent_bytes(text)).ok()
}

/// A `%` that does not begin two hex digits stands for itself.
fn percent_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let hex = |byte: &u8| char::from(*byte).to_digit(16);
        let decoded = match behind {
            [high, low, ..] if *first == b'%' => hex(high).zip(hex(low)),
            _ => None,
        };
        match decoded.and_then(|(high, low)| u8::try_from(high << 4 | low).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[3..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    bytes
}

/// The nearest name that an artifact may have; nothing where there is none.
fn fit(name: &str) -> Option<String> {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_refused = |character| {
        matches!(ArtifactName::new(format!("a{character}a")), Err(ArtifactNameError::Character { .. }))
    };
    let name: String =
        name.trim().chars().map(|character| if is_refused(character) { '_' } else { character }).collect();
    let name = cut(&name);
    ArtifactName::new(name.trim()).ok().map(String::from)
}

/// At most as many bytes as a name may have, its extension kept.
fn cut(name: &str) -> String {
    let most = ArtifactName::MOST_BYTES;
    if name.len() <= most {
        return name.to_owned();
    }
    let extension =
        name.rfind('.').map(|at| &name[at..]).filter(|extension| extension.len() <= LONGEST_EXTENSION);
    let extension = extension.unwrap_or_default();
    let stem = &name[..name.floor_char_boundary(most - extension.len())];
    format!("{stem}{extension}")
}

#[cfg(test)]
mod tests;
