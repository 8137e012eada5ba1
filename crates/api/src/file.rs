//! Files: what clients upload, and what sessions produce.

use serde::{Deserialize, Serialize};

use crate::{FileId, Time};

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "file")]
pub struct FileMetadata {
    /// Which file.
    pub id: FileId,
    /// When it was uploaded or produced.
    pub created_at: Time,
    /// Whether its content may be downloaded.
    pub downloadable: Option<bool>,
    /// When its content is removed; null for never.
    pub expires_at: Option<Time>,
    /// The last component of its name.
    pub filename: String,
    /// The kind of its content.
    pub mime_type: String,
    /// What it belongs to; null for an upload.
    pub scope: Option<FileScope>,
    /// The length of its content in bytes.
    pub size_bytes: u64,
}

/// The session that a file belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "session")]
pub struct FileScope {
    /// The id of the session.
    pub id: String,
}
