//! The text of an API key: a public id that finds its row, and a secret.

use std::fmt;
use std::io;
use std::str::FromStr;

use conjure_base::{Digest, random_bits};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

/// The prefix of every key, which lets secret scanners find it.
const PREFIX: &str = "sk-conjure-";
const ID_DIGITS: usize = 32;
const SECRET_DIGITS: usize = 64;

/// The public id of an API key: `key_` and 32 lowercase hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ApiKeyId(u128);

/// Why a text is not an id of a key, or not a key. The text is not shown, since it may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeyTextError {
    /// The text is not an id.
    #[error(
        "this is not the id of a key: it must be `key_` and 32 lowercase hex digits; `conjure keys list` shows the ids"
    )]
    Id,
    /// The text is not a key.
    #[error("this is not a key of this server; `conjure keys create` makes one")]
    Key,
}

impl fmt::Display for ApiKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key_{:032x}", self.0)
    }
}

impl From<ApiKeyId> for String {
    fn from(id: ApiKeyId) -> Self {
        id.to_string()
    }
}

impl FromStr for ApiKeyId {
    type Err = ApiKeyTextError;

    fn from_str(text: &str) -> Result<Self, ApiKeyTextError> {
        let digits = text.strip_prefix("key_").and_then(|digits| hex(digits, ID_DIGITS));
        let bits = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        bits.map(Self).ok_or(ApiKeyTextError::Id)
    }
}

impl TryFrom<String> for ApiKeyId {
    type Error = ApiKeyTextError;

    fn try_from(text: String) -> Result<Self, ApiKeyTextError> {
        text.parse()
    }
}

/// An API key with its secret. `Debug` shows only the id.
#[derive(Clone)]
pub struct ApiKey {
    id: ApiKeyId,
    secret: String,
}

impl ApiKey {
    /// Creates a key with a secret of 256 random bits.
    ///
    /// # Errors
    /// If the machine has no entropy.
    pub fn random() -> io::Result<Self> {
        let secret = format!("{:032x}{:032x}", random_bits()?, random_bits()?);
        Ok(Self { id: ApiKeyId(random_bits()?), secret })
    }

    /// The public id.
    #[must_use]
    pub const fn id(&self) -> ApiKeyId {
        self.id
    }

    /// The full text, as clients send it: `sk-conjure-`, the digits of the id, `-`, the digits of the secret.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{PREFIX}{:032x}-{}", self.id.0, self.secret)
    }

    /// The stored digest of the secret. The secret has 256 random bits, so a plain hash of it cannot be guessed.
    pub(super) fn secret_digest(&self) -> Digest {
        Digest::of_bytes(self.secret.as_bytes())
    }

    /// Whether this key has the stored digest. The comparison takes constant time.
    pub(super) fn has_digest(&self, stored: &Digest) -> bool {
        self.secret_digest().to_hex().as_bytes().ct_eq(stored.to_hex().as_bytes()).into()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl FromStr for ApiKey {
    type Err = ApiKeyTextError;

    fn from_str(text: &str) -> Result<Self, ApiKeyTextError> {
        let parts = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        let (id, secret) = parts.ok_or(ApiKeyTextError::Key)?;
        let id = hex(id, ID_DIGITS).and_then(|digits| u128::from_str_radix(digits, 16).ok());
        let secret = hex(secret, SECRET_DIGITS);
        match (id, secret) {
            (Some(id), Some(secret)) => Ok(Self { id: ApiKeyId(id), secret: secret.to_owned() }),
            _ => Err(ApiKeyTextError::Key),
        }
    }
}

/// Returns the text if it consists of exactly this many lowercase hex digits.
fn hex(text: &str, digits: usize) -> Option<&str> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == digits && text.bytes().all(is_digit)).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written_and_its_secret_is_not_shown() {
        let key = ApiKey::random().unwrap();
        let read: ApiKey = key.text().parse().unwrap();
        assert_eq!(read.id(), key.id());
        assert!(read.has_digest(&key.secret_digest()));
        assert!(!ApiKey::random().unwrap().has_digest(&key.secret_digest()));
        assert!(!format!("{key:?}").contains(&key.secret));
        assert_eq!(key.id().to_string().parse(), Ok(key.id()));
    }

    proptest! {
        #[test]
        fn any_other_text_is_refused(text in ".*") {
            prop_assert_eq!(text.parse::<ApiKey>().map(|key| key.text()), Err(ApiKeyTextError::Key));
            prop_assert_eq!(text.parse::<ApiKeyId>(), Err(ApiKeyTextError::Id));
        }

        #[test]
        fn a_changed_key_is_refused_or_another(place in 0_usize..108, byte in 0_u8..128) {
            let key = ApiKey::random().unwrap();
            let mut text = key.text().into_bytes();
            prop_assert_eq!(text.len(), 108);
            let is_same = text[place] == byte;
            text[place] = byte;
            let read = String::from_utf8(text).unwrap().parse::<ApiKey>();
            let is_accepted = read.is_ok_and(|read| read.id() == key.id() && read.has_digest(&key.secret_digest()));
            prop_assert_eq!(is_accepted, is_same);
        }
    }
}
