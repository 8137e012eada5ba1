//! Hints for a machine that does not permit a jail: how to enable it, as far as the machine shows the cause.

use std::fs;
use std::path::Path;

use conjure_guest::protocol::{SetupError, SetupStep};
use rustix::io::Errno;

use crate::error::{SandboxError, SandboxErrorKind};

/// The settings of a machine that decide whether a jail is possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamespaceFacts {
    /// `user.max_user_namespaces`.
    user_namespaces: Option<u64>,
    /// Debian's `kernel.unprivileged_userns_clone`.
    debian_switch: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`.
    apparmor_switch: Option<u64>,
    is_root: bool,
    is_container: bool,
}

impl NamespaceFacts {
    /// Reads the settings from small files of the machine.
    pub(super) fn detect() -> Self {
        let number = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok();
        // Container engines create these files in a container.
        let marks = ["/.dockerenv", "/run/.containerenv"];
        let own_user_namespace = fs::read_to_string("/proc/self/uid_map")
            .is_ok_and(|map| map.split_ascii_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"]);
        Self {
            user_namespaces: number("user/max_user_namespaces"),
            debian_switch: number("kernel/unprivileged_userns_clone"),
            apparmor_switch: number("kernel/apparmor_restrict_unprivileged_userns"),
            is_root: rustix::process::geteuid().is_root(),
            is_container: own_user_namespace || marks.into_iter().any(|mark| Path::new(mark).exists()),
        }
    }

    /// Why user namespaces fail, and how to enable them.
    fn namespaces(&self) -> &'static str {
        if self.user_namespaces == Some(0) {
            "user namespaces are switched off: `sysctl user.max_user_namespaces=15000` switches them on"
        } else if self.debian_switch == Some(0) && !self.is_root {
            "only root may make user namespaces: `sysctl kernel.unprivileged_userns_clone=1` lets everybody"
        } else if self.apparmor_switch == Some(1) && !self.is_root {
            "AppArmor restricts user namespaces: `sysctl kernel.apparmor_restrict_unprivileged_userns=0` lets \
             everybody make them, a profile with the rule `userns,` the host's program alone; or run the host as root"
        } else if self.is_container {
            "a container's own hardening refuses namespaces: run the host outside of it, or the container with \
             `--security-opt seccomp=PROFILE --security-opt systempaths=unconfined`, where PROFILE is the file \
             `docker/server/seccomp.json` of Conjure's source"
        } else {
            "user namespaces are needed: see `sysctl user.max_user_namespaces`, and the rules of SELinux, AppArmor or \
             seccomp that the host runs under"
        }
    }
}

/// The hint that follows the failure in the error message.
fn hint(failure: &SetupError, facts: &NamespaceFacts) -> &'static str {
    let errno = Errno::from_raw_os_error(failure.errno);
    match failure.step {
        _ if errno == Errno::NOSYS => "Linux 5.12 or later is needed",
        SetupStep::Namespaces if errno == Errno::NOSPC && facts.user_namespaces != Some(0) => {
            "as many namespaces exist as there may be: end other sandboxes, or raise the limits of \
             `sysctl -a --pattern '^user.max_'`"
        }
        SetupStep::Namespaces | SetupStep::UserMap => facts.namespaces(),
        SetupStep::Proc => {
            "`/proc` cannot be mounted where a part of it is covered, as containers have it: run the host outside of \
             the container, or the container with `--security-opt systempaths=unconfined`"
        }
        // AppArmor permits the namespace, but refuses all privileged operations in it.
        SetupStep::Root | SetupStep::Loopback | SetupStep::Privileges | SetupStep::Pivot
            if matches!(errno, Errno::PERM | Errno::ACCESS) =>
        {
            facts.namespaces()
        }
        SetupStep::Pivot => {
            "the root of a machine that runs from its initial memory disk cannot be left: run the host in a container \
             or on a disk"
        }
        SetupStep::Identity | SetupStep::HostDirs
            if facts.is_root && matches!(errno, Errno::PERM | Errno::INVAL) =>
        {
            "a host that is root needs the rights of root (CAP_SYS_ADMIN, CAP_SETUID, CAP_SETGID, CAP_CHOWN): give it \
             those, or run it as another user"
        }
        SetupStep::ControlGroups => "the control group was removed meanwhile: try again",
        SetupStep::Process => "no more processes can be had: end some, or raise the limit (`ulimit -u`)",
        _ => "look at the system's messages (`dmesg`)",
    }
}

/// The error for a jail that could not be set up.
pub(super) fn with_hint(failure: &SetupError, facts: &NamespaceFacts) -> SandboxError {
    let kind = match (failure.step, Errno::from_raw_os_error(failure.errno)) {
        (SetupStep::HostDirs, Errno::NOENT | Errno::NOTDIR) => SandboxErrorKind::NotFound,
        (SetupStep::HostDirs, Errno::ACCESS) => SandboxErrorKind::PermissionDenied,
        (SetupStep::HostDirs, _) if failure.errno == 0 => SandboxErrorKind::PathNotAllowed,
        (_, Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => SandboxErrorKind::Exhausted,
        _ => SandboxErrorKind::Unavailable,
    };
    let message = match kind {
        // These failures do not depend on settings of the machine.
        SandboxErrorKind::NotFound
        | SandboxErrorKind::PermissionDenied
        | SandboxErrorKind::PathNotAllowed
        | SandboxErrorKind::Exhausted => format!("the jail cannot be set up: {failure}"),
        _ => format!("the jail cannot be set up: {failure}; {}", hint(failure, facts)),
    };
    SandboxError::new(kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: NamespaceFacts = NamespaceFacts {
        user_namespaces: Some(10_000),
        debian_switch: None,
        apparmor_switch: None,
        is_root: false,
        is_container: false,
    };

    #[test]
    fn each_refusal_of_a_machine_has_its_remedy() {
        let none = NamespaceFacts { user_namespaces: Some(0), ..PLAIN };
        let debian = NamespaceFacts { debian_switch: Some(0), ..PLAIN };
        let ubuntu = NamespaceFacts { apparmor_switch: Some(1), ..PLAIN };
        let container = NamespaceFacts { is_container: true, is_root: true, ..PLAIN };
        let root = NamespaceFacts { is_root: true, ..PLAIN };
        let cases = [
            (SetupStep::Namespaces, Errno::NOSPC, &none, "user.max_user_namespaces=15000"),
            (SetupStep::Namespaces, Errno::NOSPC, &PLAIN, "end other sandboxes"),
            (SetupStep::Namespaces, Errno::PERM, &debian, "unprivileged_userns_clone=1"),
            (SetupStep::Namespaces, Errno::PERM, &container, "docker/server/seccomp.json"),
            (SetupStep::Namespaces, Errno::PERM, &PLAIN, "SELinux"),
            (SetupStep::UserMap, Errno::PERM, &ubuntu, "apparmor_restrict_unprivileged_userns=0"),
            (SetupStep::Root, Errno::ACCESS, &ubuntu, "apparmor_restrict_unprivileged_userns=0"),
            (SetupStep::Root, Errno::NOSYS, &PLAIN, "Linux 5.12"),
            (SetupStep::Proc, Errno::PERM, &container, "systempaths=unconfined"),
            (SetupStep::Pivot, Errno::INVAL, &root, "memory disk"),
            (SetupStep::Identity, Errno::PERM, &root, "CAP_SYS_ADMIN"),
            (SetupStep::HostDirs, Errno::PERM, &root, "CAP_SYS_ADMIN"),
        ];
        for (step, errno, facts, part) in cases {
            let failure = SetupError {
                step,
                errno: errno.raw_os_error(),
                doing: "do it".to_owned(),
                reason: errno.to_string(),
            };
            let error = with_hint(&failure, facts);
            assert_eq!(error.kind(), SandboxErrorKind::Unavailable);
            assert!(error.to_string().contains(part), "{step:?} {errno}: {error}");
        }
    }

    #[test]
    fn what_is_not_the_machine_s_fault_is_told_as_what_it_is() {
        let cases = [
            (SetupStep::HostDirs, Errno::NOENT, SandboxErrorKind::NotFound),
            (SetupStep::HostDirs, Errno::ACCESS, SandboxErrorKind::PermissionDenied),
            (SetupStep::Process, Errno::AGAIN, SandboxErrorKind::Exhausted),
        ];
        for (step, errno, kind) in cases {
            let (doing, reason) = ("open `/x` for the jail".to_owned(), errno.to_string());
            let failure = SetupError { step, errno: errno.raw_os_error(), doing, reason };
            assert_eq!(with_hint(&failure, &PLAIN).kind(), kind);
        }
    }
}
