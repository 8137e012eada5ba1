//! Newtypes of ids, so that an id of one kind cannot be passed for another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

/// The prefix of a session's id where people and APIs see it.
const PREFIX: &str = "sesn_";

/// The prefix of a session's id where it is stored.
const STORED_PREFIX: &str = "ses_";

/// The error of parsing a text that is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {kind}: {rule}")]
pub struct IdError {
    kind: &'static str,
    text: String,
    rule: &'static str,
}

/// Id of a tenant, who owns sessions: 1 to 64 of `a-z`, `0-9`, `-`, `_`. It becomes the name of a directory, so other
/// characters are refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TenantId(String);

impl TenantId {
    /// Checks `text` and makes a tenant's id of it.
    ///
    /// # Errors
    /// When `text` is empty, longer than 64 bytes, or contains another character.
    pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
        let text = text.into();
        let fits = (1..=64).contains(&text.len())
            && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
        if fits {
            Ok(Self(text))
        } else {
            Err(IdError { kind: "tenant id", text, rule: "it must be 1 to 64 of a-z, 0-9, `-` and `_`" })
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Id of a session: 128 random bits, so that it can be neither guessed nor chosen.
///
/// People and APIs see it as `sesn_` and 32 lowercase hex digits. Disks and databases have it as
/// [`SessionId::stored_name`], `ses_` and the same digits. Parsing accepts both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SessionId(u128);

impl SessionId {
    /// A new id from the machine's entropy.
    ///
    /// # Errors
    /// When the machine gives no entropy.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(std::io::Error::from)?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }

    /// The id with these bits, for journals that read one back and for tests.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The form of the id in everything that is stored: `ses_` and 32 lowercase hex digits.
    ///
    /// Directories and files of a session have this name, recorded events contain it, and the journal's checksums are
    /// computed over it. It never changes, so that journals and data directories of all versions stay readable.
    #[must_use]
    pub fn stored_name(self) -> String {
        format!("{STORED_PREFIX}{:032x}", self.0)
    }

    /// Serializes the id as [`SessionId::stored_name`], for `#[serde(serialize_with = …)]` in stored types.
    ///
    /// # Errors
    /// When the serializer fails.
    pub fn serialize_stored<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.stored_name())
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:032x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for SessionId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        text.strip_prefix(PREFIX)
            .or_else(|| text.strip_prefix(STORED_PREFIX))
            .filter(|hex| hex.len() == 32 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
            .and_then(|hex| u128::from_str_radix(hex, 16).ok())
            .map(Self)
            .ok_or_else(|| IdError {
                kind: "session id",
                text: text.to_owned(),
                rule: "it must be `sesn_` and 32 lowercase hex digits",
            })
    }
}

/// Id of a turn within its session. Turns are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TurnId(u64);

impl TurnId {
    /// The first turn of a session.
    pub const FIRST: Self = Self(1);

    /// The turn after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The number of the turn, from 1.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Id of a tool call: the `id` of a `tool_use` block. The model's service chooses it, so it may be any text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(String);

impl CallId {
    /// The id with this text, unchecked.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Id of a container of the model's service, in which the service runs its own tools. The service chooses it, so it
/// may be any text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(String);

impl ContainerId {
    /// The id with this text, unchecked.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text_id {
    ($($id:ty),+) => {$(
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    )+};
}
text_id!(TenantId, TurnId, CallId, ContainerId);

macro_rules! checked_text {
    ($id:ty, $parse:expr) => {
        impl From<$id> for String {
            fn from(id: $id) -> Self {
                id.to_string()
            }
        }

        impl TryFrom<String> for $id {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                $parse(text)
            }
        }
    };
}
checked_text!(TenantId, TenantId::new);
checked_text!(SessionId, |text: String| text.parse());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_id_is_a_safe_directory_name() {
        assert_eq!(TenantId::new("acme-2_b").unwrap().as_str(), "acme-2_b");
        for text in ["", "..", "A", "a/b", "a b", "ä", &"a".repeat(65)] {
            assert!(TenantId::new(text).is_err(), "{text}");
        }
    }

    #[test]
    fn session_ids_round_trip_and_differ() {
        let (a, b) = (SessionId::random().unwrap(), SessionId::random().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.to_string().parse::<SessionId>().unwrap(), a);
        for text in [
            "",
            "sesn_",
            "ses_0",
            &a.to_string().to_uppercase(),
            &format!("{a}0"),
            "sesn_+0000000000000000000000000000000",
            "ses_+0000000000000000000000000000000",
            &a.to_string()[5..],
        ] {
            assert!(text.parse::<SessionId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_session_id_has_one_form_for_people_and_one_for_storage() {
        #[derive(Serialize, Deserialize)]
        struct Stored {
            #[serde(serialize_with = "SessionId::serialize_stored")]
            session: SessionId,
        }
        let id = SessionId::from_bits(0x1f);
        assert_eq!(id.to_string(), "sesn_0000000000000000000000000000001f");
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"sesn_0000000000000000000000000000001f\"");
        assert_eq!(id.stored_name(), "ses_0000000000000000000000000000001f");
        let stored = serde_json::to_string(&Stored { session: id }).unwrap();
        assert_eq!(stored, r#"{"session":"ses_0000000000000000000000000000001f"}"#);
        assert_eq!(serde_json::from_str::<Stored>(&stored).unwrap().session, id);
        assert_eq!(id.stored_name().parse::<SessionId>().unwrap(), id);
    }

    #[test]
    fn json_refuses_what_the_constructor_refuses() {
        assert!(serde_json::from_str::<TenantId>("\"a/b\"").is_err());
        assert!(serde_json::from_str::<SessionId>("\"ses_1\"").is_err());
        assert_eq!(serde_json::to_string(&TurnId::FIRST.next()).unwrap(), "2");
    }
}
