//! Where the host keeps what its containers are made of, beside their places: the guest's program, the filter of system calls.
//!
//! State: `<data>/guest/<digest>` and `<data>/guest/<digest>.json`, written whole once and never changed, shared by all hosts
//! of the folder. A crash leaves a file beside that nobody uses.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use conjure_base::Digest;
use tempfile::NamedTempFile;

use super::seccomp;
use crate::data::DataFolder;
use crate::error::SandboxError;
use crate::guest_process::{program, unavailable};

/// Where the host keeps what its containers are made of.
#[derive(Debug)]
pub(super) struct Premises {
    pub(super) data: DataFolder,
    /// The guest's program.
    pub(super) guest: PathBuf,
    /// The filter of system calls, for engines that take a path.
    pub(super) seccomp: PathBuf,
}

impl Premises {
    /// In this folder; blocks.
    pub(super) fn make(data: DataFolder) -> Result<Self, SandboxError> {
        let failed = |error: io::Error| unavailable("the folder for containers cannot be used", error);
        let folder = data.path().join("guest");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        let guest = kept(&folder, "", program(), 0o555).map_err(failed)?;
        let filter = seccomp::profile().to_string();
        let seccomp = kept(&folder, ".json", filter.as_bytes(), 0o444).map_err(failed)?;
        Ok(Self { data, guest, seccomp })
    }
}

/// The file with this content, which is written where it is missing.
fn kept(folder: &Path, suffix: &str, content: &[u8], mode: u32) -> io::Result<PathBuf> {
    let digest = Digest::of(content);
    let path = folder.join(format!("{}{suffix}", digest.to_hex()));
    // One that was cut by a full disk or changed by somebody is not taken for it.
    if fs::read(&path).is_ok_and(|found| Digest::of(&found) == digest) {
        return Ok(path);
    }
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|error| error.error)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_file_is_written_once_and_mended_when_it_is_not_whole() {
        let data = DataFolder::temporary().unwrap();
        let first = Premises::make(data.clone()).unwrap();
        assert_eq!(fs::metadata(&first.guest).unwrap().permissions().mode() & 0o777, 0o555);
        let before = fs::metadata(&first.guest).unwrap().modified().unwrap();
        let second = Premises::make(data.clone()).unwrap();
        assert_eq!(first.guest, second.guest);
        assert_eq!(fs::metadata(&second.guest).unwrap().modified().unwrap(), before);
        fs::remove_file(&first.guest).unwrap();
        fs::write(&first.guest, "half").unwrap();
        Premises::make(data.clone()).unwrap();
        assert_eq!(fs::read(&first.guest).unwrap(), program());
    }
}
