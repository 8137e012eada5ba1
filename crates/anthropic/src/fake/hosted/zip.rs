//! Writes a ZIP archive without compression, as the download of a skill version.

/// The archive of these files, by path.
pub(super) fn archive<'f>(files: impl IntoIterator<Item = (&'f str, &'f [u8])>) -> Vec<u8> {
    let (mut archive, mut directory, mut count) = (Vec::new(), Vec::new(), 0_u16);
    for (path, content) in files {
        let offset = to_u32(archive.len());
        let mut entry = Vec::new();
        // Version, flags (names are UTF-8), method (stored), time and date (the first day of DOS). The sizes follow below.
        for field in [20_u16, 0x0800, 0, 0, 0x21] {
            entry.extend_from_slice(&field.to_le_bytes());
        }
        for field in [crc32(content), to_u32(content.len()), to_u32(content.len())] {
            entry.extend_from_slice(&field.to_le_bytes());
        }
        entry.extend_from_slice(&to_u16(path.len()).to_le_bytes());
        entry.extend_from_slice(&0_u16.to_le_bytes());
        archive.extend_from_slice(b"PK\x03\x04");
        archive.extend_from_slice(&entry);
        archive.extend_from_slice(path.as_bytes());
        archive.extend_from_slice(content);
        directory.extend_from_slice(b"PK\x01\x02\x14\x00");
        directory.extend_from_slice(&entry);
        // Comment, disk, attributes.
        directory.extend_from_slice(&[0; 10]);
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(path.as_bytes());
        count = count.saturating_add(1);
    }
    let (offset, size) = (to_u32(archive.len()), to_u32(directory.len()));
    archive.extend_from_slice(&directory);
    archive.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    archive.extend_from_slice(&count.to_le_bytes());
    archive.extend_from_slice(&count.to_le_bytes());
    archive.extend_from_slice(&size.to_le_bytes());
    archive.extend_from_slice(&offset.to_le_bytes());
    archive.extend_from_slice(&0_u16.to_le_bytes());
    archive
}

fn to_u32(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn to_u16(size: usize) -> u16 {
    u16::try_from(size).unwrap_or(u16::MAX)
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & 0_u32.wrapping_sub(crc & 1));
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use conjure_skill::{Mode, Package, PackageLimits};

    use super::*;

    #[test]
    fn the_strict_package_reader_accepts_the_archive() {
        let skill = b"---\nname: my-skill\ndescription: Does it.\n---\nBody\n";
        let files = [("my-skill/SKILL.md", &skill[..]), ("my-skill/scripts/\u{e4}.py", &b"print(1)\n"[..])];
        let package = Package::from_bytes(archive(files), "x.skill", PackageLimits::default()).unwrap();
        assert_eq!(package.frontmatter(Mode::Strict).unwrap().name().as_str(), "my-skill");
        assert_eq!(package.read("scripts/\u{e4}.py").unwrap(), b"print(1)\n");
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }
}
