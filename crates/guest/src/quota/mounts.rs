//! The mounts of a file system. It may be mounted at several places, and a layered one has several devices, so its
//! files are recognised by their mount.

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, makedev, statx};

/// The mounts of the file system that a directory lies on, and all others.
#[derive(Debug)]
pub(super) struct Mounts {
    /// The mount of the directory.
    own: Option<u64>,
    all: Vec<Mount>,
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    /// The device of its file system. Files of a layered file system may have others.
    device: u64,
    path: Vec<u8>,
    is_read_only: bool,
}

impl Mounts {
    /// Reads the mounts that this process sees.
    pub(super) fn of(dir: impl AsFd) -> Self {
        let all = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let all = all.split(|byte| *byte == b'\n').filter_map(parse_mount).collect();
        Self { own: mount_id(dir, c"", AtFlags::EMPTY_PATH), all }
    }

    fn device(&self) -> Option<u64> {
        self.all.iter().find(|mount| Some(mount.id) == self.own).map(|mount| mount.device)
    }

    /// Whether the target of a link in `/proc` lies on the file system.
    pub(super) fn contain(&self, dir: impl AsFd, link: &CStr) -> bool {
        let id = mount_id(dir, link, AtFlags::empty());
        let mount = self.all.iter().find(|mount| Some(mount.id) == id);
        id.is_some() && (id == self.own || mount.is_some_and(|mount| Some(mount.device) == self.device()))
    }

    /// Whether a program may have written the mapped file at `path`. `device` is the device of its mapping.
    pub(super) fn may_have_mapped(&self, path: &[u8], device: u64) -> bool {
        let is_beneath = |mount: &&Mount| {
            path.strip_prefix(mount.path.strip_suffix(b"/").unwrap_or(&mount.path))
                .is_some_and(|rest| rest.starts_with(b"/"))
        };
        let mount = self.all.iter().filter(is_beneath).max_by_key(|mount| mount.path.len());
        self.device().is_some_and(|own| own == device) && mount.is_none_or(|mount| !mount.is_read_only)
    }
}

/// Whether an entry of a directory is a mount point. Kernels before 5.8 do not know.
pub(super) fn is_mount_point(dir: impl AsFd, name: &CStr) -> bool {
    statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Kernels before 5.8 do not know it.
fn mount_id(dir: impl AsFd, name: &CStr, flags: AtFlags) -> Option<u64> {
    let stat = statx(dir, name, flags, StatxFlags::MNT_ID).ok()?;
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// Parses `36 35 98:0 /source /path rw,noatime …`.
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = parse_device(fields.nth(1)?, 10)?;
    let path = fields.nth(1)?.to_vec();
    Some(Mount {
        id,
        device,
        path,
        is_read_only: fields.next()?.split(|byte| *byte == b',').next() == Some(b"ro"),
    })
}

/// Parses `major:minor`.
pub(super) fn parse_device(text: &[u8], radix: u32) -> Option<u64> {
    let (major, minor) = std::str::from_utf8(text).ok()?.split_once(':')?;
    Some(makedev(u32::from_str_radix(major, radix).ok()?, u32::from_str_radix(minor, radix).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_belongs_to_the_mount_above_it() {
        let lines: [&[u8]; 4] = [
            b"1 0 8:1 / / ro,relatime - ext4 /dev/sda1 rw",
            b"2 1 8:1 /data /workspace rw,nosuid shared:1 - ext4 /dev/sda1 rw",
            b"3 1 8:1 /data/out /outputs rw - ext4 /dev/sda1 rw",
            b"4 1 0:36 / /tmp rw - tmpfs tmpfs rw",
        ];
        let mounts = Mounts { own: Some(2), all: lines.into_iter().filter_map(parse_mount).collect() };
        assert_eq!(mounts.all.len(), 4);
        let disk = parse_device(b"08:01", 16).expect("a device");
        let memory = parse_device(b"00:24", 16).expect("a device");
        assert!(mounts.may_have_mapped(b"/workspace/a", disk));
        assert!(mounts.may_have_mapped(b"/outputs/a", disk));
        assert!(!mounts.may_have_mapped(b"/outputs2/a", disk), "a library that the host replaced");
        assert!(!mounts.may_have_mapped(b"/tmp/a", memory));
        assert!(!mounts.may_have_mapped(b"/memfd:a", memory));
    }
}
