//! The restrictions of commands, in addition to those of the sandbox: part of the handshake.
//!
//! The host decides on the rules. The guest applies them to itself before the first command, so every child
//! inherits them at no cost per call. Rules that the machine does not support are not applied, and
//! [`EnforcedRules`] reports this. The host decides whether that is acceptable.

use serde::{Deserialize, Serialize};

/// The restrictions of commands. The default forbids nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandRules {
    /// The allowed system calls.
    pub syscalls: SyscallRule,
    /// The accessible files.
    pub files: FileRule,
    /// The resource limits of each process.
    pub limits: ProcessLimits,
}

impl CommandRules {
    /// Returns all paths in the rules.
    pub fn paths(&self) -> impl Iterator<Item = &String> {
        let files = match &self.files {
            FileRule::Open => None,
            FileRule::Only(files) => Some(files),
        };
        files.into_iter().flat_map(|files| files.read.iter().chain(&files.write).chain(&files.devices))
    }
}

/// Which system calls commands may make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyscallRule {
    /// All system calls.
    #[default]
    Open,
    /// All, except calls that do one of the following:
    /// - administer the machine
    /// - create namespaces
    /// - inspect, limit or reschedule other processes
    /// - signal the guest
    /// - open a part of the kernel that programs do not need
    Guarded,
}

/// Which files commands may open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRule {
    /// All files that the system permits.
    #[default]
    Open,
    /// Only these, and the roots of the handshake.
    Only(FileRules),
}

/// Files and directories, as absolute paths in the sandbox. A directory includes everything beneath it. A path that does
/// not exist grants nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileRules {
    /// Read, list and execute.
    pub read: Vec<String>,
    /// Read, list, execute, change, create and remove.
    pub write: Vec<String>,
    /// Devices to read, write and control.
    pub devices: Vec<String>,
    /// Who may write to the directory for spill files.
    pub output: SpillAccess,
}

/// Who may write to the directory for spill files ([`crate::protocol::Hello::spill_dir`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpillAccess {
    /// Commands and the guest, unless another rule forbids it.
    #[default]
    Anyone,
    /// Only the guest. This needs a second Landlock domain per command. As a consequence, a command cannot debug
    /// processes of another one.
    GuestOnly,
}

/// The resource limits of each process. `None`: the limit that the guest was started with. A lower limit of the
/// guest always applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessLimits {
    /// The maximum size of a core dump in bytes.
    pub core_bytes: Option<u64>,
    /// The maximum number of open files.
    pub open_files: Option<u64>,
    /// The maximum size of a written file in bytes.
    pub file_bytes: Option<u64>,
    /// The maximum size of mapped memory in bytes.
    pub memory_bytes: Option<u64>,
    /// The maximum number of processes and threads of the user. Only for a sandbox with its own user namespace,
    /// where only the processes of the sandbox count.
    pub processes: Option<u64>,
    /// The maximum processor time in seconds.
    pub cpu_seconds: Option<u64>,
}

impl ProcessLimits {
    /// Returns these limits. Where one is not set, that of `other` applies.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            core_bytes: self.core_bytes.or(other.core_bytes),
            open_files: self.open_files.or(other.open_files),
            file_bytes: self.file_bytes.or(other.file_bytes),
            memory_bytes: self.memory_bytes.or(other.memory_bytes),
            processes: self.processes.or(other.processes),
            cpu_seconds: self.cpu_seconds.or(other.cpu_seconds),
        }
    }
}

/// Which rules are enforced: part of the handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EnforcedRules {
    /// The system call rule.
    pub syscalls: RuleStatus,
    /// The file rule.
    pub files: RuleStatus,
    /// The Landlock version that enforces the file rule; 0 when nothing does.
    pub landlock_abi: u32,
}

/// Whether a rule is enforced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleStatus {
    /// No rule was requested.
    #[default]
    NotRequested,
    /// The rule is enforced.
    Enforced,
    /// The machine does not support the rule, for this reason.
    Unsupported(String),
}

/// The sandbox limits that were reached while a program ran. They apply to all programs together, so another
/// program may have reached them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReachedLimits {
    /// Memory ran out, and the kernel killed a process.
    pub memory: bool,
    /// New processes or threads were refused, because the maximum was reached.
    pub processes: bool,
    /// The program's leftover processes were ended, because they left no room for other programs.
    pub ended_leftovers: bool,
}
