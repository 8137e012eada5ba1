//! A tar archive of a few small files, in memory: what the engine gets to build of.

/// The size of a block of an archive, in bytes.
const BLOCK: usize = 512;

/// An archive that is being written (POSIX.1-1988 ustar). Files are root's, and of no time, so that the same files are the
/// same archive.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
}

impl Archive {
    /// Adds a file that everybody may read. The path is relative and has at most 100 bytes.
    pub(super) fn file(mut self, path: &str, content: &[u8]) -> Self {
        let mut header = [0; BLOCK];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, path.as_bytes().get(..path.len().min(100)).unwrap_or_default());
        put(100, b"0000644\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, b"00000000000\0");
        // The sum is of the header with spaces where the sum will be.
        put(148, b"        ");
        put(156, b"0");
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        self
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "it asks `tar`, which everybody trusts")]
    fn tar_reads_what_was_written() {
        let archive =
            Archive::default().file("a/empty", b"").file("b", &[b'x'; 1000]).file("c", &[7; 512]).finish();
        let folder = tempfile::tempdir().unwrap();
        let mut tar = Command::new("tar");
        tar.arg("--extract").arg("--directory").arg(folder.path()).stdin(Stdio::piped());
        let mut child = tar.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&archive).unwrap();
        assert!(child.wait().unwrap().success());
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        assert_eq!((read("a/empty"), read("b"), read("c")), (vec![], vec![b'x'; 1000], vec![7; 512]));
    }
}
