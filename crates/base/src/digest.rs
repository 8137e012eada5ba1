//! SHA-256 digests, which address content. Their text form is `sha256:` and 64 lowercase hex digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest. Its text form is `sha256:` and 64 lowercase hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut hasher = DigestHasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hex digits, without the `sha256:` prefix.
    #[must_use]
    pub fn to_hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.0
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 0xf])
            .map(|nibble| char::from(DIGITS[usize::from(nibble)]))
            .collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let hex = text.strip_prefix("sha256:").ok_or_else(|| DigestError(text.to_owned()))?;
        let mut bytes = [0; 32];
        if hex.len() != 64 || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(DigestError(text.to_owned()));
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            *byte = nibble(pair[0]) << 4 | nibble(pair[1]);
        }
        Ok(Self(bytes))
    }
}

/// The value of a byte that is known to be a lowercase hex digit.
const fn nibble(digit: u8) -> u8 {
    if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 }
}

/// The error of parsing a text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a digest: it must be `sha256:` and 64 lowercase hex digits")]
pub struct DigestError(String);

/// Computes the digest of content that arrives in chunks.
#[derive(Debug, Clone, Default)]
pub struct DigestHasher(Sha256);

impl DigestHasher {
    /// A hasher without content.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next chunk.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all chunks.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_empty_content_has_the_published_digest() {
        assert_eq!(
            Digest::of_bytes(b"").to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn other_texts_are_refused() {
        let short = format!("sha256:{}", "a".repeat(63));
        let upper = format!("sha256:{}", "A".repeat(64));
        let bare = "a".repeat(64);
        let accents = format!("sha256:{}", "é".repeat(32));
        for text in ["", "sha256:", &short, &upper, &bare, &accents] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_and_json_round_trip(bytes: Vec<u8>) {
            let digest = Digest::of_bytes(&bytes);
            prop_assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
            let json = serde_json::to_string(&digest).unwrap();
            prop_assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), digest);
        }

        #[test]
        fn chunks_do_not_matter(a: Vec<u8>, b: Vec<u8>) {
            let mut hasher = DigestHasher::new();
            hasher.update(&a);
            hasher.update(&b);
            prop_assert_eq!(hasher.finish(), Digest::of_bytes(&[a, b].concat()));
        }
    }
}
