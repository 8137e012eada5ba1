//! Packages made byte by byte, so that each can lie in one place.

mod hostile;
mod oracle;
mod packing;
mod properties;
mod unpacking;

use std::io::Write as _;
use std::path::Path;

use flate2::Crc;
use flate2::write::DeflateEncoder;

use super::*;
use crate::error::SkillError;
use crate::frontmatter::Mode;

pub(crate) const SKILL_MD: &str = "---\nname: good\ndescription: Does good\n---\n\n# Body\n";

/// One entry of a hand-made archive. Every field may be a lie.
#[derive(Debug, Clone)]
pub(crate) struct Raw {
    pub(crate) name: Vec<u8>,
    /// The name before the content, when it differs.
    pub(crate) local_name: Option<Vec<u8>>,
    pub(crate) flags: u16,
    pub(crate) method: u16,
    pub(crate) crc: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) compressed: u32,
    pub(crate) size: u32,
    /// The size before the content, when it differs.
    pub(crate) local_size: Option<u32>,
    pub(crate) attributes: u32,
    pub(crate) extra: Vec<u8>,
    /// What lies between the content and the next entry.
    pub(crate) after: Vec<u8>,
    /// Where the directory says that it begins, when it does not.
    pub(crate) offset: Option<u32>,
}

impl Raw {
    /// An honest, deflated file.
    pub(crate) fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(content.as_ref()).unwrap();
        let mut raw = Self::stored(name, content);
        (raw.method, raw.data) = (8, encoder.finish().unwrap());
        raw.compressed = raw.data.len() as u32;
        raw
    }

    /// An honest file that is not compressed.
    pub(crate) fn stored(name: &str, content: impl AsRef<[u8]>) -> Self {
        let content = content.as_ref();
        let mut crc = Crc::new();
        crc.update(content);
        Self {
            name: name.into(),
            local_name: None,
            flags: if name.is_ascii() { 0 } else { 1 << 11 },
            method: 0,
            crc: crc.sum(),
            data: content.to_vec(),
            compressed: content.len() as u32,
            size: content.len() as u32,
            local_size: None,
            attributes: 0,
            extra: Vec::new(),
            after: Vec::new(),
            offset: None,
        }
    }

    /// The same, changed.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn fields(&self, name: &[u8], size: u32) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(20_u16.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(self.method.to_le_bytes());
        out.extend([0, 0, 0x21, 0]);
        out.extend(self.crc.to_le_bytes());
        out.extend(self.compressed.to_le_bytes());
        out.extend(size.to_le_bytes());
        out.extend((name.len() as u16).to_le_bytes());
        out.extend((self.extra.len() as u16).to_le_bytes());
        out
    }
}

/// The archive of these entries.
pub(crate) fn archive(entries: &[Raw]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let offset = entry.offset.unwrap_or(out.len() as u32);
        let local_name = entry.local_name.as_ref().unwrap_or(&entry.name);
        out.extend(*b"PK\x03\x04");
        out.extend(entry.fields(local_name, entry.local_size.unwrap_or(entry.size)));
        out.extend(local_name);
        out.extend(&entry.extra);
        out.extend(&entry.data);
        out.extend(&entry.after);
        directory.extend(*b"PK\x01\x02");
        directory.extend((3_u16 << 8 | 20).to_le_bytes());
        directory.extend(entry.fields(&entry.name, entry.size));
        directory.extend([0; 6]);
        directory.extend(entry.attributes.to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(&entry.name);
        directory.extend(&entry.extra);
    }
    let start = out.len() as u32;
    out.extend(&directory);
    out.extend(end_record(entries.len() as u16, directory.len() as u32, start));
    out
}

pub(crate) fn end_record(entries: u16, size: u32, offset: u32) -> Vec<u8> {
    let mut out = b"PK\x05\x06\0\0\0\0".to_vec();
    out.extend(entries.to_le_bytes());
    out.extend(entries.to_le_bytes());
    out.extend(size.to_le_bytes());
    out.extend(offset.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// A good skill's package with these entries beside its `good/SKILL.md`.
pub(crate) fn good_with(entries: impl IntoIterator<Item = Raw>) -> Vec<u8> {
    let all: Vec<_> = [Raw::new("good/SKILL.md", SKILL_MD)].into_iter().chain(entries).collect();
    archive(&all)
}

/// Reads all of a package, within these limits, and unpacks it beneath a directory, which must stay empty when that
/// fails and be empty again when it does not.
pub(crate) fn read_all_within(
    bytes: Vec<u8>,
    limits: PackageLimits,
) -> Result<Vec<(String, Vec<u8>)>, SkillError> {
    let temp = tempfile::tempdir().unwrap();
    let outcome = (|| {
        let package = Package::from_bytes(bytes, "p.skill", limits)?;
        let extracted = package.extract(Some(temp.path()))?;
        extracted.load(Mode::Lenient)?;
        let mut contents = Vec::new();
        for file in package.files() {
            let content = package.read(file.path())?;
            assert_eq!(std::fs::read(extracted.path().join(file.path())).unwrap(), content);
            contents.push((file.path().to_str().unwrap().to_owned(), content));
        }
        Ok(contents)
    })();
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "something was left on disk");
    outcome
}

pub(crate) fn read_all(bytes: Vec<u8>) -> Result<Vec<(String, Vec<u8>)>, SkillError> {
    read_all_within(bytes, PackageLimits::default())
}

/// Writes a file of a skill's directory, with the directories above it.
pub(crate) fn write(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}
