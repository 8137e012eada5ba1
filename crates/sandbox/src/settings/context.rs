//! The execution context of the specification (4.5, 9.4): the settings with which a sandbox is created.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use conjure_base::{SessionId, TenantId};

use crate::error::{SandboxError, SandboxErrorKind};
use crate::settings::isolation::Isolation;
use crate::settings::limits::Limits;
use crate::settings::sandbox_network::SandboxNetwork;

/// The network access of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkPolicy {
    /// No network.
    #[default]
    None,
    /// The named hosts.
    Limited(Vec<String>),
    /// Any public address.
    Full,
}

/// A directory of the host that a sandbox may read, and its path in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SharedDir {
    /// The directory on the host.
    pub host: PathBuf,
    /// Its absolute path in the sandbox, such as `/mnt/skills/pdf`, without `.` or `..`. A sandbox without a file
    /// system of its own (`local`) ignores it and uses the host's path.
    pub target: PathBuf,
}

impl SharedDir {
    /// The directory at `host`, with the path `target` in the sandbox.
    pub fn new(host: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self { host: host.into(), target: target.into() }
    }
}

/// A directory of the workspace that commands also have at another path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WorkspaceMount {
    /// The directory, relative to the workspace. It must exist.
    pub dir: PathBuf,
    /// Its other path in the sandbox, such as `/mnt/session/uploads`. Only jails have it; other sandboxes ignore it.
    pub target: PathBuf,
}

/// The context of a sandbox: its directories, variables, network and limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionContext {
    /// The session's private directory. Commands run in it and may write to it. It must exist.
    pub workspace: PathBuf,
    /// Directories of the workspace that have a second path.
    pub workspace_mounts: Vec<WorkspaceMount>,
    /// Further readable directories: the roots of the session's skills. Targets must be unique.
    pub read_only: Vec<SharedDir>,
    /// Further directories that may be read and written.
    pub allowed_paths: Vec<PathBuf>,
    /// Variables for commands, in addition to a small safe set.
    pub environment: BTreeMap<String, String>,
    /// The default timeout of a call.
    pub timeout: Duration,
    /// The network access.
    pub network: NetworkPolicy,
    /// The network access during the start-up, in addition to `network` ([`SandboxNetwork::begin_startup`]). Has no
    /// effect without `sandbox_network`.
    pub startup_network: NetworkPolicy,
    /// Collects refused connections, and knows whether the program is starting up. `None`: not needed.
    pub sandbox_network: Option<SandboxNetwork>,
    /// The resource limits.
    pub limits: Limits,
    /// The tenant, if it is known. It helps people to find a session's sandbox: a container has it as the label
    /// `conjure.tenant`.
    pub tenant: Option<TenantId>,
    /// The session, if it is known: `docker ps --filter label=conjure.session=sesn_…` finds its container. The id
    /// must not be a secret, because all users of the engine can read it.
    pub session: Option<SessionId>,
    /// The required boundaries. A sandbox that cannot enforce them is not created. A session cannot lower the floor
    /// that the embedder requires.
    pub floor: Isolation,
}

impl ExecutionContext {
    /// A context for this workspace with the specification's defaults: no further directories, an empty environment, 30
    /// seconds, no network, half a gigabyte of memory and one processor. No boundary is required.
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            workspace_mounts: Vec::new(),
            read_only: Vec::new(),
            allowed_paths: Vec::new(),
            environment: BTreeMap::new(),
            timeout: Duration::from_secs(30),
            network: NetworkPolicy::None,
            startup_network: NetworkPolicy::None,
            sandbox_network: None,
            limits: Limits::default(),
            tenant: None,
            session: None,
            floor: Isolation::NONE,
        }
    }

    /// Refuses a context that no kind of sandbox can implement.
    pub(crate) fn check(&self) -> Result<(), SandboxError> {
        let refused = |message| Err(SandboxError::new(SandboxErrorKind::BadRequest, message));
        for (name, value) in &self.environment {
            if name.is_empty() || name.contains(['=', '\0']) {
                let message = format!(
                    "`{}` is no name of a variable: it must not be empty nor hold `=`",
                    name.escape_debug()
                );
                return refused(message);
            }
            // The value may be a secret.
            if value.contains('\0') {
                return refused(format!(
                    "the variable `{name}` holds a NUL character, which no program takes"
                ));
            }
        }
        let mut targets = BTreeSet::new();
        for shared in &self.read_only {
            if !targets.insert(&shared.target) {
                let target = shared.target.display();
                return refused(format!(
                    "two read-only directories are to be at `{target}`; give each a place of its own"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut ExecutionContext)) -> String {
        let mut context = ExecutionContext::new("/x");
        change(&mut context);
        let error = context.check().unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::BadRequest);
        error.to_string()
    }

    #[test]
    fn what_no_sandbox_could_carry_out_is_refused() {
        assert_eq!(ExecutionContext::new("/x").check(), Ok(()));
        for name in ["", "A=B", "A\0"] {
            let said = refusal(|context| drop(context.environment.insert(name.to_owned(), String::new())));
            assert!(said.contains("is no name of a variable") && !said.contains('\0'), "{said}");
        }
        let said =
            refusal(|context| drop(context.environment.insert("KEY".to_owned(), "secret\0".to_owned())));
        assert!(said.contains("`KEY`") && !said.contains("secret"), "{said}");
        let said = refusal(|context| {
            context.read_only = ["/a", "/b"].map(|host| SharedDir::new(host, "/mnt/skills/one")).to_vec();
        });
        assert!(said.contains("two read-only directories are to be at `/mnt/skills/one`"), "{said}");
    }
}
