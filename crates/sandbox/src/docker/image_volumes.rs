//! Replaces the volumes of an image by in-memory file systems with a size limit.
//!
//! An engine creates a volume wherever the image declares one and nothing is mounted at exactly that path, also
//! inside other mounts. Commands could fill it without a limit. So every such path gets a mount, or the image is
//! refused.

use std::collections::BTreeSet;
use std::path::Path;

use super::image_info::unusable;
use crate::docker::container::container_spec::{BindMount, OWN_MEMORY};
use crate::error::SandboxError;
use crate::jail::RESERVED;

/// Paths that nothing may be mounted in or over.
const CLOSED: [&str; 3] = ["/dev", "/proc", "/sys"];

/// A path that neither the sandbox nor a file of an image needs.
const MAY_BE_HIDDEN: &str = "/run";

/// The paths that need a memory file system for these volumes, in a container with these mounts.
///
/// # Errors
/// `Unavailable` where that would hide a mount, or files of the image that commands need.
pub(super) fn in_memory(
    volumes: &BTreeSet<String>,
    bound: &[BindMount],
) -> Result<Vec<String>, SandboxError> {
    let is_mounted =
        |path: &str| OWN_MEMORY.contains(&path) || bound.iter().any(|mount| mount.target == path);
    let mut paths = Vec::new();
    for volume in volumes.iter().filter(|path| !is_mounted(path)) {
        let path = Path::new(volume);
        let within = bound.iter().map(|mount| mount.target.as_str()).chain(CLOSED);
        if let Some(own) = within.into_iter().find(|own| path.starts_with(own)) {
            return Err(unusable(volume, &format!("and `{own}` is the sandbox's own")));
        }
        let handle = bound.iter().map(|mount| mount.target.as_str()).chain(RESERVED);
        if let Some(own) =
            handle.into_iter().find(|own| *own != MAY_BE_HIDDEN && Path::new(own).starts_with(path))
        {
            return Err(unusable(
                volume,
                &format!("which would take the place of the sandbox's own `{own}`"),
            ));
        }
        paths.push(volume.clone());
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use crate::error::SandboxErrorKind;
    use conjure_guest::protocol::Access;

    use super::*;

    fn of(volume: &str) -> Result<Vec<String>, SandboxError> {
        let bound = ["/workspace", "/output", "/mnt/skills", "/artifacts", "/etc/passwd", "/srv/allowed"]
            .map(|target| BindMount {
                source: format!("/host{target}"),
                target: target.to_owned(),
                access: Access::ReadWrite,
            });
        in_memory(&[volume.to_owned()].into(), &bound)
    }

    #[test]
    fn every_volume_has_a_mount_at_its_own_path() {
        for volume in
            ["/data", "/run", "/tmp/deep", "/home/sandbox/.cache", "/var/lib/data", "/mnt/other", "/srv/x"]
        {
            assert_eq!(of(volume).unwrap(), [volume]);
        }
        // There is one already.
        for volume in
            ["/workspace", "/output", "/mnt/skills", "/tmp", "/var/tmp", "/home/sandbox", "/srv/allowed"]
        {
            assert!(of(volume).unwrap().is_empty(), "{volume}");
        }
    }

    #[test]
    fn what_would_hide_something_is_refused() {
        for (volume, own) in [
            ("/workspace/deep", "/workspace"),
            ("/output/x", "/output"),
            ("/mnt/skills/x", "/mnt/skills"),
            ("/srv/allowed/deep/er", "/srv/allowed"),
            ("/proc/x", "/proc"),
            ("/dev/shm", "/dev"),
            ("/sys/fs/cgroup", "/sys"),
            ("/mnt", "/mnt/skills"),
            ("/srv", "/srv/allowed"),
            ("/home", "/home/sandbox"),
            ("/etc", "/etc/passwd"),
            ("/usr", "/usr"),
            ("/var", "/var"),
        ] {
            let refused = of(volume).unwrap_err();
            assert_eq!(refused.kind(), SandboxErrorKind::Unavailable);
            assert!(
                refused.to_string().contains(&format!("own `{own}`"))
                    || refused.to_string().contains(&format!("and `{own}` is")),
                "{refused}"
            );
        }
    }
}
