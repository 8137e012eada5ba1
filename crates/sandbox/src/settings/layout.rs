//! The layout of a sandbox: the paths of its directories, and whether they are directories of the host.

use std::path::{Path, PathBuf};

/// The paths in a sandbox, as commands and the model use them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The working directory of commands, where relative paths start; writable.
    pub workspace: PathBuf,
    /// Further readable directories, such as skills, as pairs `(path on the host, path in the sandbox)`. Under `local`
    /// the two paths are equal.
    pub read_only: Vec<(PathBuf, PathBuf)>,
    /// The directory of installed artifacts ([`crate::Executor::install_content`]).
    pub artifacts: ArtifactDir,
}

/// The directory of a session's artifacts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArtifactDir {
    /// The sandbox takes no artifacts.
    None,
    /// This directory; each artifact is in it under its name.
    Fixed(PathBuf),
    /// A different directory in each sandbox, known once the sandbox exists. Only a variable in the environment of
    /// commands names it.
    PerSandbox,
}

impl Layout {
    /// The path in the sandbox of `host`, which is a shared directory or beneath one; `None` when it is not in the
    /// sandbox.
    #[must_use]
    pub fn sandbox_path(&self, host: &Path) -> Option<PathBuf> {
        self.read_only.iter().find_map(|(from, to)| {
            let rest = host.strip_prefix(from).ok()?;
            Some(if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) })
        })
    }
}

/// How a sandbox gets the host's directories: skills, artifacts, the workspace. Its layout is the same either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostAccess {
    /// The host's directories are mounted in it: when commands write into the workspace, the host sees the change at
    /// once.
    Mounted,
    /// No directory can be shared, as with an engine on another machine: content is copied through the guest. The
    /// workspace belongs to the sandbox and is removed with it. The host gets its changes by
    /// [`crate::Executor::copy_out`].
    Copied,
}
