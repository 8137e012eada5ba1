//! The execution context of the specification (4.5, 9.4): what a sandbox is made for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use conjure_base::{SessionId, TenantId};

use crate::error::{SandboxError, SandboxErrorKind};
use crate::isolation::Isolation;
use crate::limits::Limits;

/// What a sandbox may reach of the network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkPolicy {
    /// Nothing.
    #[default]
    None,
    /// The named hosts.
    Limited(Vec<String>),
    /// Any public address.
    Full,
}

/// A folder of the host that a sandbox may read, and where the sandbox has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SharedFolder {
    /// The folder on the host.
    pub host: PathBuf,
    /// Its absolute path in the sandbox, such as `/mnt/skills/pdf`, without `.` or `..` in it. A sandbox that has no
    /// file system of its own (`local`) does not use it: there the folder is where the host has it.
    pub target: PathBuf,
}

impl SharedFolder {
    /// The folder at `host`, to be found at `target`.
    pub fn new(host: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self { host: host.into(), target: target.into() }
    }
}

/// What a sandbox is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionContext {
    /// The session's private folder: commands run in it, and it is writable. Must exist.
    pub workspace: PathBuf,
    /// Folders that may be read besides: the roots of the session's skills. No two may have one target.
    pub read_only: Vec<SharedFolder>,
    /// Further folders that may be read and written. An empty list allows nothing.
    pub allowed_paths: Vec<PathBuf>,
    /// Variables that commands see, on top of a small safe set.
    pub environment: BTreeMap<String, String>,
    /// How long one call may take, unless it says otherwise.
    pub timeout: Duration,
    /// What it may reach of the network.
    pub network: NetworkPolicy,
    /// What it may use.
    pub limits: Limits,
    /// Whose the sandbox is, where that is known. It is for people who look for a session's sandbox: a container bears it as
    /// the label `conjure.tenant`.
    pub tenant: Option<TenantId>,
    /// Which session's it is, as [`ExecutionContext::tenant`]: `docker ps --filter label=conjure.session=sesn_…` finds the
    /// container. No secret: whoever may ask the engine reads it.
    pub session: Option<SessionId>,
    /// What must be enforced: a sandbox that cannot is not made. It cannot be lowered by a session where the host
    /// lays its own floor over it.
    pub floor: Isolation,
}

impl ExecutionContext {
    /// A context for this workspace with the specification's defaults: no further folders, an empty environment,
    /// 30 seconds, no network, half a gigabyte of memory and one processor. Nothing is demanded.
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            read_only: Vec::new(),
            allowed_paths: Vec::new(),
            environment: BTreeMap::new(),
            timeout: Duration::from_secs(30),
            network: NetworkPolicy::None,
            limits: Limits::default(),
            tenant: None,
            session: None,
            floor: Isolation::NONE,
        }
    }

    /// Refuses what no kind of sandbox could carry out.
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
                    "two read-only folders are to be at `{target}`; give each a place of its own"
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
            context.read_only = ["/a", "/b"].map(|host| SharedFolder::new(host, "/mnt/skills/one")).to_vec();
        });
        assert!(said.contains("two read-only folders are to be at `/mnt/skills/one`"), "{said}");
    }
}
