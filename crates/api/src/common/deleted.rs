//! Responses to deletions.

use serde::Serialize;

/// The response to the deletion of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deleted {
    /// The id of the deleted object.
    pub id: String,
    /// The kind of the deleted object.
    pub r#type: DeletedKind,
}

/// The kind of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum DeletedKind {
    #[serde(rename = "environment_deleted")]
    Environment,
    #[serde(rename = "file_deleted")]
    File,
    #[serde(rename = "session_deleted")]
    Session,
    #[serde(rename = "session_resource_deleted")]
    SessionResource,
    #[serde(rename = "skill_deleted")]
    Skill,
    #[serde(rename = "skill_version_deleted")]
    SkillVersion,
    #[serde(rename = "vault_deleted")]
    Vault,
    #[serde(rename = "vault_credential_deleted")]
    VaultCredential,
}

impl Deleted {
    /// Creates the response to the deletion of the object with this id.
    pub fn new(kind: DeletedKind, id: impl ToString) -> Self {
        Self { id: id.to_string(), r#type: kind }
    }
}
