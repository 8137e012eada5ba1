//! As whom commands run: inside always the user `sandbox`, on the host somebody who owns nothing, where that can be.

use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::RangeInclusive;

use conjure_guest::protocol::{BecomeUser, Identity, Owner, TakeBack, WhichFiles};

/// The user's and the group's number inside.
pub(crate) const INSIDE: u32 = 1000;

/// The user's name inside.
pub(crate) const NAME: &str = "sandbox";

/// The user's home inside.
pub(crate) const HOME: &str = "/home/sandbox";

/// Numbers that nobody else uses: the upper part of what systemd keeps for containers.
const DEDICATED: RangeInclusive<u32> = 1_610_612_736..=1_879_048_191;

/// Nobody, where the host itself lives in a user namespace that does not reach so far.
const NOBODY: u32 = 65534;

/// As whom a jail runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Runner {
    become_user: BecomeUser,
    /// The host's user, to whom everything belongs that commands write.
    host: (u32, u32),
}

impl Runner {
    /// A host that is root starts each jail as another user that owns nothing; any other stays who it is.
    pub(crate) fn choose() -> Self {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let host = (uid.as_raw(), gid.as_raw());
        let become_user = if uid.is_root() {
            let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
            BecomeUser::Dedicated(dedicated(&map, RandomState::new().build_hasher().finish()))
        } else {
            BecomeUser::Stay
        };
        Self { become_user, host }
    }

    pub(crate) fn identity(self) -> Identity {
        Identity { become_user: self.become_user, uid: INSIDE, gid: INSIDE }
    }

    /// The user and group that own nothing, where the host can have commands run as such.
    #[cfg(feature = "docker")]
    pub(crate) fn dedicated(self) -> Option<u32> {
        match self.become_user {
            BecomeUser::Dedicated(user) => Some(user),
            BecomeUser::Stay => None,
        }
    }

    /// Whether commands have no rights of a user that owns anything on the host.
    pub(crate) fn is_dedicated(self) -> bool {
        matches!(self.become_user, BecomeUser::Dedicated(_))
    }

    /// Whose the files of a folder of the host's are that has this owner: they are the jail's user's inside, and what
    /// commands make there is its owner's on the host. A host that is root may work for others.
    pub(crate) fn owner(self, uid: u32, gid: u32) -> Owner {
        match self.become_user {
            // The jail's user is the host's.
            BecomeUser::Stay => Owner::Kept,
            BecomeUser::Dedicated(_) => Owner::Mapped { uid, gid },
        }
    }

    /// Whose the host's own folders are.
    pub(crate) fn own(self) -> Owner {
        self.owner(self.host.0, self.host.1)
    }

    /// What must be taken back of a folder with this owner, first: a crashed host's jail has it still.
    pub(crate) fn left(self, folder: &str, uid: u32) -> Option<TakeBack> {
        let is_left = matches!(self.become_user, BecomeUser::Dedicated(_)) && DEDICATED.contains(&uid);
        is_left.then(|| TakeBack {
            folder: folder.to_owned(),
            from: uid,
            uid: self.host.0,
            gid: self.host.1,
            which: WhichFiles::All,
        })
    }
}

/// A number that nobody else uses on a machine that is not this one.
#[cfg(feature = "docker")]
pub(crate) fn stranger() -> u32 {
    dedicated("0 0 4294967295", RandomState::new().build_hasher().finish())
}

/// A number out of the range, if the host's own map of users holds it.
fn dedicated(uid_map: &str, random: u64) -> u32 {
    let count = u64::from(DEDICATED.end() - DEDICATED.start()) + 1;
    let offset = u32::try_from(random % count).unwrap_or_default();
    let wanted = DEDICATED.start() + offset;
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
            assert!(DEDICATED.contains(&dedicated(whole, random)));
        }
        assert_ne!(dedicated(whole, 1), dedicated(whole, 2));
        assert_eq!(dedicated("0 100000 65536\n", 7), NOBODY);
        assert_eq!(dedicated("", 7), NOBODY);
        assert!(DEDICATED.contains(&dedicated("0 1000 1\n1 100000 2000000000\n", 7)));
    }
}
