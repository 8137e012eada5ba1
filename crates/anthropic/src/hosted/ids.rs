//! Names that the service gives: of skills, of their versions, of files.
//!
//! The service chose them, so each may be any text; one that cannot stand in a path is refused before anything is sent.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$docs:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$docs])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes the text as it came.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    )+};
}

ids! {
    /// Which skill: `skill_01AbCd…` of a host's own, a short name (`xlsx`) of one that the service comes with.
    SkillId,
    /// Which version of a skill. Under the beta profile its `version`, a number as text; under the current one its `id`.
    VersionId,
    /// Which file that the service keeps: `file_011CNha8…`.
    FileId,
}
