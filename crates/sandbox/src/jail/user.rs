//! [`JailUser`]: the user of commands. In the sandbox it is always `sandbox`; on the host it is a user that owns
//! nothing, where possible.

use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::RangeInclusive;

use conjure_guest::protocol::{BecomeUser, ChownRequest, FileSelection, Identity, OwnerMapping};

/// The user id and group id in the sandbox.
pub(crate) const INSIDE: u32 = 1000;

/// The user name in the sandbox.
pub(crate) const NAME: &str = "sandbox";

/// The home directory in the sandbox.
pub(crate) const HOME: &str = "/home/sandbox";

/// The range of user ids for jails. No other user has these ids: they are the upper part of the range that systemd
/// reserves for containers.
const DEDICATED_UIDS: RangeInclusive<u32> = 1_610_612_736..=1_879_048_191;

/// The user `nobody`. It is used when the user namespace of the host process does not include that range.
const NOBODY: u32 = 65534;

/// The user and group of a jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JailUser {
    become_user: BecomeUser,
    /// The user and group of this process, who own all files that commands write.
    host: (u32, u32),
}

impl JailUser {
    /// Chooses the user. If this process is root, each jail gets a user that owns nothing; otherwise commands keep this
    /// process's user.
    pub(crate) fn choose() -> Self {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let host = (uid.as_raw(), gid.as_raw());
        let become_user = if uid.is_root() {
            let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
            BecomeUser::Dedicated(choose_dedicated_uid(&map, RandomState::new().build_hasher().finish()))
        } else {
            BecomeUser::Stay
        };
        Self { become_user, host }
    }

    pub(crate) fn identity(self) -> Identity {
        Identity { become_user: self.become_user, uid: INSIDE, gid: INSIDE }
    }

    /// The id of a user that owns nothing, if commands run as one.
    #[cfg(feature = "docker")]
    pub(crate) fn dedicated_uid(self) -> Option<u32> {
        match self.become_user {
            BecomeUser::Dedicated(user) => Some(user),
            BecomeUser::Stay => None,
        }
    }

    /// Whether commands have no rights of a user that owns anything on the host.
    pub(crate) fn is_dedicated(self) -> bool {
        matches!(self.become_user, BecomeUser::Dedicated(_))
    }

    /// The mapping for a directory of the host with this owner. Inside, its files belong to the jail's user; new
    /// files belong to the directory's owner on the host. If the host process is root, it may run sandboxes for other
    /// users.
    pub(crate) fn owner(self, uid: u32, gid: u32) -> OwnerMapping {
        match self.become_user {
            // The jail runs as the host's user, so no mapping is needed.
            BecomeUser::Stay => OwnerMapping::Unchanged,
            BecomeUser::Dedicated(_) => OwnerMapping::Mapped { uid, gid },
        }
    }

    /// The mapping for directories of this process.
    pub(crate) fn host_dirs_owner(self) -> OwnerMapping {
        self.owner(self.host.0, self.host.1)
    }

    /// The request that restores the owner of a directory that belongs to a jail's user because a host process
    /// crashed; `None` if another user owns it.
    pub(crate) fn reclaim_request(self, dir: &str, uid: u32) -> Option<ChownRequest> {
        let is_left = matches!(self.become_user, BecomeUser::Dedicated(_)) && DEDICATED_UIDS.contains(&uid);
        is_left.then(|| ChownRequest {
            dir: dir.to_owned(),
            from: uid,
            uid: self.host.0,
            gid: self.host.1,
            selection: FileSelection::All,
        })
    }
}

/// A user id that is also unused on other machines.
#[cfg(feature = "docker")]
pub(crate) fn unused_uid() -> u32 {
    choose_dedicated_uid("0 0 4294967295", RandomState::new().build_hasher().finish())
}

/// A user id of the range, if the host's user namespace maps it.
fn choose_dedicated_uid(uid_map: &str, random: u64) -> u32 {
    let count = u64::from(DEDICATED_UIDS.end() - DEDICATED_UIDS.start()) + 1;
    let offset = u32::try_from(random % count).unwrap_or_default();
    let wanted = DEDICATED_UIDS.start() + offset;
    let is_mapped = uid_map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().filter_map(|number| number.parse::<u64>().ok());
        let (first, length) = (numbers.next(), numbers.nth(1));
        first
            .zip(length)
            .is_some_and(|(first, length)| (first..first.saturating_add(length)).contains(&u64::from(wanted)))
    });
    if is_mapped { wanted } else { NOBODY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dedicated_user_is_one_that_the_host_can_name() {
        let whole = "         0          0 4294967295\n";
        for random in [0, 1, u64::MAX, 268_435_455, 268_435_456] {
            assert!(DEDICATED_UIDS.contains(&choose_dedicated_uid(whole, random)));
        }
        assert_ne!(choose_dedicated_uid(whole, 1), choose_dedicated_uid(whole, 2));
        assert_eq!(choose_dedicated_uid("0 100000 65536\n", 7), NOBODY);
        assert_eq!(choose_dedicated_uid("", 7), NOBODY);
        assert!(DEDICATED_UIDS.contains(&choose_dedicated_uid("0 1000 1\n1 100000 2000000000\n", 7)));
    }
}
