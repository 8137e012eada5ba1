//! What goes into an executor and what comes out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use conjure_guest::protocol::{
    DiskUsage, EntryKind, FileEntry as DirectoryEntry, LimitsReached, LineRange, ProcessLimits, QuotaExcess,
};

/// Where things lie in a sandbox, as commands and the model name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Where commands run and relative paths start; writable.
    pub workspace: PathBuf,
    /// Folders that may be read besides, such as skills' roots, by what they are called on the host:
    /// `(path on the host, path in the sandbox)`. Under `local` the two are equal.
    pub read_only: Vec<(PathBuf, PathBuf)>,
    /// Where the artifacts are that it is given ([`crate::Executor::provide`]).
    pub artifacts: ArtifactFolder,
}

/// Where commands find the artifacts of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArtifactFolder {
    /// Nowhere: the sandbox takes none.
    Nowhere,
    /// In this folder, each under its name.
    At(PathBuf),
    /// In a folder that is another one in each sandbox, and known when that is there: only the variables of a command say it.
    PerSandbox,
}

impl Layout {
    /// Where `host`, or what lies beneath it, is found in the sandbox; `None` when it is not there.
    #[must_use]
    pub fn sandbox_path(&self, host: &std::path::Path) -> Option<PathBuf> {
        self.read_only.iter().find_map(|(from, to)| {
            let rest = host.strip_prefix(from).ok()?;
            Some(if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) })
        })
    }
}

/// How a sandbox has what is the host's: skills, artifacts, the workspace. Where things lie in it is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// The host's folders are the sandbox's: what commands write into the workspace is the host's at once.
    Shared,
    /// No folder can be shared, as with an engine on another machine: content travels through the guest. The workspace is the
    /// sandbox's own and is gone with it; what commands write there comes to the host when it is asked for
    /// ([`crate::Executor::bring_back`]).
    Transferred,
}

/// What came back of a workspace ([`crate::Executor::bring_back`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BroughtBack {
    /// How many files.
    pub files: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// What stayed in the sandbox.
    pub left: Vec<LeftBehind>,
}

/// Something that stayed in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftBehind {
    /// Its path, relative to the workspace.
    pub path: String,
    /// Why it stayed.
    pub reason: String,
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments. Never shell text, unless the program is a shell.
    pub argv: Vec<String>,
    /// Variables on top of the sandbox's own.
    pub env: BTreeMap<String, String>,
    /// Where to run; `None`: the workspace.
    pub cwd: Option<String>,
    /// What standard input holds.
    pub input: Input,
    /// Whether standard error goes where standard output goes, in order.
    pub merge_stderr: bool,
    /// Bytes of output kept from the start, for each stream.
    pub keep_head: u32,
    /// Bytes of output kept from the end, for each stream.
    pub keep_tail: u32,
    /// Bytes of output kept in a file when head and tail do not hold all.
    pub spill: u64,
    /// What each of its processes may use, where that is not what the sandbox's limits say.
    pub limits: ProcessLimits,
}

/// What standard input holds.
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

/// How a program ended, and what it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutcome {
    /// How it ended.
    pub end: CommandEnd,
    /// Its standard output (and error, where merged).
    pub stdout: CommandOutput,
    /// Its standard error; empty where merged.
    pub stderr: CommandOutput,
    /// From its start to its end.
    pub duration: Duration,
    /// Which limits of the sandbox were reached meanwhile.
    pub reached: LimitsReached,
}

/// How a program ended. In every case but the first three, everything it started was ended with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
    /// The kernel killed it, because memory ran out.
    OutOfMemory,
    /// Its time was up.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// What supervised it in the sandbox was killed.
    Lost,
    /// The workspace took more of the disk than it may. All that ran in the sandbox was ended; until something is
    /// removed, nothing can be written into files.
    QuotaExceeded(QuotaExcess),
}

/// One stream of output: all of it, or its head and tail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The last bytes, not overlapping the head. Empty when the head is all there is.
    pub tail: Vec<u8>,
    /// All bytes that were written, exact.
    pub total: u64,
    /// The file in the sandbox that holds the output from its start, when head and tail do not hold all of it.
    pub spill_path: Option<String>,
    /// Bytes in that file.
    pub spilled: u64,
}

impl CommandOutput {
    /// Bytes between head and tail that are in neither.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        self.total.saturating_sub(self.head.len() as u64).saturating_sub(self.tail.len() as u64)
    }
}

/// What a view shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// Lines of a UTF-8 text.
    Text {
        /// The lines, with their line ends.
        text: String,
        /// The first line in `text`, from 1; 0 for an empty file.
        first_line: u64,
        /// The last line in `text`.
        last_line: u64,
        /// All lines of the file.
        total_lines: u64,
        /// All bytes of the file.
        size: u64,
        /// Whether the lines that were asked for did not fit.
        truncated: bool,
    },
    /// An image, whole.
    Image {
        /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
        media_type: String,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Neither text nor a known image; it was not read.
    Binary {
        /// Its bytes.
        size: u64,
    },
    /// A folder, two levels deep, without names that begin with a dot.
    Directory(Listing),
}

/// What is in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Entries, sorted by path, relative to the folder.
    pub entries: Vec<DirectoryEntry>,
    /// Whether there was more than could be listed.
    pub truncated: bool,
}

/// A file that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes now in it.
    pub size: u64,
    /// Whether it was there before.
    pub existed: bool,
}
