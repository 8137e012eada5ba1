//! [`RuntimeFiles`]: the files on the host that are mounted into containers: the guest's program and the system-call
//! filter.
//!
//! State: `<data>/guest/<digest>` and `<data>/guest/<digest>.json`, each written atomically once and never changed.
//! All processes with this data directory share them. A crash leaves at most an unused temporary file.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use conjure_base::Digest;
use conjure_fs::{StagedFile, ensure_dir};
use rustix::fs::Mode;

use crate::data_dir::DataDir;
use crate::docker::container::seccomp_profile;
use crate::error::SandboxError;
use crate::guest_process::{program, unavailable};

/// The files that are mounted into containers.
#[derive(Debug)]
pub(super) struct RuntimeFiles {
    pub(super) data: DataDir,
    /// The guest's program.
    pub(super) guest: PathBuf,
    /// The system-call filter, for engines that take a path.
    pub(super) seccomp: PathBuf,
}

impl RuntimeFiles {
    /// Writes the files in this data directory if they are missing. Blocks.
    pub(super) fn make(data: DataDir) -> Result<Self, SandboxError> {
        let failed = |error: io::Error| unavailable("the directory for containers cannot be used", error);
        let dir = data.path().join("guest");
        ensure_dir(&dir).map_err(failed)?;
        let guest = ensure_file(&dir, "", &program().map_err(failed)?, 0o555).map_err(failed)?;
        let filter = seccomp_profile::profile().to_string();
        let seccomp = ensure_file(&dir, ".json", filter.as_bytes(), 0o444).map_err(failed)?;
        Ok(Self { data, guest, seccomp })
    }
}

/// The path of a file with this content, named by its digest. Writes it if it is missing.
fn ensure_file(dir: &Path, suffix: &str, content: &[u8], mode: u32) -> io::Result<PathBuf> {
    let digest = Digest::of_bytes(content);
    let name = format!("{}{suffix}", digest.to_hex());
    let path = dir.join(&name);
    // A file is written again if it was truncated by a full disk, or changed.
    if fs::read(&path).is_ok_and(|found| Digest::of_bytes(&found) == digest) {
        return Ok(path);
    }
    let mut file = StagedFile::create(fs::File::open(dir)?, Mode::RUSR | Mode::WUSR)?;
    file.write_all(content)?;
    file.file().set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync()?;
    file.replace(name.as_str())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_file_is_written_once_and_mended_when_it_is_not_whole() {
        let data = DataDir::temporary().unwrap();
        let first = RuntimeFiles::make(data.clone()).unwrap();
        assert_eq!(fs::metadata(&first.guest).unwrap().permissions().mode() & 0o777, 0o555);
        let before = fs::metadata(&first.guest).unwrap().modified().unwrap();
        let second = RuntimeFiles::make(data.clone()).unwrap();
        assert_eq!(first.guest, second.guest);
        assert_eq!(fs::metadata(&second.guest).unwrap().modified().unwrap(), before);
        fs::remove_file(&first.guest).unwrap();
        fs::write(&first.guest, "half").unwrap();
        RuntimeFiles::make(data.clone()).unwrap();
        assert_eq!(fs::read(&first.guest).unwrap(), program().unwrap());
    }
}
