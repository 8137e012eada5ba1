//! The ids of the API's objects, one type for each kind.

use std::fmt;
use std::io;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The error for a text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not the id of {kind}: it must be `{prefix}` and 32 lowercase hex digits")]
pub struct ApiIdError {
    kind: &'static str,
    prefix: &'static str,
    text: String,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal, $kind:literal;)+) => {$(
        $(#[$doc])*
        ///
        #[doc = concat!("128 random bits, written as `", $prefix, "` and 32 lowercase hex digits.")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(u128);

        impl $name {
            /// Creates a new id from the machine's entropy.
            ///
            /// # Errors
            /// If the machine returns no entropy.
            pub fn random() -> io::Result<Self> {
                conjure_base::random_bits().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{:032x}", $prefix, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = ApiIdError;

            fn try_from(text: String) -> Result<Self, ApiIdError> {
                text.parse()
            }
        }

        impl FromStr for $name {
            type Err = ApiIdError;

            fn from_str(text: &str) -> Result<Self, ApiIdError> {
                bits(text, $prefix)
                    .map(Self)
                    .ok_or_else(|| ApiIdError { kind: $kind, prefix: $prefix, text: text.to_owned() })
            }
        }
    )+};
}

ids! {
    /// Id of an agent.
    AgentId, "agent_", "an agent";
    /// Id of an environment.
    EnvironmentId, "env_", "an environment";
    /// Id of a file.
    FileId, "file_", "a file";
    /// Id of a skill that a client uploaded.
    SkillId, "skill_", "a skill";
    /// Id of a message of a model.
    MessageId, "msg_", "a message";
    /// Id of one version of a skill.
    SkillVersionId, "skillver_", "a version of a skill";
    /// Id of a resource of a session.
    ResourceId, "sesrsc_", "a resource of a session";
    /// Id of a vault.
    VaultId, "vlt_", "a vault";
    /// Id of a credential in a vault.
    CredentialId, "vcrd_", "a credential";
    /// Id of a request, for logs and errors.
    RequestId, "req_", "a request";
}

/// Parses the bits of an id. The text must be exactly the prefix and 32 lowercase hex digits.
fn bits(text: &str, prefix: &str) -> Option<u128> {
    let hex = text.strip_prefix(prefix)?;
    let is_hex = hex.len() == 32 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_hex { u128::from_str_radix(hex, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_have_one_form() {
        let id = AgentId::random().unwrap();
        assert_eq!(id.to_string().parse::<AgentId>().unwrap(), id);
        assert_eq!(EnvironmentId(1).to_string(), "env_00000000000000000000000000000001");
        for text in
            ["", "agent_", "agent_1", "env_00000000000000000000000000000001", &id.to_string().to_uppercase()]
        {
            assert!(text.parse::<AgentId>().is_err(), "{text}");
        }
        let error = "x".parse::<FileId>().unwrap_err().to_string();
        assert_eq!(error, "`x` is not the id of a file: it must be `file_` and 32 lowercase hex digits");
    }
}
