//! The service's ids of skills, versions and files.
//!
//! An id may be any text. The client refuses an id that is unsafe in a path, before it sends a request.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$docs:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$docs])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps an id.
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
    /// The id of a skill: `skill_01AbCd…` for a custom skill, a short name (`xlsx`) for one of the service.
    SkillId,
    /// The id of a skill's version: its `version` in the beta profile (a number as text), its `id` in the current profile.
    VersionId,
    /// The id of a file: `file_011CNha8…`.
    FileId,
}
