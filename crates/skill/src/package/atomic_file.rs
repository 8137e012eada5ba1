//! A file that appears under its name completely or not at all.
//!
//! State: a file without a name (`O_TMPFILE`). The operating system removes it when the process ends. It gets its
//! name when it is complete. A killed process can leave a file `.conjure-pack-…` in two cases: between two
//! adjacent system calls when it replaces a file, and on file systems without nameless files.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use tempfile::{Builder, NamedTempFile};

const PREFIX: &str = ".conjure-pack-";

/// All users may read a package, subject to the umask.
const OUTPUT_MODE: u32 = 0o666;

/// A file that is being written.
#[derive(Debug)]
pub(crate) enum AtomicFile {
    Unlinked(File),
    Named(NamedTempFile),
}

/// Checks that a path is a regular file or does not exist. Nothing else is replaced.
pub(crate) fn check_replaceable(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            Err(io::Error::other("a link, a device or anything else that is no plain file is not replaced"))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

impl AtomicFile {
    /// Creates a file in this folder, without a name if possible.
    pub(crate) fn create_in(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, folder, flags, Mode::from_raw_mode(OUTPUT_MODE)) {
            Ok(file) if descriptor_path(&file).exists() => Ok(Self::Unlinked(File::from(file))),
            // The file system does not support it, an old kernel mistakes the flag for another, or `/proc` is
            // missing, which is needed to link the file.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => Self::create_named(folder),
            Err(errno) => Err(errno.into()),
        }
    }

    fn create_named(folder: &Path) -> io::Result<Self> {
        let mut builder = Builder::new();
        builder.prefix(PREFIX).permissions(Permissions::from_mode(OUTPUT_MODE));
        builder.tempfile_in(folder).map(Self::Named)
    }

    /// Gives the complete file its name, which must be in its folder. A regular file of that name is replaced.
    pub(crate) fn publish(self, path: &Path) -> io::Result<()> {
        check_replaceable(path)?;
        match self {
            Self::Named(file) => {
                file.as_file().sync_all()?;
                file.persist(path)?;
            }
            Self::Unlinked(file) => {
                file.sync_all()?;
                match link(&file, path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        // A link cannot replace a file, a rename can. It needs a temporary name.
                        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                        let mut builder = Builder::new();
                        let named = builder.prefix(PREFIX);
                        let named =
                            named.make_in(folder.unwrap_or(Path::new(".")), |name| link(&file, name))?;
                        named.persist(path)?;
                    }
                    linked => linked?,
                }
            }
        }
        Ok(())
    }

    fn file(&mut self) -> &mut File {
        match self {
            Self::Unlinked(file) => file,
            Self::Named(file) => file.as_file_mut(),
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

fn descriptor_path(file: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn link(file: &File, path: &Path) -> io::Result<()> {
    let linked = rustix::fs::linkat(CWD, descriptor_path(file), CWD, path, AtFlags::SYMLINK_FOLLOW);
    linked.map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_new_or_replaced_with_a_name_or_without_before() {
        for create in [AtomicFile::create_in as fn(&Path) -> io::Result<AtomicFile>, AtomicFile::create_named]
        {
            let temp = tempfile::tempdir().unwrap();
            let path = temp.path().join("out");
            for content in ["first", "second"] {
                let mut output = create(temp.path()).unwrap();
                output.write_all(content.as_bytes()).unwrap();
                output.publish(&path).unwrap();
                assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            }
            create(temp.path()).unwrap().write_all(b"never named").unwrap();
            let left: Vec<_> = std::fs::read_dir(temp.path()).unwrap().collect();
            assert_eq!(left.len(), 1, "{left:?}");
        }
    }
}
