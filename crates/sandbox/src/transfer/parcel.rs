//! A content of a store as a parcel for the guest.
//!
//! Its end stands at its end: a thread that dies, or a content that is gone, makes a parcel that was cut, of which the guest
//! shows nothing.

use std::os::unix::ffi::OsStrExt as _;

use conjure_guest::protocol::{ParcelHead, ParcelKind, ParcelMode};
use conjure_store::{Store, StoreError, Variant, Verify};

use super::pieces::{self, Outlet, Unwanted};
use crate::error::{SandboxError, SandboxErrorKind};
use crate::executor::ContentStream;
use crate::provision::{Provided, Provision};

/// What a file takes of the room beside its bytes.
const OVERHEAD: u64 = 4096;

/// What it becomes.
pub(super) const fn kind(provision: &Provision) -> ParcelKind {
    match provision.content {
        Provided::File { .. } => ParcelKind::File,
        Provided::Tree(_) => ParcelKind::Folder,
    }
}

/// How much of the room it takes; blocks.
pub(super) fn size(provision: &Provision) -> Result<u64, SandboxError> {
    let name = &provision.name;
    match &provision.content {
        Provided::File { digest, .. } => {
            let size = provision.store.size(digest).map_err(|error| failed(name, &error))?;
            let size = size.ok_or_else(|| failed(name, &StoreError::Absent { digest: *digest }))?;
            Ok(size.saturating_add(OVERHEAD))
        }
        Provided::Tree(tree) => Ok(tree.bytes().saturating_add(OVERHEAD * tree.files().len() as u64)),
    }
}

/// The parcel.
pub(super) fn parcel(provision: Provision) -> ContentStream {
    pieces::stream(move |outlet| {
        let Provision { name, store, content, .. } = provision;
        match content {
            Provided::File { digest, variant } => file(outlet, &store, name.as_bytes(), &digest, variant)?,
            Provided::Tree(tree) => tree.files().iter().try_for_each(|entry| {
                let path = entry.path().as_os_str().as_bytes();
                file(outlet, &store, path, entry.digest(), entry.variant())
            })?,
        }
        outlet.push(ParcelHead::End.encode())
    })
}

fn file(
    outlet: &Outlet,
    store: &Store,
    path: &[u8],
    digest: &conjure_base::Digest,
    variant: Variant,
) -> Result<(), Unwanted> {
    let name = String::from_utf8_lossy(path);
    // Stores are read by digest, and what they have under it was whole when it got there.
    let content = match store.get(digest, Verify::No) {
        Ok(content) => content,
        Err(error) => return outlet.failure(failed(&name, &error)),
    };
    let size = content.size();
    let mode = match variant {
        Variant::Plain => ParcelMode::Plain,
        Variant::Executable => ParcelMode::Executable,
    };
    outlet.push(ParcelHead::File { path: path.to_vec(), size, mode }.encode())?;
    outlet.file(content.into_file(), size, &name)
}

fn failed(name: &str, error: &StoreError) -> SandboxError {
    let kind = match error.kind() {
        conjure_store::StoreErrorKind::NotFound => SandboxErrorKind::NotFound,
        conjure_store::StoreErrorKind::PermissionDenied => SandboxErrorKind::PermissionDenied,
        _ => SandboxErrorKind::Io,
    };
    SandboxError::new(kind, format!("`{name}` cannot be given to the sandbox: {error}"))
}
