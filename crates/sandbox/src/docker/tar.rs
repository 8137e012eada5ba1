//! [`TarWriter`]: writes a small tar archive in memory: a build context, or the files of a volume.

/// The size of a block of an archive, in bytes.
const BLOCK: usize = 512;

/// An archive under construction (POSIX.1-1988 ustar). Entries have no time, so equal files give equal archives.
#[derive(Debug, Default)]
pub(super) struct TarWriter {
    bytes: Vec<u8>,
}

impl TarWriter {
    /// Adds a file of root with mode 0644. The path must be relative and have at most 100 bytes.
    pub(super) fn file(self, path: &str, content: &[u8]) -> Self {
        self.file_with_mode(path, content, 0o644)
    }

    /// Adds a file of root with this mode.
    pub(super) fn file_with_mode(self, path: &str, content: &[u8], mode: u32) -> Self {
        self.entry(path, b"0", (0, 0), mode, content)
    }

    /// Adds a directory of this user and group.
    pub(super) fn dir(self, path: &str, owner: (u32, u32), mode: u32) -> Self {
        self.entry(path, b"5", owner, mode, &[])
    }

    fn entry(mut self, path: &str, kind: &[u8], owner: (u32, u32), mode: u32, content: &[u8]) -> Self {
        let mut header = [0; BLOCK];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, path.as_bytes().get(..path.len().min(100)).unwrap_or_default());
        put(100, format!("{mode:07o}\0").as_bytes());
        put(108, &number(owner.0));
        put(116, &number(owner.1));
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, b"00000000000\0");
        // The checksum is computed with spaces in the checksum field itself.
        put(148, b"        ");
        put(156, kind);
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        self
    }

    /// Returns the archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}

/// An id in octal digits, or in binary where these do not suffice, as GNU and POSIX readers accept it.
fn number(owner: u32) -> [u8; 8] {
    let mut field = [0; 8];
    if owner < 1 << 21 {
        field.copy_from_slice(format!("{owner:07o}\0").as_bytes());
    } else {
        field[0] = 0x80;
        field[4..].copy_from_slice(&owner.to_be_bytes());
    }
    field
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::MetadataExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "it asks `tar`, which everybody trusts")]
    fn tar_reads_what_was_written() {
        let archive = TarWriter::default().file("a/empty", b"").file("b", &[b'x'; 1000]).file("c", &[7; 512]);
        let archive =
            archive.dir("own", (7, 1_610_612_737), 0o711).file_with_mode("own/run", b"x", 0o555).finish();
        let dir = tempfile::tempdir().unwrap();
        let mut tar = Command::new("tar");
        tar.arg("--extract")
            .arg("--preserve-permissions")
            .arg("--directory")
            .arg(dir.path())
            .stdin(Stdio::piped());
        let mut child = tar.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&archive).unwrap();
        assert!(child.wait().unwrap().success());
        let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
        let listed = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap();
        assert_eq!((listed("own").mode() & 0o7777, listed("own/run").mode() & 0o7777), (0o711, 0o555));
        if rustix::process::geteuid().is_root() {
            assert_eq!((listed("own").uid(), listed("own").gid()), (7, 1_610_612_737));
        }
        assert_eq!((read("a/empty"), read("b"), read("c")), (vec![], vec![b'x'; 1000], vec![7; 512]));
    }
}
