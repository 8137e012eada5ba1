//! [`ContainerUser`]: the user of a container's commands, and how users are mapped.
//!
//! The host must be able to read and delete what commands write into the workspace, so commands run as the
//! workspace's owner. If the host process is root, two cases differ: the owner is root, or the context requires a
//! user without rights. Then commands run as a user that owns nothing, and that user owns the files while the
//! container lives. Commands must not run as root, because root in a container could control the guest.

use conjure_guest::protocol::{MountKind, OwnerMapping};

use crate::docker::engine::engine_info::{EngineInfo, EngineKind};
use crate::docker::options::DockerOptions;
use crate::jail::{JailUser, OwnershipTransfer, unused_uid};
use crate::settings::isolation::Boundary;

/// The user id in containers of an engine that maps only a range of users. On its machine, none of these ids belongs
/// to a user that owns files.
const MAPPED_UNUSED_UID: u32 = 65_532;

/// The user of commands.
#[derive(Debug)]
pub(crate) struct ContainerUser {
    /// The value for the engine.
    pub(crate) user: String,
    /// The ids of user and group in the container, where they are known.
    pub(crate) ids: Option<(u32, u32)>,
    /// The user namespace mode, if it is not the engine's default.
    pub(crate) user_namespace: Option<&'static str>,
    /// The directories whose owner is changed to this user, and restored at the end.
    pub(crate) ownership: OwnershipTransfer,
    /// Whether the user owns nothing on the host.
    pub(crate) identity: Boundary,
}

/// The inputs of the choice.
#[derive(Debug)]
pub(crate) struct UserChoice<'a> {
    pub(crate) info: &'a EngineInfo,
    pub(crate) options: &'a DockerOptions,
    /// The user that the host can run commands as.
    pub(crate) runner: JailUser,
    /// The user id and group id of the workspace's owner.
    pub(crate) owner: (u32, u32),
    /// Whether the context requires a user that owns nothing.
    pub(crate) demanded: Boundary,
    /// The directories that commands may write.
    pub(crate) writable: Vec<&'a MountKind>,
}

impl ContainerUser {
    pub(crate) fn select(given: &UserChoice<'_>) -> Self {
        let UserChoice { info, options, runner, owner, demanded, writable } = given;
        if let Some(user) = &options.user {
            return Self::named(user);
        }
        let host_dirs_owner = match runner.host_dirs_owner() {
            OwnerMapping::Mapped { uid, gid } => (uid, gid),
            OwnerMapping::Unchanged => {
                (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
            }
        };
        match (info.is_rootless, info.kind) {
            // Podman: one user of the host owns everything. Commands run as the host's own user, with the same id in
            // the container.
            (true, EngineKind::Podman) => Self {
                user_namespace: Some("keep-id"),
                ..Self::with_ids(host_dirs_owner.0, host_dirs_owner.1)
            },
            // Docker: the container's root is the host's own user, without additional rights.
            (true, EngineKind::Docker) => Self::with_ids(0, 0),
            (false, _) => match runner.dedicated_uid() {
                Some(nobody) if owner.0 == 0 || *demanded == Boundary::Enforced => Self {
                    ownership: OwnershipTransfer::from_mounts(*runner, writable.iter().copied(), None),
                    identity: Boundary::Enforced,
                    ..Self::with_ids(nobody, nobody)
                },
                None if owner.0 == 0 => Self::with_ids(host_dirs_owner.0, host_dirs_owner.1),
                _ => Self::with_ids(owner.0, owner.1),
            },
        }
    }

    /// Selects the user for a container whose files are all on the engine's machine: a user that owns nothing there.
    pub(crate) fn for_remote_engine(info: &EngineInfo, options: &DockerOptions) -> Self {
        if let Some(user) = &options.user {
            return Self::named(user);
        }
        let nobody = if info.is_rootless || info.maps_users { MAPPED_UNUSED_UID } else { unused_uid() };
        Self { identity: Boundary::Enforced, ..Self::with_ids(nobody, nobody) }
    }

    /// The user of the options, by name or id.
    fn named(user: &str) -> Self {
        match ids(user) {
            // A group must be given. Otherwise the engine would take it from the image: root's group, if the image
            // does not have the user.
            Some((user, group)) => Self::with_ids(user, group),
            None => Self { user: user.to_owned(), ids: None, ..Self::with_ids(0, 0) },
        }
    }

    fn with_ids(user: u32, group: u32) -> Self {
        Self {
            user: format!("{user}:{group}"),
            ids: Some((user, group)),
            user_namespace: None,
            ownership: OwnershipTransfer::default(),
            identity: Boundary::Open,
        }
    }
}

/// Parses `USER:GROUP` or `USER` as ids.
fn ids(user: &str) -> Option<(u32, u32)> {
    let (user, group) = user.split_once(':').unwrap_or((user, user));
    Some((user.parse().ok()?, group.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_numbers() {
        assert_eq!(ids("1000:100"), Some((1000, 100)));
        assert_eq!(ids("1000"), Some((1000, 1000)));
        assert_eq!(ids("sandbox"), None);
        assert_eq!(ids("1000:users"), None);
    }
}
