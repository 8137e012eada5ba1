//! The notice that tells the model about a replaced sandbox.

use std::fmt;
use std::path::Path;

use conjure_sandbox::{Boundary, HostAccess, Isolation, SandboxError};

/// The maximum length of a reason in the notice, in characters.
const MAX_REASON_CHARS: usize = 400;

/// Why the sandbox was replaced, and what was lost with the former one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelNotice {
    reason: NoticeReason,
    files: FilesLost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum NoticeReason {
    /// The sandbox was lost, for this reason.
    Lost(String),
    /// The session was passivated, and its sandbox was stopped.
    Revived,
    /// The sandbox was stopped because it was idle.
    StoppedIdle,
}

/// What happens to files outside of the workspace when a sandbox ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilesLost {
    /// They belong to the sandbox, and are removed with it.
    Own,
    /// They are files of the host, and stay.
    OfHost,
}

impl ModelNotice {
    pub(crate) fn lost(reason: &SandboxError, isolation: Isolation) -> Self {
        Self {
            reason: NoticeReason::Lost(reason.to_string().chars().take(MAX_REASON_CHARS).collect()),
            files: FilesLost::of(isolation),
        }
    }

    pub(super) const fn stopped_idle(isolation: Isolation) -> Self {
        Self { reason: NoticeReason::StoppedIdle, files: FilesLost::of(isolation) }
    }

    pub(crate) const fn revived(isolation: Isolation) -> Self {
        Self { reason: NoticeReason::Revived, files: FilesLost::of(isolation) }
    }

    /// The text of the notice, for a sandbox with this workspace and this access to the host's files.
    pub(crate) fn text(&self, workspace: &Path, sharing: HostAccess) -> String {
        let workspace = workspace.display();
        let files = match (self.files, sharing) {
            (_, HostAccess::Copied) => format!(
                ", all files that were not in `{workspace}`, such as those in `/tmp`, and what was changed in `{workspace}` \
                 since it was last copied to the host. Still there: `{workspace}` as it was then, and the skills"
            ),
            (FilesLost::Own, HostAccess::Mounted) => format!(
                ", and all files that were not in `{workspace}`, such as those in `/tmp`. Still there: `{workspace}` \
                 as it was left, and the skills"
            ),
            (FilesLost::OfHost, HostAccess::Mounted) => {
                format!(". Still there: all files, those in `{workspace}` as they were left")
            }
        };
        format!(
            "[{}. This ran in a new sandbox. Lost with the previous sandbox: all its processes{files}.]",
            self.reason
        )
    }
}

impl FilesLost {
    const fn of(isolation: Isolation) -> Self {
        match isolation.filesystem {
            Boundary::Enforced | Boundary::Watched => Self::Own,
            Boundary::Open => Self::OfHost,
        }
    }
}

impl fmt::Display for NoticeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) => {
                write!(f, "Before this call the sandbox ended: {reason}")
            }
            Self::Revived => f.write_str("The session was resumed"),
            Self::StoppedIdle => f.write_str("The sandbox was stopped because it was idle"),
        }
    }
}

#[cfg(test)]
mod tests {
    use conjure_sandbox::SandboxErrorKind;

    use super::*;

    #[test]
    fn the_model_is_told_what_is_gone_and_what_is_there() {
        let reason = SandboxError::new(
            SandboxErrorKind::Lost,
            "the sandbox was lost: the guest ended (killed by signal 9)",
        );
        let lost = ModelNotice::lost(&reason, Isolation::FULL);
        assert_eq!(
            lost.text(Path::new("/workspace"), HostAccess::Mounted),
            "[Before this call the sandbox ended: the sandbox was lost: the guest ended (killed by signal 9). This ran in a \
             new sandbox. Lost with the previous sandbox: all its processes, and all files that were not in `/workspace`, \
             such as those in `/tmp`. Still there: `/workspace` as it was left, and the skills.]"
        );
        let resumed = ModelNotice::revived(Isolation::NONE);
        assert_eq!(
            resumed.text(Path::new("/home/me/project"), HostAccess::Mounted),
            "[The session was resumed. This ran in a new sandbox. Lost with the previous sandbox: all its processes. Still \
             there: all files, those in `/home/me/project` as they were left.]"
        );
    }

    #[test]
    fn a_workspace_that_travels_is_as_it_was_when_it_was_last_copied() {
        let resumed = ModelNotice::revived(Isolation::FULL);
        assert_eq!(
            resumed.text(Path::new("/workspace"), HostAccess::Copied),
            "[The session was resumed. This ran in a new sandbox. Lost with the previous sandbox: all its processes, all \
             files that were not in `/workspace`, such as those in `/tmp`, and what was changed in `/workspace` since it \
             was last copied to the host. Still there: `/workspace` as it was then, and the skills.]"
        );
    }

    #[test]
    fn a_reason_of_any_length_is_cut() {
        let reason = SandboxError::new(SandboxErrorKind::Lost, "ä".repeat(10_000));
        let text =
            ModelNotice::lost(&reason, Isolation::FULL).text(Path::new("/workspace"), HostAccess::Mounted);
        assert!(text.chars().count() < 1_000, "{text}");
    }
}
