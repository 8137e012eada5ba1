//! Writes a ZIP archive whose bytes depend only on the files.
//!
//! They do not depend on time, user or machine: every entry has the earliest time of the format, and permissions
//! only say whether it is executable.

use std::io::{self, Write};

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

use crate::package::archive::{CENTRAL_HEADER, END_RECORD, LOCAL_HEADER, UTF8};
use crate::package::limits::PackageLimits;

/// ZIP 2.0: directories and deflate.
const VERSION: u16 = 20;
/// Created on Unix: the upper half of the attributes are permissions.
const MADE_BY_UNIX: u16 = 3 << 8;
/// 1980-01-01 00:00:00, time before date.
const FIRST_MOMENT: [u8; 4] = [0, 0, 0x21, 0];
const EXECUTABLE: u32 = 0o100_755;
const PLAIN: u32 = 0o100_644;

/// Whether a file is executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    Plain,
    Executable,
}

/// An archive that is being written.
#[derive(Debug)]
pub(crate) struct ArchiveWriter<W> {
    target: W,
    written: u64,
    entries: u16,
    /// The central directory so far.
    directory: Vec<u8>,
}

impl<W: Write> ArchiveWriter<W> {
    pub(crate) const fn new(target: W) -> Self {
        Self { target, written: 0, entries: 0, directory: Vec::new() }
    }

    /// Adds a file. It is compressed, unless that makes it larger, or so small that a reader would take it for a
    /// zip bomb.
    pub(crate) fn add(
        &mut self,
        path: &str,
        content: &[u8],
        permission: Permission,
        limits: &PackageLimits,
    ) -> io::Result<()> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content)?;
        let deflated = encoder.finish()?;
        let is_fair = limits.allows_ratio(content.len() as u64, deflated.len() as u64);
        let (method, data) =
            if deflated.len() < content.len() && is_fair { (8_u16, &*deflated) } else { (0, content) };
        let mut crc = Crc::new();
        crc.update(content);

        let mut common = Vec::with_capacity(26);
        common.extend(VERSION.to_le_bytes());
        common.extend(if path.is_ascii() { 0 } else { UTF8 }.to_le_bytes());
        common.extend(method.to_le_bytes());
        common.extend(FIRST_MOMENT);
        common.extend(crc.sum().to_le_bytes());
        common.extend(narrow::<u32, _>(data.len())?.to_le_bytes());
        common.extend(narrow::<u32, _>(content.len())?.to_le_bytes());
        common.extend(narrow::<u16, _>(path.len())?.to_le_bytes());
        // No extra fields.
        common.extend(0_u16.to_le_bytes());

        let offset = narrow::<u32, _>(self.written)?;
        self.entries = self.entries.checked_add(1).ok_or_else(too_large)?;
        self.write(&LOCAL_HEADER.to_le_bytes())?;
        self.write(&common)?;
        self.write(path.as_bytes())?;
        self.write(data)?;

        let mode = match permission {
            Permission::Plain => PLAIN,
            Permission::Executable => EXECUTABLE,
        };
        self.directory.extend(CENTRAL_HEADER.to_le_bytes());
        self.directory.extend((MADE_BY_UNIX | VERSION).to_le_bytes());
        self.directory.extend(common);
        // No comment, the first disk, no internal attributes.
        self.directory.extend([0; 6]);
        self.directory.extend((mode << 16).to_le_bytes());
        self.directory.extend(offset.to_le_bytes());
        self.directory.extend(path.as_bytes());
        Ok(())
    }

    /// Writes the directory. Returns the total size in bytes.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        let offset = narrow::<u32, _>(self.written)?;
        let directory = std::mem::take(&mut self.directory);
        self.write(&directory)?;
        let mut end = Vec::with_capacity(22);
        end.extend(END_RECORD.to_le_bytes());
        end.extend([0; 4]);
        end.extend(self.entries.to_le_bytes());
        end.extend(self.entries.to_le_bytes());
        end.extend(narrow::<u32, _>(directory.len())?.to_le_bytes());
        end.extend(offset.to_le_bytes());
        // No comment.
        end.extend(0_u16.to_le_bytes());
        self.write(&end)?;
        self.target.flush()?;
        Ok(self.written)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.target.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

fn narrow<N, T: TryInto<N>>(number: T) -> io::Result<N> {
    number.try_into().map_err(|_| too_large())
}

fn too_large() -> io::Error {
    io::Error::other("it is larger than a ZIP archive without extensions can be")
}
