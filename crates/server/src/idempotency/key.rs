//! The header `Idempotency-Key`: a text that the client chooses for one creation.

use axum::http::{HeaderMap, Method};
use conjure_base::Digest;

use crate::http::ApiError;

/// The name of the header.
pub(super) const HEADER: &str = "idempotency-key";

/// The longest key, in characters.
const MAX_KEY: usize = 255;

/// The text that a client chooses for one creation: 1 to 255 printable ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The key of a request; `None` if it has none.
    ///
    /// # Errors
    /// 400 for an invalid key, and for two headers.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let mut values = headers.get_all(HEADER).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(ApiError::invalid(
                "the request has more than one header `Idempotency-Key`; send one",
            ));
        }
        let is_printable = |byte: &u8| (b' '..=b'~').contains(byte);
        match value.to_str() {
            Ok(text) if (1..=MAX_KEY).contains(&text.len()) && text.as_bytes().iter().all(is_printable) => {
                Ok(Some(Self(text.to_owned())))
            }
            _ => Err(ApiError::invalid(format!(
                "the header `Idempotency-Key` must have 1 to {MAX_KEY} printable ASCII characters"
            ))),
        }
    }

    /// The id of the row for this key on this route. The same key on another path has another row.
    pub(super) fn row_id(&self, method: &Method, path: &str) -> String {
        // The separator is unambiguous: neither a method nor a path contains a space.
        Digest::of_bytes(format!("{method} {path} {}", self.0).as_bytes()).to_hex()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(values: &[&[u8]]) -> Result<Option<IdempotencyKey>, ApiError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_bytes(value).unwrap());
        }
        IdempotencyKey::from_headers(&headers)
    }

    #[test]
    fn a_key_is_printable_ascii() {
        assert_eq!(read(&[]).unwrap(), None);
        for good in [&b"a"[..], b"8e03978e-40d5-43e8-bc93-6894a57f9324", b"a b~", &[b'k'; 255]] {
            assert_eq!(read(&[good]).unwrap().unwrap().0.as_bytes(), good);
        }
        for bad in [&[&b""[..]][..], &[b"\xc3\xa4"], &[b"a\tb"], &[&[b'k'; 256]], &[b"a", b"a"]] {
            assert_eq!(read(bad).unwrap_err().status().as_u16(), 400, "{bad:?}");
        }
    }

    #[test]
    fn a_route_has_keys_of_its_own() {
        let key = read(&[b"k"]).unwrap().unwrap();
        let id = key.row_id(&Method::POST, "/v1/agents");
        assert_eq!(id, key.row_id(&Method::POST, "/v1/agents"));
        assert_ne!(id, key.row_id(&Method::POST, "/v1/environments"));
        assert_ne!(id, read(&[b"l"]).unwrap().unwrap().row_id(&Method::POST, "/v1/agents"));
    }
}
