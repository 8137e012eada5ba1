//! The permissions of a key.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A permission of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Scope {
    /// Read: lists, objects, events and streams.
    Read,
    /// Run: sessions, their events and their files.
    Run,
    /// Administer: agents, environments, skills and vaults.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Read, Self::Run, Self::Admin];
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Admin => "admin",
        })
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|scope| scope.to_string() == text);
        known.ok_or_else(|| format!("there is no scope `{text}`; there are `read`, `run` and `admin`"))
    }
}
