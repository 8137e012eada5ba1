//! Uploads and downloads of files, and the files of a session.

pub(super) mod download;
pub(super) mod file_ids;
pub(super) mod files;
pub(super) mod metadata;
pub(super) mod multipart;
pub(super) mod session_files;
