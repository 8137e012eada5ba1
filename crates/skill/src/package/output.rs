//! A file that appears under its name whole or not at all.
//!
//! State: a file without a name, which the operating system removes with the process that writes it, whatever ends it.
//! It gets its name when it is complete. What a kill can leave behind, named `.conjure-pack-…`: where a file is
//! replaced, the new one between two adjacent system calls; on file systems that have no files without a name, all
//! that was written so far.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use tempfile::{Builder, NamedTempFile};

const PREFIX: &str = ".conjure-pack-";

/// Anyone may read a package, as far as the process's mask allows.
const OUTPUT_MODE: u32 = 0o666;

/// A file that is being written.
#[derive(Debug)]
pub(crate) enum Output {
    Nameless(File),
    Named(NamedTempFile),
}

/// Checks that a path is a plain file's, or nobody's: nothing else is replaced.
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

impl Output {
    /// A new file in this folder, without a name where that can be.
    pub(crate) fn create_in(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, folder, flags, Mode::from_raw_mode(OUTPUT_MODE)) {
            Ok(file) if descriptor_path(&file).exists() => Ok(Self::Nameless(File::from(file))),
            // The file system has none, an old kernel takes the flag for another one, or there is no `/proc` by which
            // to give it its name.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => Self::create_named(folder),
            Err(errno) => Err(errno.into()),
        }
    }

    fn create_named(folder: &Path) -> io::Result<Self> {
        let mut builder = Builder::new();
        builder.prefix(PREFIX).permissions(Permissions::from_mode(OUTPUT_MODE));
        builder.tempfile_in(folder).map(Self::Named)
    }

    /// Gives the complete file its name, which must be one in its folder. A plain file of that name is replaced.
    pub(crate) fn publish(self, path: &Path) -> io::Result<()> {
        check_replaceable(path)?;
        match self {
            Self::Named(file) => {
                file.as_file().sync_all()?;
                file.persist(path)?;
            }
            Self::Nameless(file) => {
                file.sync_all()?;
                match link(&file, path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        // A link replaces nothing; a rename does, and needs another name for that.
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
            Self::Nameless(file) => file,
            Self::Named(file) => file.as_file_mut(),
        }
    }
}

impl Write for Output {
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
        for create in [Output::create_in as fn(&Path) -> io::Result<Output>, Output::create_named] {
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
