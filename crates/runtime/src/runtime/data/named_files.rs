//! Named files of a tenant: files that clients upload, and outputs of sessions.
//!
//! ```text
//! <tenant>/files/NAME    a hard link to the content in the tenant's store, or a copy where no link can be made
//! ```
//!
//! State: these links. A file appears under its name only when it is complete, and its content never changes. While the
//! name exists, the store keeps the content. An open file stays readable after its name is removed. A crash during an
//! upload leaves a temporary file in the store, which the next sweep removes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use conjure_base::Digest;
use conjure_fs::{DirHandle, ensure_dir, ignore_absent, sync_dir};
use conjure_store::{FileMode, StoreErrorKind};

use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;

/// The longest name, in bytes.
const MAX_NAME: usize = 128;

/// The directory of the tenant's files.
fn dir(home: &TenantDir) -> PathBuf {
    home.data.path().join("files")
}

/// The path of a file, if `name` can be one: letters, digits, `_`, `-`, and dots that are not the first character.
fn path_of(home: &TenantDir, name: &str) -> Result<PathBuf, RuntimeError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let path = dir(home).join(name);
    if (1..=MAX_NAME).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_plain) {
        Ok(path)
    } else {
        Err(RuntimeError::data(&path, &"it is not the name of a file"))
    }
}

/// Stores a content of the tenant's store under `name`. Fails if the name has another content already. Blocks.
pub(crate) fn keep(home: &TenantDir, name: &str, digest: &Digest) -> Result<(), RuntimeError> {
    let path = path_of(home, name)?;
    let failed = |error: &dyn std::fmt::Display| RuntimeError::data(&path, &error);
    ensure_dir(&dir(home)).map_err(|error| failed(&error))?;
    let open = DirHandle::open(&dir(home)).map_err(|error| failed(&error))?;
    match home.data.store().link_into(digest, FileMode::Plain, &open, Path::new(name)) {
        // The name is on the disk before the caller gets the result.
        Ok(_) => sync_dir(&dir(home)).map_err(|error| failed(&error)),
        Err(error) if error.kind() == StoreErrorKind::Exists => {
            let known = File::open(&path).and_then(digest_of).map_err(|error| failed(&error))?;
            if known == *digest { Ok(()) } else { Err(failed(&"another file has this name already")) }
        }
        Err(error) => Err(failed(&error)),
    }
}

fn digest_of(mut file: File) -> io::Result<Digest> {
    struct Hasher(conjure_base::DigestHasher);
    impl io::Write for Hasher {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut hasher = Hasher(conjure_base::DigestHasher::new());
    io::copy(&mut file, &mut hasher)?;
    Ok(hasher.0.finish())
}

/// The path of a file, if it exists. Blocks.
pub(crate) fn find(home: &TenantDir, name: &str) -> Result<Option<PathBuf>, RuntimeError> {
    let path = path_of(home, name)?;
    match ignore_absent(path.symlink_metadata()).map_err(|error| RuntimeError::data(&path, &error))? {
        Some(metadata) if metadata.is_file() => Ok(Some(path)),
        Some(_) => Err(RuntimeError::data(&path, &"it is not a regular file")),
        None => Ok(None),
    }
}

/// Removes a name. Returns whether it existed. Blocks.
pub(crate) fn remove(home: &TenantDir, name: &str) -> Result<bool, RuntimeError> {
    let path = path_of(home, name)?;
    let removed = ignore_absent(fs::remove_file(&path)).map_err(|error| RuntimeError::data(&path, &error))?;
    Ok(removed.is_some())
}
