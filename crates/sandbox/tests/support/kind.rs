//! A kind of sandbox, as the tests see it from the host.

use std::ffi::OsString;
use std::path::Path;

use conjure_sandbox::{Connector, OwnedWorkspace};
use tempfile::TempDir;

/// A kind of sandbox that the tests are about.
pub(crate) trait Kind {
    /// Makes sandboxes of this kind, for a host with the variables of [`host`].
    fn connector(&self) -> Box<dyn Connector>;

    /// A directory for a session to work in.
    fn workspace(&self) -> Workspace {
        Workspace::Dir(tempfile::tempdir().unwrap())
    }

    /// Whether what commands make is the host's while they run, and the other way; else it is when they are over.
    fn maps_owners(&self) -> bool {
        true
    }

    /// True if commands use the programs of this machine instead of a small image.
    fn has_programs_of_machine(&self) -> bool {
        true
    }

    /// The guest that is responsible for this process of a sandbox of the host with the number `host`, as the machine
    /// numbers them. Killing it ends the sandbox.
    fn guest(&self, pid: i32, host: u32) -> i32;

    /// What a host with this number, which was killed, has left on the machine when the next one has started: control
    /// groups, containers.
    fn leftovers_of(&self, host: u32) -> Vec<String>;
}

/// A workspace directory that is removed on drop.
pub(crate) enum Workspace {
    Dir(TempDir),
    /// The session's own, in a data directory.
    Private(OwnedWorkspace),
}

impl Workspace {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Dir(dir) => dir.path(),
            Self::Private(workspace) => workspace.path(),
        }
    }
}

/// The variables of a host that has something to hide, and a time zone.
pub(crate) fn host() -> [(OsString, OsString); 3] {
    [
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("TZ".into(), "Asia/Tokyo".into()),
        ("ANTHROPIC_API_KEY".into(), "not for commands".into()),
    ]
}
