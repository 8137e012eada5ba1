//! Writes content of a store as the archive that the guest unpacks.
//!
//! The archive ends with an end mark. If the thread dies or the content is missing, the archive is incomplete, and the
//! guest installs nothing of it.

use std::os::unix::ffi::OsStrExt as _;

use conjure_guest::protocol::{self, ArchiveHeader, ArchiveKind};
use conjure_store::{FileMode, Store, StoreError, Verify};

use super::blocking_stream::{self, ChunkSender, ReceiverClosed};
use crate::calls::executor::ContentStream;
use crate::content::{ContentItem, ItemContent};
use crate::error::{SandboxError, SandboxErrorKind};

/// The number of bytes that a file uses of the budget, in addition to its content.
const OVERHEAD: u64 = 4096;

/// The kind of archive for an item.
pub(super) const fn kind(item: &ContentItem) -> ArchiveKind {
    match item.content {
        ItemContent::File { .. } => ArchiveKind::File,
        ItemContent::Tree(_) => ArchiveKind::Dir,
    }
}

/// The number of bytes that an item uses of the budget. Blocks.
pub(super) fn size(item: &ContentItem) -> Result<u64, SandboxError> {
    let name = &item.name;
    match &item.content {
        ItemContent::File { digest, .. } => {
            let size = item.store.size(digest).map_err(|error| store_failure(name, &error))?;
            let size = size.ok_or_else(|| store_failure(name, &StoreError::NotFound { digest: *digest }))?;
            Ok(size.saturating_add(OVERHEAD))
        }
        ItemContent::Tree(tree) => Ok(tree.bytes().saturating_add(OVERHEAD * tree.files().len() as u64)),
    }
}

/// The archive of an item.
pub(super) fn write_archive(item: ContentItem) -> ContentStream {
    blocking_stream::stream(move |sender| {
        let ContentItem { name, store, content, .. } = item;
        match content {
            ItemContent::File { digest, mode } => file(sender, &store, name.as_bytes(), &digest, mode)?,
            ItemContent::Tree(tree) => tree.files().iter().try_for_each(|entry| {
                let path = entry.path().as_os_str().as_bytes();
                file(sender, &store, path, entry.digest(), entry.mode())
            })?,
        }
        sender.push(ArchiveHeader::End.encode())
    })
}

fn file(
    sender: &ChunkSender,
    store: &Store,
    path: &[u8],
    digest: &conjure_base::Digest,
    file_mode: FileMode,
) -> Result<(), ReceiverClosed> {
    let name = String::from_utf8_lossy(path);
    // The store verified the content when it was inserted.
    let content = match store.get(digest, Verify::No) {
        Ok(content) => content,
        Err(error) => return sender.failure(store_failure(&name, &error)),
    };
    let size = content.size();
    let mode = match file_mode {
        FileMode::Plain => protocol::FileMode::Plain,
        FileMode::Executable => protocol::FileMode::Executable,
    };
    sender.push(ArchiveHeader::File { path: path.to_vec(), size, mode }.encode())?;
    sender.file(content.into_file(), size, &name)
}

fn store_failure(name: &str, error: &StoreError) -> SandboxError {
    let kind = match error.kind() {
        conjure_store::StoreErrorKind::NotFound => SandboxErrorKind::NotFound,
        conjure_store::StoreErrorKind::PermissionDenied => SandboxErrorKind::PermissionDenied,
        _ => SandboxErrorKind::Io,
    };
    SandboxError::new(kind, format!("`{name}` cannot be given to the sandbox: {error}"))
}
