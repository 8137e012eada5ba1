//! Where an image wants volumes, and what it has there instead: memory of a size.
//!
//! An engine makes a volume wherever the image wants one and nothing is mounted at exactly that path, also within what is
//! mounted: room on its disk that nobody counts, which would be there for commands to write. So every path has a mount, or the
//! image is refused.

use std::collections::BTreeSet;
use std::path::Path;

use super::spec::{Bound, OWN_MEMORY};
use crate::error::{SandboxError, SandboxErrorKind};
use crate::jail::RESERVED;

/// What nothing is mounted in, or over.
const CLOSED: [&str; 3] = ["/dev", "/proc", "/sys"];

/// What a sandbox has no use of itself, and no file of an image.
const FREE: &str = "/run";

/// Where memory must be for an image that wants these volumes, in a container with these folders of the host's.
///
/// # Errors
/// `Unavailable` where that would hide what the host has there, or what commands need of the image.
pub(super) fn in_memory(volumes: &BTreeSet<String>, bound: &[Bound]) -> Result<Vec<String>, SandboxError> {
    let is_mounted =
        |path: &str| OWN_MEMORY.contains(&path) || bound.iter().any(|bound| bound.target == path);
    let mut places = Vec::new();
    for volume in volumes.iter().filter(|path| !is_mounted(path)) {
        let path = Path::new(volume);
        let within = bound.iter().map(|bound| bound.target.as_str()).chain(CLOSED);
        if let Some(own) = within.into_iter().find(|own| path.starts_with(own)) {
            return Err(unusable(volume, &format!("and `{own}` is the sandbox's own")));
        }
        let held = bound.iter().map(|bound| bound.target.as_str()).chain(RESERVED);
        if let Some(own) = held.into_iter().find(|own| *own != FREE && Path::new(own).starts_with(path)) {
            return Err(unusable(
                volume,
                &format!("which would take the place of the sandbox's own `{own}`"),
            ));
        }
        places.push(volume.clone());
    }
    Ok(places)
}

/// An image that cannot be used for a volume that it wants.
pub(super) fn unusable(volume: &str, why: &str) -> SandboxError {
    let message = format!(
        "the image wants a volume at `{volume}`, {why}; take an image without that `VOLUME`, or build this one without it"
    );
    SandboxError::new(SandboxErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use conjure_guest::protocol::Access;

    use super::*;

    fn of(volume: &str) -> Result<Vec<String>, SandboxError> {
        let bound = ["/workspace", "/output", "/mnt/skills", "/artifacts", "/etc/passwd", "/srv/allowed"]
            .map(|target| Bound {
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
