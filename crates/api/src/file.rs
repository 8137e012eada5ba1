//! Files that clients upload and files that sessions produce.

use serde::{Deserialize, Serialize};

use crate::{FileId, Time};

/// The metadata of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "file")]
pub struct FileMetadata {
    /// The id of the file.
    pub id: FileId,
    /// When it was uploaded or produced.
    pub created_at: Time,
    /// Whether its content may be downloaded.
    pub downloadable: Option<bool>,
    /// When its content will be removed; null for never.
    pub expires_at: Option<Time>,
    /// The last component of its name.
    pub filename: String,
    /// The media type of its content.
    pub mime_type: String,
    /// The session that it belongs to; null for an uploaded file.
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
