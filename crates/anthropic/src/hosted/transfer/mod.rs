//! Files on their way to and from the service.

pub(super) mod download;
pub(super) mod file_ids;
pub(super) mod files;
pub(super) mod media_type;
pub(super) mod metadata;
pub(super) mod multipart;
pub(super) mod session_files;
