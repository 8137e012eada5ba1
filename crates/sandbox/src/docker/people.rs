//! As whom commands of a container run.
//!
//! What they write into the workspace must be the host's to read and to delete, so they are the workspace's owner. Where that
//! is root, or the host is root and demands that they have no rights of anybody who owns something, they are somebody who owns
//! nothing, to whom the files are handed over for as long as the container lives: a root in a container has power over its
//! guest.

use conjure_guest::protocol::{Owner, PlaceKind};

use super::facts::{EngineFacts, EngineKind};
use super::options::DockerOptions;
use crate::isolation::Boundary;
use crate::jail::{HandedOver, Runner, stranger};

/// Somebody, where an engine has few users, all of them nobody's on its machine.
const MAPPED: u32 = 65_532;

/// As whom commands run.
#[derive(Debug)]
pub(super) struct People {
    /// As the engine takes it.
    pub(super) user: String,
    /// The numbers of user and group inside, where they are known.
    pub(super) numbers: Option<(u32, u32)>,
    /// How users inside are mapped, where that is not as the engine has it by itself.
    pub(super) user_namespace: Option<&'static str>,
    /// What must be theirs first, and is taken back when they are gone.
    pub(super) handed_over: HandedOver,
    /// Whether they have no rights of anybody who owns something on the host.
    pub(super) identity: Boundary,
}

/// What decides about it.
#[derive(Debug)]
pub(super) struct Circumstances<'a> {
    pub(super) facts: &'a EngineFacts,
    pub(super) options: &'a DockerOptions,
    /// What the host can have commands run as.
    pub(super) runner: Runner,
    /// The workspace's owner and group.
    pub(super) owner: (u32, u32),
    /// Whether it must be somebody who owns nothing.
    pub(super) demanded: Boundary,
    /// The folders that commands may write.
    pub(super) writable: Vec<&'a PlaceKind>,
}

impl People {
    pub(super) fn choose(given: &Circumstances<'_>) -> Self {
        let Circumstances { facts, options, runner, owner, demanded, writable } = given;
        if let Some(user) = &options.user {
            return Self::named(user);
        }
        let own = match runner.own() {
            Owner::Mapped { uid, gid } => (uid, gid),
            Owner::Kept => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        };
        match (facts.is_rootless, facts.kind) {
            // There is one user on the host for all of it: the host's own, who is the same inside.
            (true, EngineKind::Podman) => {
                Self { user_namespace: Some("keep-id"), ..Self::numbered(own.0, own.1) }
            }
            // Or is called root inside, and is as powerless.
            (true, EngineKind::Docker) => Self::numbered(0, 0),
            (false, _) => match runner.dedicated() {
                Some(nobody) if owner.0 == 0 || *demanded == Boundary::Enforced => Self {
                    handed_over: HandedOver::of(*runner, writable.iter().copied(), None),
                    identity: Boundary::Enforced,
                    ..Self::numbered(nobody, nobody)
                },
                None if owner.0 == 0 => Self::numbered(own.0, own.1),
                _ => Self::numbered(owner.0, owner.1),
            },
        }
    }

    /// Of a container whose files are all the engine's: somebody who owns nothing there.
    pub(super) fn elsewhere(facts: &EngineFacts, options: &DockerOptions) -> Self {
        if let Some(user) = &options.user {
            return Self::named(user);
        }
        let nobody = if facts.is_rootless || facts.maps_users { MAPPED } else { stranger() };
        Self { identity: Boundary::Enforced, ..Self::numbered(nobody, nobody) }
    }

    /// Who is asked for by name or number.
    fn named(user: &str) -> Self {
        match numbers(user) {
            // The engine would take a group that is not named from the image: root's, where it does not know the user.
            Some((user, group)) => Self::numbered(user, group),
            None => Self { user: user.to_owned(), numbers: None, ..Self::numbered(0, 0) },
        }
    }

    fn numbered(user: u32, group: u32) -> Self {
        Self {
            user: format!("{user}:{group}"),
            numbers: Some((user, group)),
            user_namespace: None,
            handed_over: HandedOver::default(),
            identity: Boundary::Open,
        }
    }
}

/// `USER:GROUP` or `USER` in numbers.
fn numbers(user: &str) -> Option<(u32, u32)> {
    let (user, group) = user.split_once(':').unwrap_or((user, user));
    Some((user.parse().ok()?, group.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_numbers() {
        assert_eq!(numbers("1000:100"), Some((1000, 100)));
        assert_eq!(numbers("1000"), Some((1000, 1000)));
        assert_eq!(numbers("sandbox"), None);
        assert_eq!(numbers("1000:users"), None);
    }
}
