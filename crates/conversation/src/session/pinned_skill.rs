//! [`PinnedSkill`]: a skill of a session, as it was when the session was opened.

use conjure_base::Digest;
use serde::{Deserialize, Serialize};

/// A skill with a fixed content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedSkill {
    /// Its name.
    pub name: String,
    /// The digest of the skill as it was when the session was opened.
    pub digest: Digest,
}
