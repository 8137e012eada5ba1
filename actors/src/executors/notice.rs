//! What the model is told of a sandbox that is another one than before.

use std::fmt;
use std::path::Path;

use conjure_sandbox::{Boundary, Isolation, SandboxError, Sharing};

/// Characters of a reason that are told.
const REASON: usize = 400;

/// Why the sandbox is another one than the model knows, and what went with that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    why: Why,
    files: Files,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    /// It was lost, for this reason.
    Lost(String),
    /// The conversation rested, and the sandbox ended then.
    Resumed,
    /// Nobody used it for a while.
    PutAway,
}

/// What becomes of files outside the workspace when a sandbox ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    /// They are the sandbox's own, and go with it.
    Own,
    /// They are the host's.
    OfHost,
}

impl Notice {
    pub(crate) fn lost(reason: &SandboxError, isolation: Isolation) -> Self {
        Self {
            why: Why::Lost(reason.to_string().chars().take(REASON).collect()),
            files: Files::of(isolation),
        }
    }

    pub(super) const fn put_away(isolation: Isolation) -> Self {
        Self { why: Why::PutAway, files: Files::of(isolation) }
    }

    pub(crate) const fn resumed(isolation: Isolation) -> Self {
        Self { why: Why::Resumed, files: Files::of(isolation) }
    }

    /// The note, for a sandbox with this workspace, that has it so.
    pub(crate) fn text(&self, workspace: &Path, sharing: Sharing) -> String {
        let workspace = workspace.display();
        let files = match (self.files, sharing) {
            (_, Sharing::Transferred) => format!(
                ", all files that were not in `{workspace}`, such as those in `/tmp`, and what was changed in `{workspace}` \
                 since it was last copied to the host. Still there: `{workspace}` as it was then, and the skills"
            ),
            (Files::Own, Sharing::Shared) => format!(
                ", and all files that were not in `{workspace}`, such as those in `/tmp`. Still there: `{workspace}` \
                 as it was left, and the skills"
            ),
            (Files::OfHost, Sharing::Shared) => {
                format!(". Still there: all files, those in `{workspace}` as they were left")
            }
        };
        format!(
            "[{}. This ran in a new sandbox. Gone with the one before: everything that ran in it, also in the \
             background{files}.]",
            self.why
        )
    }
}

impl Files {
    const fn of(isolation: Isolation) -> Self {
        match isolation.filesystem {
            Boundary::Enforced | Boundary::Watched => Self::Own,
            Boundary::Open => Self::OfHost,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) => {
                write!(f, "Before this call the sandbox ended: {reason}")
            }
            Self::Resumed => f.write_str("The conversation was taken up again"),
            Self::PutAway => f.write_str("The sandbox was put away, as nothing was called in it for a while"),
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
        let lost = Notice::lost(&reason, Isolation::FULL);
        assert_eq!(
            lost.text(Path::new("/workspace"), Sharing::Shared),
            "[Before this call the sandbox ended: the sandbox was lost: the guest ended (killed by signal 9). This ran in a \
             new sandbox. Gone with the one before: everything that ran in it, also in the background, and all files \
             that were not in `/workspace`, such as those in `/tmp`. Still there: `/workspace` as it was left, and the \
             skills.]"
        );
        let resumed = Notice::resumed(Isolation::NONE);
        assert_eq!(
            resumed.text(Path::new("/home/me/project"), Sharing::Shared),
            "[The conversation was taken up again. This ran in a new sandbox. Gone with the one before: everything that ran \
             in it, also in the background. Still there: all files, those in `/home/me/project` as they were left.]"
        );
    }

    #[test]
    fn a_workspace_that_travels_is_as_it_was_when_it_was_last_copied() {
        let resumed = Notice::resumed(Isolation::FULL);
        assert_eq!(
            resumed.text(Path::new("/workspace"), Sharing::Transferred),
            "[The conversation was taken up again. This ran in a new sandbox. Gone with the one before: everything that ran \
             in it, also in the background, all files that were not in `/workspace`, such as those in `/tmp`, and what was \
             changed in `/workspace` since it was last copied to the host. Still there: `/workspace` as it was then, and \
             the skills.]"
        );
    }

    #[test]
    fn a_reason_of_any_length_is_cut() {
        let reason = SandboxError::new(SandboxErrorKind::Lost, "ä".repeat(10_000));
        let text = Notice::lost(&reason, Isolation::FULL).text(Path::new("/workspace"), Sharing::Shared);
        assert!(text.chars().count() < 1_000, "{text}");
    }
}
