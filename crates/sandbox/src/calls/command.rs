//! A command that a sandbox runs, and its outcome.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

pub use conjure_guest::protocol::{
    DiskUsage, ExecEnd as CommandEnd, ProcessLimits, QuotaExcess, ReachedLimits,
};

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments. Never shell text, unless the program is a shell.
    pub argv: Vec<String>,
    /// Variables that are added to the sandbox's environment.
    pub env: BTreeMap<String, String>,
    /// The working directory; `None`: the workspace.
    pub cwd: Option<String>,
    /// The content of standard input.
    pub input: Input,
    /// Whether standard error is merged into standard output, in order.
    pub merge_stderr: bool,
    /// The number of bytes to keep from the start of each stream.
    pub keep_head: u32,
    /// The number of bytes to keep from the end of each stream.
    pub keep_tail: u32,
    /// The maximum size of the file with the output, which is written when head and tail do not hold all of it.
    pub spill: u64,
    /// Limits of each process, where they differ from the sandbox's limits.
    pub limits: ProcessLimits,
}

/// The content of standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    Empty,
    /// These bytes.
    Bytes(Vec<u8>),
}

impl Command {
    /// A program with arguments, standard error merged into the output, 48 KiB of head and 48 KiB of tail kept,
    /// 64 MiB spilled.
    #[must_use]
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            cwd: None,
            input: Input::Empty,
            merge_stderr: true,
            keep_head: 48 * 1024,
            keep_tail: 48 * 1024,
            spill: 64 * 1024 * 1024,
            limits: ProcessLimits::default(),
        }
    }

    /// `bash -c script`, as `bash_tool` runs it.
    #[must_use]
    pub fn bash(script: &str) -> Self {
        Self::new(["bash", "-c", script])
    }
}

/// How a program ended, and its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutcome {
    /// How it ended.
    pub end: CommandEnd,
    /// Its standard output (and error, where merged).
    pub stdout: CommandOutput,
    /// Its standard error; empty where merged.
    pub stderr: CommandOutput,
    /// The time from its start to its end.
    pub duration: Duration,
    /// The limits of the sandbox that were reached while it ran.
    pub limits_hit: ReachedLimits,
}

/// An event of a running program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "the large one comes once, and none is kept")]
pub enum RunEvent {
    /// It wrote this to its standard output.
    Stdout(Bytes),
    /// It wrote this to its standard error.
    Stderr(Bytes),
    /// It ended; nothing follows. Head and tail of the outcome's output are empty, the totals exact.
    Ended(CommandOutcome),
}

/// One output stream: all of it, or its head and tail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The last bytes, not overlapping the head. Empty when the head contains the whole output.
    pub tail: Vec<u8>,
    /// The exact number of bytes that were written.
    pub total: u64,
    /// The file in the sandbox that holds the output from its start, when head and tail do not hold all of it.
    pub spill_path: Option<String>,
    /// The size of that file in bytes.
    pub spilled: u64,
}

impl CommandOutput {
    /// The number of bytes between head and tail, which neither contains.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        self.total.saturating_sub(self.head.len() as u64).saturating_sub(self.tail.len() as u64)
    }
}
