//! What commands may not do, beyond what the sandbox around them forbids: part of the greeting.
//!
//! The host decides, the guest is mechanism only: it closes itself in before the first command, so that everything
//! that it starts is closed in with it, at no cost for each call. What the machine does not have is left out and
//! said in [`RulesInForce`]; whether that is good enough is the host's decision.

use serde::{Deserialize, Serialize};

/// What commands may not do. By default, nothing is forbidden.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandRules {
    /// Which system calls they may make.
    pub syscalls: SyscallRule,
    /// Which files they may open.
    pub files: FileRule,
    /// What each of their processes may use.
    pub limits: ProcessLimits,
}

impl CommandRules {
    /// All paths that they name.
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
    /// All.
    #[default]
    Open,
    /// None that administers the machine, makes namespaces, looks into other processes, limits or reschedules them,
    /// signals the guest, or opens a part of the kernel that programs do without.
    Guarded,
}

/// Which files commands may open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRule {
    /// Any that the system lets them.
    #[default]
    Open,
    /// These alone, and the roots of the greeting.
    Only(FileRules),
}

/// Files and folders, as absolute paths in the sandbox; what lies beneath a folder is meant, too. One that does not
/// exist grants nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileRules {
    /// May be read, listed and run.
    pub read: Vec<String>,
    /// May be read, listed, run, changed, made and removed.
    pub write: Vec<String>,
    /// Devices that may be read, written and controlled.
    pub devices: Vec<String>,
    /// Who may write where output is kept that was cut.
    pub output: OutputRule,
}

/// Who may write where output is kept that was cut ([`crate::protocol::Hello::spill_dir`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputRule {
    /// Commands as well as the guest, unless something else hinders them.
    #[default]
    Everybody,
    /// The guest alone. Every command is closed in once more for it, so one command cannot look into another's processes
    /// as a debugger would.
    GuestAlone,
}

/// What each process of a command may use. `None`: what the guest was started with. A limit that the guest was
/// started with and that is lower stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessLimits {
    /// Bytes of a core dump.
    pub core_bytes: Option<u64>,
    /// Files that it has open.
    pub open_files: Option<u64>,
    /// Bytes of the longest file that it writes.
    pub file_bytes: Option<u64>,
    /// Bytes of memory that it maps.
    pub memory_bytes: Option<u64>,
    /// Processes and threads of the same user. Only for a sandbox with a user namespace of its own, where all that are
    /// counted are the sandbox's.
    pub processes: Option<u64>,
    /// Seconds of processor time.
    pub cpu_seconds: Option<u64>,
}

impl ProcessLimits {
    /// These limits, and those of `other` where these set none.
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

/// Which of the rules are in force: part of the guest's greeting.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RulesInForce {
    /// The rule of system calls.
    pub syscalls: InForce,
    /// The rule of files.
    pub files: InForce,
    /// The version of Landlock's interface that keeps the rule of files; 0 where nothing does.
    pub landlock_abi: u32,
}

/// Whether a rule is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InForce {
    /// There is none.
    #[default]
    NotAsked,
    /// It is.
    Yes,
    /// The machine cannot keep it, for this reason.
    No(String),
}

/// Which limits of the whole sandbox were reached while a program ran. What others did that ran at the same time is
/// counted, too: the limits are for all of them together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsReached {
    /// Memory ran out, and the kernel killed a process.
    pub memory: bool,
    /// New processes or threads were refused, since there were as many as there may be.
    pub processes: bool,
    /// What it left running was ended, since that left no room for others.
    pub made_room: bool,
}
