//! The control groups of this process in each hierarchy, from the text of two files in `/proc`. Does no I/O.

use std::path::{Path, PathBuf};

/// The version of a hierarchy's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Version {
    /// Version 1: one hierarchy for some controllers.
    One,
    /// Version 2: the unified hierarchy.
    Two,
}

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    /// The controllers, for version 1. Version 2 names them in a file of each group.
    pub(super) controllers: Vec<String>,
    /// The mount point.
    pub(super) mount: PathBuf,
    /// The group of this process, at or below `mount`.
    pub(super) own: PathBuf,
}

/// Returns the mounted hierarchies, from the text of `/proc/self/mountinfo` and `/proc/self/cgroup`.
pub(super) fn hierarchies(mountinfo: &str, cgroup: &str) -> Vec<Hierarchy> {
    mountinfo.lines().filter_map(|line| hierarchy(line, cgroup)).collect()
}

/// A line is `id parent device root mount options… - type source super-options`.
fn hierarchy(line: &str, cgroup: &str) -> Option<Hierarchy> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, mount) = (unescaped(fields.next()?), PathBuf::from(unescaped(fields.next()?)));
    let mut fields = after.split(' ');
    let version = match fields.next()? {
        "cgroup" => Version::One,
        "cgroup2" => Version::Two,
        _ => return None,
    };
    let options: Vec<&str> = fields.nth(1)?.split(',').collect();
    let (path, controllers) = cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (names, path) = (fields.next()?, fields.next()?);
        let is_it = match version {
            Version::Two => names.is_empty(),
            // Named hierarchies (`name=systemd`) limit nothing.
            Version::One => !names.is_empty() && names.split(',').all(|name| options.contains(&name)),
        };
        let controllers =
            names.split(',').filter(|name| !name.is_empty() && !name.starts_with("name=")).map(str::to_owned);
        is_it.then(|| (path, controllers.collect::<Vec<_>>()))
    })?;
    // Only a part of the hierarchy may be mounted, as in a container.
    let below = Path::new(path).strip_prefix(&root).unwrap_or_else(|_| Path::new(""));
    // The path of a group outside the mounted part begins with `/..`.
    let is_inside = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let has_name = is_inside && below.components().next().is_some();
    let own = if has_name { mount.join(below) } else { mount.clone() };
    Some(Hierarchy { version, controllers, mount, own })
}

/// Decodes escapes such as `\040`, which stands for a space.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| byte == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match code {
            Some(code) => {
                bytes.push(code);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(mountinfo: &str, cgroup: &str, expected: &[(Version, &str, &str, &str)]) {
        let found = hierarchies(mountinfo, cgroup);
        let found: Vec<_> = found
            .iter()
            .map(|it| {
                let (mount, own) = (it.mount.to_str().unwrap(), it.own.to_str().unwrap());
                (it.version, it.controllers.join(","), mount, own)
            })
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|&(version, controllers, mount, own)| (version, controllers.to_owned(), mount, own))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn both_versions_are_found_side_by_side() {
        let mountinfo = "\
            30 26 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            31 26 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            32 26 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            33 26 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            34 26 0:30 / / rw - ext4 /dev/vda rw\n";
        let cgroup = "9:name=systemd:/init\n4:memory:/a/b\n3:cpu,cpuacct:/\n0::/c\n";
        check(
            mountinfo,
            cgroup,
            &[
                (Version::One, "memory", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/a/b"),
                (Version::One, "cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
                (Version::One, "", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/systemd/init"),
                (Version::Two, "", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/c"),
            ],
        );
    }

    #[test]
    fn a_part_of_a_hierarchy_may_be_mounted_anywhere() {
        let container = "40 30 0:29 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw,nsdelegate\n";
        check(container, "0::/docker/x/y\n", &[(Version::Two, "", "/sys/fs/cgroup", "/sys/fs/cgroup/y")]);
        check(container, "0::/elsewhere\n", &[(Version::Two, "", "/sys/fs/cgroup", "/sys/fs/cgroup")]);
        let outside = "40 30 0:29 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        check(outside, "0::/../../x\n", &[(Version::Two, "", "/sys/fs/cgroup", "/sys/fs/cgroup")]);
        let blank = "40 30 0:29 / /my\\040groups\\ rw - cgroup2 cgroup rw\n";
        check(blank, "0::/\n", &[(Version::Two, "", "/my groups\\", "/my groups\\")]);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(mountinfo in any::<String>(), cgroup in any::<String>()) {
            let line = format!("1 2 3 {mountinfo} - cgroup2 x {cgroup}");
            for found in hierarchies(&line, &cgroup).iter().chain(&hierarchies(&mountinfo, &cgroup)) {
                prop_assert!(found.own.starts_with(&found.mount));
            }
        }
    }
}
