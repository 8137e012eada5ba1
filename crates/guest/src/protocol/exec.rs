//! Running a program: the request, its options, and the result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::quota::QuotaExcess;
use super::rules::{ProcessLimits, ReachedLimits};

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// The program and its arguments. A program without a slash is searched in `PATH`. Not empty.
    pub argv: Vec<String>,
    /// Variables that are added to the sandbox's environment.
    pub env: BTreeMap<String, String>,
    /// The working directory. `None`: that of the sandbox. It need not be beneath a root.
    pub cwd: Option<String>,
    /// Whether standard input is data from the host or empty.
    pub stdin: StdinMode,
    /// What happens to the output.
    pub output: OutputMode,
    /// Whether standard error is merged into standard output, in order.
    pub merge_stderr: bool,
    /// Resource limits. Where a limit is not set, that of the handshake's rules applies.
    #[serde(default)]
    pub limits: ProcessLimits,
    /// Whether the program lives between the host's calls.
    #[serde(default)]
    pub lifetime: ProgramLifetime,
}

/// How a program relates to the host's calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramLifetime {
    /// It is one call: nothing is paused while it runs.
    #[default]
    Call,
    /// It lives between calls. [`super::Request::Pause`] stops it like processes that programs left running. Data for
    /// its standard input resumes everything.
    Session,
}

/// Where standard input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinMode {
    /// It is empty.
    Null,
    /// Data on [`super::StreamId::Content`], up to `Eof`.
    Stream,
}

/// What happens to output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputMode {
    /// Sent while it is written. The program blocks when the host grants no credit. What it wrote to standard output
    /// before it wrote to standard error is sent first.
    Stream,
    /// Head and tail are kept, and sent just before `Done`. The program never blocks.
    Capture(CaptureLimits),
}

/// How much captured output is kept, for each of the two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureLimits {
    /// Bytes to keep from the start; at most 1 MiB.
    pub head: u32,
    /// Bytes to keep from the end; at most 1 MiB.
    pub tail: u32,
    /// The maximum size of a file with the complete output, which is written when head and tail do not hold all of
    /// it. 0: no file.
    pub spill: u64,
}

/// How a program ended, and its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecReply {
    /// How it ended.
    pub end: ExecEnd,
    /// Its standard output, with standard error if merged.
    pub stdout: CapturedOutput,
    /// Its standard error; empty if merged.
    pub stderr: CapturedOutput,
    /// The time from start to end, in microseconds.
    pub duration_us: u64,
    /// The sandbox limits that were reached meanwhile.
    #[serde(default)]
    pub reached: ReachedLimits,
}

/// How a program ended. Except for the first three cases, everything that it started was ended with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecEnd {
    /// It exited with this code.
    Exited(i32),
    /// A signal ended it, which the guest did not send.
    Signaled(i32),
    /// The kernel killed it, or the process that supervised it, because memory ran out.
    OutOfMemory,
    /// Its deadline passed.
    TimedOut,
    /// The host cancelled it.
    Cancelled,
    /// The process in the sandbox that supervised it was killed.
    Lost,
    /// The workspace exceeded its disk quota. Everything that ran in the sandbox was ended. Until something is removed, no file can be
    /// written.
    QuotaExceeded(QuotaExcess),
}

/// One output stream. With [`OutputMode::Capture`], first `head` and then `tail` bytes were sent as data. The
/// bytes between them were not sent: `total - head - tail`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedOutput {
    /// The exact number of bytes that the program wrote, including those read shortly after its end.
    pub total: u64,
    /// How many bytes were sent from the start.
    pub head: u64,
    /// How many bytes were sent from the end. They do not overlap the head.
    pub tail: u64,
    /// The file with the complete output, if head and tail do not hold all of it.
    pub spill_path: Option<String>,
    /// The size of that file in bytes.
    pub spilled: u64,
}
