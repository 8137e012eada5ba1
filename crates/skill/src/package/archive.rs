//! The container: which entries a ZIP archive has, when all its parts agree.
//!
//! Pure, over the bytes of the whole file. A ZIP file says most things twice, in a central directory and before each
//! entry, and readers differ in what they believe; here both must say the same, the entries must lie one behind the
//! other from the first byte to the directory, and the directory must reach to the end record. What is refused by
//! this and still occurs in practice: archives with a program before them, and the ZIP64 form of the end record,
//! which only archives beyond every limit need.

use std::ops::Range;

use crate::package::bytes::Bytes;
use crate::package::limits::PackageLimits;
use crate::package::problem::{PackageProblem, Refusal};

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

/// What a 32-bit field holds when the number stands in the ZIP64 field.
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

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File,
    Folder,
}

/// One entry, as both its headers say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its path, without the slash that ends a folder's. Not checked yet.
    pub(crate) path: Box<str>,
    pub(crate) kind: MemberKind,
    pub(crate) method: Method,
    /// Where its compressed bytes lie.
    pub(crate) data: Range<usize>,
    /// How many bytes it claims to hold.
    pub(crate) size: u64,
    pub(crate) crc: u32,
    /// Its permissions, when the packer knew any.
    pub(crate) permissions: Option<u32>,
}

/// All entries of an archive, in the order in which they lie in it.
pub(crate) fn members(archive: &[u8], limits: &PackageLimits) -> Result<Vec<Member>, Refusal> {
    let end = EndRecord::find(archive)?;
    if end.entries > limits.entries {
        return Err(PackageProblem::Limit { what: "entries", limit: limits.entries as u64 }.into());
    }
    let mut central = Bytes(&archive[end.directory.clone()]);
    let mut headers = Vec::new();
    for _ in 0..end.entries {
        headers.push(CentralHeader::read(&mut central)?);
    }
    if !central.0.is_empty() {
        return Err(contradiction("its directory has more entries than it says").into());
    }
    headers.sort_by_key(|header| header.offset);
    if let Some(beyond) = headers.iter().find(|header| header.offset >= end.directory.start as u64) {
        return Err(truncated("the place where it begins").of_entry(beyond.shown_name()));
    }
    let ends = headers.iter().skip(1).map(|header| header.offset).chain([end.directory.start as u64]);
    let ends: Vec<u64> = ends.collect();
    if headers.first().map_or(end.directory.start as u64, |first| first.offset) != 0 {
        return Err(contradiction("it has bytes before its first entry").into());
    }
    let mut members = Vec::with_capacity(headers.len());
    for (index, (header, end)) in headers.iter().zip(ends).enumerate() {
        let next = headers.get(index + 1).map(|next| next.shown_name());
        let member = header.locate(archive, end, next);
        members.push(member.map_err(|problem| problem.of_entry(header.shown_name()))?);
    }
    Ok(members)
}

const fn contradiction(what: &'static str) -> PackageProblem {
    PackageProblem::Contradiction { what }
}

const fn truncated(what: &'static str) -> PackageProblem {
    PackageProblem::Truncated { what }
}

/// The record that ends an archive.
#[derive(Debug)]
struct EndRecord {
    entries: usize,
    /// Where the central directory lies.
    directory: Range<usize>,
}

impl EndRecord {
    /// Finds the one end record whose comment ends with the file. Two of them would be two archives in one. Some readers
    /// take the last place that is signed as an end record, whatever stands there, and others the last one whose
    /// comment fits: both must be the same place.
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
            (Some(_), _) => Err(contradiction("it has two end records")),
            (None, _) if !signed.is_empty() => Err(truncated("the end of its last record")),
            (None, _) if archive.starts_with(&LOCAL_HEADER.to_le_bytes()) => Err(truncated("its end record")),
            (None, _) => Err(PackageProblem::NotAnArchive),
        }
    }

    fn read(archive: &[u8], start: usize) -> Result<Self, PackageProblem> {
        let cut = || truncated("the end of its last record");
        let mut bytes = Bytes(&archive[start + 4..]);
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
                Err(contradiction("bytes lie between its directory and its end record"))
            }
            _ => Err(contradiction("its directory lies beyond its end record")),
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
    fn read(bytes: &mut Bytes<'a>) -> Result<Self, Refusal> {
        let cut = || truncated("a part of its directory");
        if bytes.u32() != Some(CENTRAL_HEADER) {
            return Err(contradiction(
                "its directory has fewer entries than it says, or other bytes among them",
            )
            .into());
        }
        // The version that wrote it, and the one that is needed to read it.
        bytes.take(4).ok_or_else(cut)?;
        let flags = bytes.u16().ok_or_else(cut)?;
        let method = bytes.u16().ok_or_else(cut)?;
        // When it was changed.
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
        header.complete([size, compressed, offset], extra, disk).map_err(|problem| {
            // Most packers write UTF-8, so this is the name, or shows what is wrong with it.
            problem.of_entry(String::from_utf8_lossy(name))
        })
    }

    /// Reads what stands in the extra fields.
    fn complete(mut self, fields: [u32; 3], extra: &[u8], disk: u16) -> Result<Self, PackageProblem> {
        let extra = Extra::read(extra, self.name)?;
        let [size, compressed, offset] = extra.widen(fields)?;
        (self.size, self.compressed, self.offset) = (size, compressed, offset);
        if disk != 0 {
            return Err(PackageProblem::Unsupported { what: "several volumes" });
        }
        Ok(self)
    }

    /// The name as it can be shown, whether or not it is accepted, without the slash that ends a folder's.
    fn shown_name(&self) -> Box<str> {
        String::from_utf8_lossy(self.name.strip_suffix(b"/").unwrap_or(self.name)).into()
    }

    /// Finds the entry's bytes, which must end where the next one begins.
    fn locate(&self, archive: &[u8], end: u64, next: Option<Box<str>>) -> Result<Member, PackageProblem> {
        self.check_flags()?;
        let (path, kind) = self.path_and_kind()?;
        let method = match self.method {
            0 => Method::Stored,
            8 => Method::Deflated,
            _ => return Err(PackageProblem::Unsupported { what: "another compression than deflate" }),
        };
        if method == Method::Stored && self.size != self.compressed {
            return Err(contradiction("it is not compressed, and has two sizes"));
        }
        let range = usize::try_from(self.offset).ok().zip(usize::try_from(end).ok());
        let within = range.and_then(|(start, end)| Some((archive.get(start..end)?, end)));
        let (within, end) = within.ok_or_else(|| truncated("the place where it begins"))?;
        let overlap = || match &next {
            Some(other) => PackageProblem::Overlap { other: other.clone() },
            None => truncated("a part of its content"),
        };
        let mut bytes = Bytes(within);
        self.check_local_header(&mut bytes).map_err(|fault| match fault {
            LocalFault::Short => overlap(),
            LocalFault::Problem(problem) => problem,
        })?;
        let data_start = end - bytes.0.len();
        let compressed = usize::try_from(self.compressed).ok();
        let data = compressed.and_then(|count| bytes.take(count)).ok_or_else(overlap)?;
        self.check_after(bytes)?;
        Ok(Member {
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

    fn path_and_kind(&self) -> Result<(Box<str>, MemberKind), PackageProblem> {
        if self.flags & UTF8 == 0 && !self.name.is_ascii() {
            return Err(PackageProblem::Encoding);
        }
        let name = std::str::from_utf8(self.name).map_err(|_| PackageProblem::Encoding)?;
        let (path, by_name) = match name.strip_suffix('/') {
            Some(path) => (path, MemberKind::Folder),
            None => (name, MemberKind::File),
        };
        // Readers look at these bits whichever system is said to have set them.
        let by_mode = match (self.attributes >> 16) & FILE_TYPE {
            0 if self.attributes & DOS_DIRECTORY == 0 => by_name,
            0 | DIRECTORY => MemberKind::Folder,
            REGULAR => MemberKind::File,
            LINK => return Err(PackageProblem::Link),
            _ => return Err(PackageProblem::SpecialFile),
        };
        if by_mode != by_name || (by_name == MemberKind::Folder && self.size != 0) {
            return Err(PackageProblem::FileAndFolder);
        }
        // Nobody reads them, so nobody would see what is hidden there.
        if by_name == MemberKind::Folder && (self.compressed != 0 || self.crc != 0) {
            return Err(contradiction("it is a folder and holds bytes"));
        }
        Ok((path.into(), by_name))
    }

    /// Compares the header before the entry with this one.
    fn check_local_header(&self, bytes: &mut Bytes<'_>) -> Result<(), LocalFault> {
        const ALIKE: u16 = ENCRYPTED | HAS_DESCRIPTOR | PATCH | UTF8;
        let differs = |what| Err(LocalFault::Problem(contradiction(what)));
        if bytes.u32().ok_or(LocalFault::Short)? != LOCAL_HEADER {
            return differs("its directory points to something that is no entry");
        }
        bytes.take(2).ok_or(LocalFault::Short)?;
        let flags = bytes.u16().ok_or(LocalFault::Short)?;
        let method = bytes.u16().ok_or(LocalFault::Short)?;
        bytes.take(4).ok_or(LocalFault::Short)?;
        let crc = bytes.u32().ok_or(LocalFault::Short)?;
        let compressed = bytes.u32().ok_or(LocalFault::Short)?;
        let size = bytes.u32().ok_or(LocalFault::Short)?;
        let name_bytes = bytes.u16().ok_or(LocalFault::Short)?;
        let extra_bytes = bytes.u16().ok_or(LocalFault::Short)?;
        let name = bytes.take(usize::from(name_bytes)).ok_or(LocalFault::Short)?;
        let extra = bytes.take(usize::from(extra_bytes)).ok_or(LocalFault::Short)?;
        if name != self.name {
            return differs("its name is another one in the directory");
        }
        if flags & ALIKE != self.flags & ALIKE {
            return differs("its flags are other ones in the directory");
        }
        if method != self.method {
            return differs("its compression is another one in the directory");
        }
        let extra = Extra::read(extra, self.name).map_err(LocalFault::Problem)?;
        let [size, compressed, _] = extra.widen([size, compressed, 0]).map_err(LocalFault::Problem)?;
        let later = self.flags & HAS_DESCRIPTOR != 0;
        let agree = |local: u64, central: u64| local == central || (later && local == 0);
        if !agree(size, self.size) || !agree(compressed, self.compressed) {
            return differs("its size is another one in the directory");
        }
        if !agree(crc.into(), self.crc.into()) {
            return differs("its checksum is another one in the directory");
        }
        Ok(())
    }

    /// Checks what lies between the entry's content and the next entry: its descriptor, if it has one.
    fn check_after(&self, mut bytes: Bytes<'_>) -> Result<(), PackageProblem> {
        if self.flags & HAS_DESCRIPTOR == 0 {
            return if bytes.0.is_empty() {
                Ok(())
            } else {
                Err(contradiction("bytes that belong to nothing follow it"))
            };
        }
        let wrong = contradiction("its sizes are other ones behind its content");
        let length = bytes.0.len();
        if matches!(length, 16 | 24) && bytes.u32() != Some(DESCRIPTOR) {
            return Err(wrong);
        }
        let crc = bytes.u32();
        let (compressed, size) = match length {
            12 | 16 => (bytes.u32().map(u64::from), bytes.u32().map(u64::from)),
            20 | 24 => (bytes.u64(), bytes.u64()),
            _ => return Err(wrong),
        };
        if (crc, compressed, size) == (Some(self.crc), Some(self.compressed), Some(self.size)) {
            Ok(())
        } else {
            Err(wrong)
        }
    }
}

/// Why a local header is refused.
enum LocalFault {
    /// The next entry begins before it ends.
    Short,
    Problem(PackageProblem),
}

/// What the extra fields of a header say that matters.
#[derive(Debug, Default)]
struct Extra<'a> {
    zip64: Option<Bytes<'a>>,
}

impl<'a> Extra<'a> {
    fn read(extra: &'a [u8], name: &[u8]) -> Result<Self, PackageProblem> {
        let broken = || contradiction("its extra fields have other lengths than they say");
        let mut bytes = Bytes(extra);
        let mut found = Self::default();
        while !bytes.0.is_empty() {
            let id = bytes.u16().ok_or_else(broken)?;
            let length = bytes.u16().ok_or_else(broken)?;
            let data = bytes.take(usize::from(length)).ok_or_else(broken)?;
            match id {
                EXTRA_ZIP64 if found.zip64.replace(Bytes(data)).is_some() => {
                    return Err(contradiction("it has two ZIP64 fields"));
                }
                // A version, the checksum of the name, and the name that other readers would see.
                EXTRA_UNICODE_PATH if data.get(5..) != Some(name) => {
                    return Err(contradiction("it has a second, other path"));
                }
                EXTRA_AES => return Err(PackageProblem::Encrypted),
                _ => {}
            }
        }
        Ok(found)
    }

    /// Replaces the fields that say so by those of the ZIP64 field: sizes and offset, in its order.
    fn widen(&self, fields: [u32; 3]) -> Result<[u64; 3], PackageProblem> {
        let Some(mut zip64) = self.zip64 else { return Ok(fields.map(u64::from)) };
        let mut wide = [0; 3];
        for (wide, field) in wide.iter_mut().zip(fields) {
            *wide = match field {
                IN_ZIP64 => zip64.u64().ok_or_else(|| contradiction("its ZIP64 field is too short"))?,
                narrow => narrow.into(),
            };
        }
        Ok(wide)
    }
}
