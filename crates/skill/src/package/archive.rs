//! Reads the entries of a ZIP archive, if all its parts agree.
//!
//! Pure, over the bytes of the whole file. A ZIP file stores most facts twice, in the central directory and before
//! each entry, and readers differ in which they use. Here both must agree. The entries must be contiguous from the
//! first byte to the central directory, and that must reach to the end record. This refuses two forms that still
//! occur: archives after a program, and the ZIP64 end record, which only archives beyond all limits need.

use std::ops::Range;

use crate::package::byte_reader::ByteReader;
use crate::package::limits::PackageLimits;
use crate::package::problem::{PackageEntryError, PackageProblem};

pub(crate) const LOCAL_HEADER: u32 = 0x0403_4b50;
pub(crate) const CENTRAL_HEADER: u32 = 0x0201_4b50;
pub(crate) const END_RECORD: u32 = 0x0605_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const ZIP64_LOCATOR: u32 = 0x0706_4b50;

const END_BYTES: usize = 22;
const ZIP64_LOCATOR_BYTES: usize = 20;

const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
const HAS_DESCRIPTOR: u16 = 1 << 3;
const PATCH: u16 = 1 << 5;
pub(crate) const UTF8: u16 = 1 << 11;

const EXTRA_ZIP64: u16 = 0x0001;
const EXTRA_UNICODE_PATH: u16 = 0x7075;
const EXTRA_AES: u16 = 0x9901;
const METHOD_AES: u16 = 99;

/// The value of a 32-bit field when the number is in the ZIP64 field.
const IN_ZIP64: u32 = u32::MAX;

const FILE_TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const DOS_DIRECTORY: u32 = 0x10;

/// How an entry is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Stored,
    Deflated,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZipEntryKind {
    File,
    Dir,
}

/// One validated entry, according to both of its headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ZipEntry {
    /// Its path, without the final slash of a directory. Not validated yet.
    pub(crate) path: Box<str>,
    pub(crate) kind: ZipEntryKind,
    pub(crate) method: Method,
    /// The range of its compressed bytes.
    pub(crate) data: Range<usize>,
    /// Its declared size in bytes.
    pub(crate) size: u64,
    pub(crate) crc: u32,
    /// Its permissions, if the packer stored any.
    pub(crate) permissions: Option<u32>,
}

/// Reads all entries of an archive, in archive order.
pub(crate) fn read_entries(
    archive: &[u8],
    limits: &PackageLimits,
) -> Result<Vec<ZipEntry>, PackageEntryError> {
    let end = EndRecord::find(archive)?;
    if end.entries > limits.entries {
        return Err(PackageProblem::Limit { what: "entries", limit: limits.entries as u64 }.into());
    }
    let mut central = ByteReader(&archive[end.directory.clone()]);
    let mut headers = Vec::new();
    for _ in 0..end.entries {
        headers.push(CentralHeader::read(&mut central)?);
    }
    if !central.0.is_empty() {
        return Err(inconsistent("its central directory has more entries than it says").into());
    }
    headers.sort_by_key(|header| header.offset);
    if let Some(beyond) = headers.iter().find(|header| header.offset >= end.directory.start as u64) {
        return Err(truncated("the place where it begins").in_entry(beyond.display_name()));
    }
    let ends = headers.iter().skip(1).map(|header| header.offset).chain([end.directory.start as u64]);
    let ends: Vec<u64> = ends.collect();
    if headers.first().map_or(end.directory.start as u64, |first| first.offset) != 0 {
        return Err(inconsistent("it has bytes before its first entry").into());
    }
    let mut members = Vec::with_capacity(headers.len());
    for (index, (header, end)) in headers.iter().zip(ends).enumerate() {
        let next = headers.get(index + 1).map(|next| next.display_name());
        let member = header.locate(archive, end, next);
        members.push(member.map_err(|problem| problem.in_entry(header.display_name()))?);
    }
    Ok(members)
}

const fn inconsistent(what: &'static str) -> PackageProblem {
    PackageProblem::Contradiction { what }
}

const fn truncated(what: &'static str) -> PackageProblem {
    PackageProblem::Truncated { what }
}

/// The record that ends an archive.
#[derive(Debug)]
struct EndRecord {
    entries: usize,
    /// The offset of the central directory.
    directory: Range<usize>,
}

impl EndRecord {
    /// Finds the only end record whose comment ends with the file. Two such records would make two archives of one
    /// file. Some readers use the last end signature, others the last record whose comment fits. Both must be the
    /// same.
    fn find(archive: &[u8]) -> Result<Self, PackageProblem> {
        let last = archive.len().checked_sub(END_BYTES).ok_or(PackageProblem::NotAnArchive)?;
        let first = last.saturating_sub(usize::from(u16::MAX));
        let signature = END_RECORD.to_le_bytes();
        let signed = archive[first..].windows(signature.len()).enumerate();
        let signed = signed.filter(|(_, bytes)| *bytes == signature).map(|(at, _)| first + at);
        let signed: Vec<usize> = signed.collect();
        let fits = |start: &usize| {
            let comment = archive.get(start + END_BYTES - 2..start + END_BYTES);
            let comment = comment.map(|bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])));
            comment.is_some_and(|length| start + END_BYTES + length == archive.len())
        };
        let mut fitting = signed.iter().copied().filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(start), None) if signed.last() == Some(&start) => Self::read(archive, start),
            (Some(_), _) => Err(inconsistent("it has two end records")),
            (None, _) if !signed.is_empty() => Err(truncated("the end of its last record")),
            (None, _) if archive.starts_with(&LOCAL_HEADER.to_le_bytes()) => Err(truncated("its end record")),
            (None, _) => Err(PackageProblem::NotAnArchive),
        }
    }

    fn read(archive: &[u8], start: usize) -> Result<Self, PackageProblem> {
        let cut = || truncated("the end of its last record");
        let mut bytes = ByteReader(&archive[start + 4..]);
        let disks = [bytes.u16().ok_or_else(cut)?, bytes.u16().ok_or_else(cut)?];
        let entries = [bytes.u16().ok_or_else(cut)?, bytes.u16().ok_or_else(cut)?];
        let (size, offset) = (bytes.u32().ok_or_else(cut)?, bytes.u32().ok_or_else(cut)?);
        let locator = start.checked_sub(ZIP64_LOCATOR_BYTES).map(|at| &archive[at..at + 4]);
        if locator.is_some_and(|signature| signature == ZIP64_LOCATOR.to_le_bytes()) {
            return Err(PackageProblem::Unsupported { what: "the ZIP64 end record" });
        }
        if disks != [0, 0] || entries[0] != entries[1] {
            return Err(PackageProblem::Unsupported { what: "several volumes" });
        }
        let (size, offset) = (size as usize, offset as usize);
        match offset.checked_add(size) {
            Some(end) if end == start => {
                Ok(Self { entries: usize::from(entries[0]), directory: offset..end })
            }
            Some(end) if end < start => {
                Err(inconsistent("there are bytes between its central directory and its end record"))
            }
            _ => Err(inconsistent("its central directory is after its end record")),
        }
    }
}

/// An entry as the central directory describes it.
#[derive(Debug)]
struct CentralHeader<'a> {
    flags: u16,
    method: u16,
    crc: u32,
    compressed: u64,
    size: u64,
    name: &'a [u8],
    attributes: u32,
    offset: u64,
}

impl<'a> CentralHeader<'a> {
    fn read(bytes: &mut ByteReader<'a>) -> Result<Self, PackageEntryError> {
        let cut = || truncated("a part of its central directory");
        if bytes.u32() != Some(CENTRAL_HEADER) {
            return Err(inconsistent(
                "its central directory has fewer entries than it says, or other bytes among them",
            )
            .into());
        }
        // The version that created it, and the version needed to read it.
        bytes.take(4).ok_or_else(cut)?;
        let flags = bytes.u16().ok_or_else(cut)?;
        let method = bytes.u16().ok_or_else(cut)?;
        // The modification time.
        bytes.take(4).ok_or_else(cut)?;
        let crc = bytes.u32().ok_or_else(cut)?;
        let compressed = bytes.u32().ok_or_else(cut)?;
        let size = bytes.u32().ok_or_else(cut)?;
        let name_bytes = bytes.u16().ok_or_else(cut)?;
        let extra_bytes = bytes.u16().ok_or_else(cut)?;
        let comment_bytes = bytes.u16().ok_or_else(cut)?;
        let disk = bytes.u16().ok_or_else(cut)?;
        // Internal attributes.
        bytes.take(2).ok_or_else(cut)?;
        let attributes = bytes.u32().ok_or_else(cut)?;
        let offset = bytes.u32().ok_or_else(cut)?;
        let name = bytes.take(usize::from(name_bytes)).ok_or_else(cut)?;
        let extra = bytes.take(usize::from(extra_bytes)).ok_or_else(cut)?;
        bytes.take(usize::from(comment_bytes)).ok_or_else(cut)?;
        let header = Self {
            flags,
            method,
            crc,
            compressed: compressed.into(),
            size: size.into(),
            name,
            attributes,
            offset: offset.into(),
        };
        header.with_extra_fields([size, compressed, offset], extra, disk).map_err(|problem| {
            // Most packers write UTF-8, so this is the name, or shows what is wrong with it.
            problem.in_entry(String::from_utf8_lossy(name))
        })
    }

    /// Applies the extra fields.
    fn with_extra_fields(
        mut self,
        fields: [u32; 3],
        extra: &[u8],
        disk: u16,
    ) -> Result<Self, PackageProblem> {
        let extra = ExtraFields::read(extra, self.name)?;
        let [size, compressed, offset] = extra.widen(fields)?;
        (self.size, self.compressed, self.offset) = (size, compressed, offset);
        if disk != 0 {
            return Err(PackageProblem::Unsupported { what: "several volumes" });
        }
        Ok(self)
    }

    /// The name for messages, without the final slash of a directory.
    fn display_name(&self) -> Box<str> {
        String::from_utf8_lossy(self.name.strip_suffix(b"/").unwrap_or(self.name)).into()
    }

    /// Finds the entry's bytes. They must end where the next entry begins.
    fn locate(&self, archive: &[u8], end: u64, next: Option<Box<str>>) -> Result<ZipEntry, PackageProblem> {
        self.check_flags()?;
        let (path, kind) = self.path_and_kind()?;
        let method = match self.method {
            0 => Method::Stored,
            8 => Method::Deflated,
            _ => return Err(PackageProblem::Unsupported { what: "another compression than deflate" }),
        };
        if method == Method::Stored && self.size != self.compressed {
            return Err(inconsistent("it is not compressed, and has two sizes"));
        }
        let range = usize::try_from(self.offset).ok().zip(usize::try_from(end).ok());
        let tail = range.and_then(|(start, end)| Some((archive.get(start..end)?, end)));
        let (tail, end) = tail.ok_or_else(|| truncated("the place where it begins"))?;
        let overlap = || match &next {
            Some(other) => PackageProblem::Overlap { other: other.clone() },
            None => truncated("a part of its content"),
        };
        let mut bytes = ByteReader(tail);
        self.check_local_header(&mut bytes).map_err(|fault| match fault {
            LocalHeaderError::Truncated => overlap(),
            LocalHeaderError::Problem(problem) => problem,
        })?;
        let data_start = end - bytes.0.len();
        let compressed = usize::try_from(self.compressed).ok();
        let data = compressed.and_then(|count| bytes.take(count)).ok_or_else(overlap)?;
        self.check_after(bytes)?;
        Ok(ZipEntry {
            path,
            kind,
            method,
            data: data_start..data_start + data.len(),
            size: self.size,
            crc: self.crc,
            permissions: (self.attributes >> 16 != 0).then_some(self.attributes >> 16 & 0o7777),
        })
    }

    const fn check_flags(&self) -> Result<(), PackageProblem> {
        if self.flags & ENCRYPTED != 0 || self.method == METHOD_AES {
            return Err(PackageProblem::Encrypted);
        }
        if self.flags & PATCH != 0 {
            return Err(PackageProblem::Unsupported { what: "patched data" });
        }
        Ok(())
    }

    fn path_and_kind(&self) -> Result<(Box<str>, ZipEntryKind), PackageProblem> {
        if self.flags & UTF8 == 0 && !self.name.is_ascii() {
            return Err(PackageProblem::Encoding);
        }
        let name = std::str::from_utf8(self.name).map_err(|_| PackageProblem::Encoding)?;
        let (path, by_name) = match name.strip_suffix('/') {
            Some(path) => (path, ZipEntryKind::Dir),
            None => (name, ZipEntryKind::File),
        };
        // Readers use these bits, whichever system the entry declares.
        let by_mode = match (self.attributes >> 16) & FILE_TYPE {
            0 if self.attributes & DOS_DIRECTORY == 0 => by_name,
            0 | DIRECTORY => ZipEntryKind::Dir,
            REGULAR => ZipEntryKind::File,
            LINK => return Err(PackageProblem::Link),
            _ => return Err(PackageProblem::SpecialFile),
        };
        if by_mode != by_name || (by_name == ZipEntryKind::Dir && self.size != 0) {
            return Err(PackageProblem::FileAndDir);
        }
        // No reader uses these fields, so hidden data would go unnoticed.
        if by_name == ZipEntryKind::Dir && (self.compressed != 0 || self.crc != 0) {
            return Err(inconsistent("it is a directory and holds bytes"));
        }
        Ok((path.into(), by_name))
    }

    /// Compares the local header with this one.
    fn check_local_header(&self, bytes: &mut ByteReader<'_>) -> Result<(), LocalHeaderError> {
        const ALIKE: u16 = ENCRYPTED | HAS_DESCRIPTOR | PATCH | UTF8;
        let differs = |what| Err(LocalHeaderError::Problem(inconsistent(what)));
        if bytes.u32().ok_or(LocalHeaderError::Truncated)? != LOCAL_HEADER {
            return differs("its central directory points to something that is not an entry");
        }
        bytes.take(2).ok_or(LocalHeaderError::Truncated)?;
        let flags = bytes.u16().ok_or(LocalHeaderError::Truncated)?;
        let method = bytes.u16().ok_or(LocalHeaderError::Truncated)?;
        bytes.take(4).ok_or(LocalHeaderError::Truncated)?;
        let crc = bytes.u32().ok_or(LocalHeaderError::Truncated)?;
        let compressed = bytes.u32().ok_or(LocalHeaderError::Truncated)?;
        let size = bytes.u32().ok_or(LocalHeaderError::Truncated)?;
        let name_bytes = bytes.u16().ok_or(LocalHeaderError::Truncated)?;
        let extra_bytes = bytes.u16().ok_or(LocalHeaderError::Truncated)?;
        let name = bytes.take(usize::from(name_bytes)).ok_or(LocalHeaderError::Truncated)?;
        let extra = bytes.take(usize::from(extra_bytes)).ok_or(LocalHeaderError::Truncated)?;
        if name != self.name {
            return differs("its name is another one in the central directory");
        }
        if flags & ALIKE != self.flags & ALIKE {
            return differs("its flags are other ones in the central directory");
        }
        if method != self.method {
            return differs("its compression is another one in the central directory");
        }
        let extra = ExtraFields::read(extra, self.name).map_err(LocalHeaderError::Problem)?;
        let [size, compressed, _] = extra.widen([size, compressed, 0]).map_err(LocalHeaderError::Problem)?;
        let has_descriptor = self.flags & HAS_DESCRIPTOR != 0;
        let agree = |local: u64, central: u64| local == central || (has_descriptor && local == 0);
        if !agree(size, self.size) || !agree(compressed, self.compressed) {
            return differs("its size is another one in the central directory");
        }
        if !agree(crc.into(), self.crc.into()) {
            return differs("its checksum is another one in the central directory");
        }
        Ok(())
    }

    /// Checks the bytes between the entry's content and the next entry: its data descriptor, if it has one.
    fn check_after(&self, mut bytes: ByteReader<'_>) -> Result<(), PackageProblem> {
        if self.flags & HAS_DESCRIPTOR == 0 {
            return if bytes.0.is_empty() {
                Ok(())
            } else {
                Err(inconsistent("bytes that belong to nothing follow it"))
            };
        }
        let mismatch = inconsistent("its sizes are other ones behind its content");
        let length = bytes.0.len();
        if matches!(length, 16 | 24) && bytes.u32() != Some(DESCRIPTOR) {
            return Err(mismatch);
        }
        let crc = bytes.u32();
        let (compressed, size) = match length {
            12 | 16 => (bytes.u32().map(u64::from), bytes.u32().map(u64::from)),
            20 | 24 => (bytes.u64(), bytes.u64()),
            _ => return Err(mismatch),
        };
        if (crc, compressed, size) == (Some(self.crc), Some(self.compressed), Some(self.size)) {
            Ok(())
        } else {
            Err(mismatch)
        }
    }
}

/// Why a local header is refused.
enum LocalHeaderError {
    /// The next entry begins before this one ends.
    Truncated,
    Problem(PackageProblem),
}

/// The relevant extra fields of a header.
#[derive(Debug, Default)]
struct ExtraFields<'a> {
    zip64: Option<ByteReader<'a>>,
}

impl<'a> ExtraFields<'a> {
    fn read(extra: &'a [u8], name: &[u8]) -> Result<Self, PackageProblem> {
        let invalid_fields = || inconsistent("its extra fields have other lengths than they say");
        let mut bytes = ByteReader(extra);
        let mut found = Self::default();
        while !bytes.0.is_empty() {
            let id = bytes.u16().ok_or_else(invalid_fields)?;
            let length = bytes.u16().ok_or_else(invalid_fields)?;
            let data = bytes.take(usize::from(length)).ok_or_else(invalid_fields)?;
            match id {
                EXTRA_ZIP64 if found.zip64.replace(ByteReader(data)).is_some() => {
                    return Err(inconsistent("it has two ZIP64 fields"));
                }
                // A version, the checksum of the name, and a name that other readers would use.
                EXTRA_UNICODE_PATH if data.get(5..) != Some(name) => {
                    return Err(inconsistent("it has a second, other path"));
                }
                EXTRA_AES => return Err(PackageProblem::Encrypted),
                _ => {}
            }
        }
        Ok(found)
    }

    /// Replaces saturated fields by those of the ZIP64 field: sizes and offset, in its order.
    fn widen(&self, fields: [u32; 3]) -> Result<[u64; 3], PackageProblem> {
        let Some(mut zip64) = self.zip64 else { return Ok(fields.map(u64::from)) };
        let mut wide = [0; 3];
        for (wide, field) in wide.iter_mut().zip(fields) {
            *wide = match field {
                IN_ZIP64 => zip64.u64().ok_or_else(|| inconsistent("its ZIP64 field is too short"))?,
                narrow => narrow.into(),
            };
        }
        Ok(wide)
    }
}
