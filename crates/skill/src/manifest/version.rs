//! The version of the manifest format that a manifest is written in.

use std::fmt;
use std::str::FromStr;

/// A version of the manifest format: `1.0`. A patch level is read and means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManifestVersion {
    /// Another one may mean something else by the same fields.
    pub major: u32,
    /// A later one has fields that an earlier one has not.
    pub minor: u32,
}

/// The newest version that is known here in full.
pub(super) const CURRENT: ManifestVersion = ManifestVersion { major: 1, minor: 0 };

/// A text that is no version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a version is two numbers with a dot between them, as in \"1.0\"")]
pub struct ParseManifestVersionError;

impl FromStr for ManifestVersion {
    type Err = ParseManifestVersionError;

    fn from_str(text: &str) -> Result<Self, ParseManifestVersionError> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| digits).ok_or(ParseManifestVersionError)
        };
        let mut parts = text.split('.');
        let major = number(parts.next().unwrap_or_default())?;
        let minor = parts.next().map_or(Ok(0), number)?;
        parts.next().map_or(Ok(0), number)?;
        if parts.next().is_some() { Err(ParseManifestVersionError) } else { Ok(Self { major, minor }) }
    }
}

impl fmt::Display for ManifestVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
