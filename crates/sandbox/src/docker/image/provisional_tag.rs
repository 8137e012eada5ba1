//! Provisional image names, for engines that cannot stop an aborted build.
//!
//! State: an image with such a name, until its build has ended. The name contains the building process. If that process
//! dies, the next build removes the image.

use std::io;

use super::name::ImageName;
use crate::cgroup::OwnerProcess;

const REPOSITORY: &str = "localhost/conjure-build-";

/// The age at which a provisional image counts as abandoned if its builder is on another machine. It is longer than
/// any build takes.
const OLD: i64 = 24 * 60 * 60;

/// The provisional name for the build with this number in this process.
pub(super) fn for_build(number: &str) -> io::Result<ImageName> {
    let name = format!("{REPOSITORY}{number}:{}.{}", boot()?, OwnerProcess::current()?.name(0));
    name.parse().map_err(io::Error::other)
}

/// Whether an image of this name, created at `created` (seconds since 1970), is provisional and its builder is dead.
pub(super) fn is_abandoned(name: &str, created: i64, now: i64) -> bool {
    let tag = name.strip_prefix(REPOSITORY).and_then(|rest| rest.split_once(':'));
    let Some((of, owner)) = tag.and_then(|(_, tag)| tag.split_once('.')) else { return false };
    let Some(owner) = OwnerProcess::parse(owner) else { return false };
    let is_here = boot().is_ok_and(|boot| boot == of);
    (is_here && owner.is_dead()) || created.saturating_add(OLD) < now
}

fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_its_builders_until_they_are_dead() {
        let own = for_build("0123456789abcdef01234567").unwrap().to_string();
        let (now, old) = (1_800_000_000, 1_800_000_000 - OLD - 1);
        assert!(!is_abandoned(&own, now, now));
        // A process with this one's number that was started at another time, so it is dead.
        let (rest, started) = own.trim_end_matches("-0").rsplit_once('-').unwrap();
        let dead = format!("{rest}-{}-0", started.parse::<u64>().unwrap() + 1);
        assert!(is_abandoned(&dead, now, now));
        let elsewhere = dead.replace(&boot().unwrap(), "another");
        assert!(!is_abandoned(&elsewhere, now, now));
        assert!(is_abandoned(&elsewhere, old, now));
        for name in
            ["conjure/sandbox:latest", "localhost/conjure-build-1:whole", "localhost/conjure-build-1:a.b"]
        {
            assert!(!is_abandoned(name, old, now), "{name}");
        }
    }
}
