//! What the frames say.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::jail::{Confinement, JailSpec};
use super::parcel::ParcelKind;
use super::quota::{Quota, QuotaExcess};
use super::rules::{CommandRules, LimitsReached, ProcessLimits, RulesInForce};
use super::tunnel::ProxySpec;

/// The version of the protocol. Host and guest are built together, so there is no negotiation: a difference
/// means a guest that was taken from elsewhere, and is an error that says so.
pub const PROTOCOL_VERSION: u32 = 5;

/// How many bytes of cut output a sandbox keeps in all, unless its greeting says otherwise.
pub const SPILL_TOTAL: u64 = 1024 * 1024 * 1024;

/// How long an operation may go on after its deadline or its cancellation, until a sound guest says that it is over;
/// and how long a guest lets commands end themselves after its stream was closed. A host must be more patient than
/// this before it takes a guest for dead and kills it, and everything with it. Both sides check their times against it
/// when they are built.
pub const OVER_WITHIN: Duration = Duration::from_secs(2);

/// The host's greeting: what this sandbox is. Its default has the version, no folders, and nothing else either.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`].
    pub version: u32,
    /// The folders that file operations may reach; everything else is refused. Absolute paths. The longest
    /// root that contains a path decides.
    pub roots: Vec<Root>,
    /// Where commands run and relative paths start. Absolute, beneath a root.
    pub workdir: String,
    /// The whole environment of commands; nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Where output that was cut is kept whole, or `None` to keep none. Absolute; should lie beneath a root.
    pub spill_dir: Option<String>,
    /// How many bytes may lie there of it in all: no more of any output is kept then, until some is removed. `None`:
    /// [`SPILL_TOTAL`].
    #[serde(default)]
    pub spill_total: Option<u64>,
    /// The folder that holds the shelves of a sandbox whose content comes through the guest, each a folder in it
    /// ([`Request::Provide`]): the guest alone writes there. Absolute. `None`: there is none.
    #[serde(default)]
    pub shelves: Option<String>,
    /// Where commands find the proxy that their connections go through; `None`: nowhere.
    #[serde(default)]
    pub proxy: Option<ProxySpec>,
    /// What commands may not do.
    #[serde(default)]
    pub rules: CommandRules,
    /// How much of the disk the working directory, or another root, may take; `None`: any.
    #[serde(default)]
    pub quota: Option<Quota>,
    /// The jail to set up first, for a guest that was started as `conjure-guest jail`; all paths above are paths
    /// in it. `None` for any other guest.
    #[serde(default)]
    pub jail: Option<JailSpec>,
}

impl Default for Hello {
    fn default() -> Self {
        Self {
            version: PROTOCOL_VERSION,
            roots: Vec::new(),
            workdir: "/".to_owned(),
            env: BTreeMap::new(),
            spill_dir: None,
            spill_total: None,
            shelves: None,
            proxy: None,
            rules: CommandRules::default(),
            quota: None,
            jail: None,
        }
    }
}

/// A folder that file operations may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Its absolute path, as commands and the model name it.
    pub path: String,
    /// Whether files in it may be changed.
    pub access: Access,
}

/// Whether files may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reading only.
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

/// The guest's greeting: it is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`PROTOCOL_VERSION`] of the guest.
    pub version: u32,
    /// The guest's process id, as it sees itself.
    pub pid: u32,
    /// How it is confined; `None` when it is not.
    pub confinement: Option<Confinement>,
    /// Which of the greeting's rules are in force.
    #[serde(default)]
    pub rules: RulesInForce,
    /// Which folders the greeting's roots are.
    #[serde(default)]
    pub roots: RootsFound,
}

/// Which folders a greeting's roots are, as the guest opened them: what is mounted in a container was named by its path, and
/// another folder may have been there by then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootsFound {
    /// The start of the guest's kernel: on a host with another one the numbers mean nothing. `None`: it is not told.
    pub boot: Option<String>,
    /// The roots in the greeting's order; `None`: it is not there, or no folder.
    pub folders: Vec<Option<FolderNumbers>>,
}

/// A folder, whatever it is called, on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderNumbers {
    /// The file system's device.
    pub device: u64,
    /// The number in the file system.
    pub inode: u64,
}

/// A new operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// What to do.
    pub request: Request,
    /// How many bytes of content the host has room for, to begin with.
    pub credit: u32,
    /// After how many milliseconds the guest ends the operation and all it started; `None`: never.
    pub timeout_ms: Option<u64>,
}

/// The operations. Paths are absolute or relative to the working directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Runs a program. Replies [`Reply::Exec`].
    Exec(ExecRequest),
    /// Shows a file or folder to a model: a text's lines or an image's bytes as data on [`StreamId::Content`].
    /// Replies [`Reply::View`].
    View {
        /// What to show.
        path: String,
        /// Which lines of a text; `None`: all.
        range: Option<LineRange>,
        /// The most bytes of content to send.
        max_bytes: u64,
    },
    /// Writes a file whole and atomically from the data on [`StreamId::Content`] up to `Eof`, making missing
    /// folders. A failure leaves what was there before. Replies [`Reply::Write`].
    Write {
        /// The file.
        path: String,
        /// Its permission bits; `None`: those of the file that is there, else 0o644.
        mode: Option<u32>,
    },
    /// Puts a file, or a folder of files, onto a shelf, whole or not at all, by one rename: what comes as data on
    /// [`StreamId::Content`], up to `Eof`, is a parcel ([`super::ParcelHead`]). A name that is taken stays as it is. Replies
    /// [`Reply::Provide`].
    Provide {
        /// The shelf: a folder's name in [`Hello::shelves`].
        shelf: String,
        /// The name that it gets.
        name: String,
        /// What the parcel becomes.
        kind: ParcelKind,
    },
    /// Takes what has this name off a shelf, at once and whole; whoever has it open keeps it. What is not there is taken off,
    /// too. Replies [`Reply::Withdraw`].
    Withdraw {
        /// The shelf: a folder's name in [`Hello::shelves`].
        shelf: String,
        /// The name.
        name: String,
    },
    /// Replaces the one occurrence of `old` in a UTF-8 text file, atomically. Replies [`Reply::Write`].
    Replace {
        /// The file.
        path: String,
        /// What must occur exactly once; not empty.
        old: String,
        /// What takes its place.
        new: String,
    },
    /// Lists a folder, sorted by path. Replies [`Reply::List`].
    List {
        /// The folder.
        path: String,
        /// How many levels: 1 is the folder's own entries.
        depth: u32,
        /// The most entries.
        max_entries: u32,
        /// Whether names that begin with a dot are listed.
        hidden: bool,
    },
    /// Lists a folder and all beneath it, in pages: depth first, in the order of the names' bytes. Replies [`Reply::Walk`].
    Walk {
        /// The folder.
        path: String,
        /// [`Reply::Walk::next`] of the page before; `None`: from the start.
        after: Option<Vec<u8>>,
        /// The most entries of the page.
        max_entries: u32,
    },
    /// Makes a folder, and the missing ones above it. One that is there stays as it is. Replies [`Reply::Folder`].
    Folder {
        /// The folder.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// Sends a regular file's bytes on [`StreamId::Content`]. Replies [`Reply::Read`].
    Read {
        /// The file.
        path: String,
        /// Where to start, in bytes.
        offset: u64,
        /// The most bytes; `None`: to the end.
        length: Option<u64>,
    },
    /// Has everything that programs left running stand still, with its memory and its open files, until [`Request::Resume`] or
    /// until the next program is run; file operations are possible meanwhile. Refused while a program runs. A failure leaves all
    /// running. Asked again, it stops what was woken since. Replies [`Reply::Pause`].
    Pause,
    /// Has what [`Request::Pause`] stopped go on, and nothing that had stopped before. Replies [`Reply::Resume`].
    Resume,
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// Program and arguments; the program is looked up in `PATH` when it has no slash. Not empty.
    pub argv: Vec<String>,
    /// Variables on top of the sandbox's.
    pub env: BTreeMap<String, String>,
    /// Where to run; `None`: the sandbox's working directory. Need not be beneath a root.
    pub cwd: Option<String>,
    /// Whether standard input is data from the host or empty.
    pub stdin: StdinMode,
    /// What happens to the output.
    pub output: OutputMode,
    /// Whether standard error goes where standard output goes, in order.
    pub merge_stderr: bool,
    /// Limits of its own; those of the greeting's rules hold where it has none.
    #[serde(default)]
    pub limits: ProcessLimits,
}

/// Where standard input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinMode {
    /// It is empty.
    Null,
    /// Data on [`StreamId::Content`], up to `Eof`.
    Stream,
}

/// What happens to output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputMode {
    /// Sent while it is written; a host that grants no credit holds the program up.
    Stream,
    /// Head and tail are kept and sent just before `Done`; the program is never held up.
    Capture(CaptureLimits),
}

/// How much captured output is kept, for each of the two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureLimits {
    /// Bytes kept from the start; at most 1 MiB.
    pub head: u32,
    /// Bytes kept from the end; at most 1 MiB.
    pub tail: u32,
    /// Bytes kept in a file once head and tail do not hold all of it, from the very start; 0: no file.
    pub spill: u64,
}

/// Lines of a text, counted from 1, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineRange {
    /// The first line.
    pub first: u64,
    /// The last line; `None`: to the end.
    pub last: Option<u64>,
}

/// Which bytes a data frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StreamId {
    /// Standard input, or the content of a file.
    Content = 0,
    /// Standard output (and error, where merged).
    Stdout = 1,
    /// Standard error.
    Stderr = 2,
}

impl StreamId {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Content, Self::Stdout, Self::Stderr].into_iter().find(|stream| *stream as u8 == byte)
    }
}

/// How an operation ended well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Of [`Request::Exec`].
    Exec(ExecReply),
    /// Of [`Request::View`].
    View(Viewed),
    /// Of [`Request::Write`] and [`Request::Replace`]: the file's size in bytes.
    Write {
        /// Bytes now in the file.
        size: u64,
        /// Whether the file was there before.
        existed: bool,
        /// How many folders were made for it.
        #[serde(default)]
        folders: u64,
    },
    /// Of [`Request::Provide`].
    Provide {
        /// How many files there are now.
        files: u64,
        /// Bytes of all of them.
        bytes: u64,
    },
    /// Of [`Request::Withdraw`].
    Withdraw {
        /// Whether something of the name was there.
        was_there: bool,
    },
    /// Of [`Request::List`].
    List {
        /// What is there, sorted by path.
        entries: Vec<FileEntry>,
        /// Whether there was more than could be listed.
        truncated: bool,
    },
    /// Of [`Request::Walk`].
    Walk {
        /// What is there, each folder before what lies in it.
        entries: Vec<FileEntry>,
        /// What is not listed though it is there.
        unlisted: Vec<Unlisted>,
        /// What the next page goes on after; `None`: this was the last one.
        next: Option<Vec<u8>>,
    },
    /// Of [`Request::Folder`].
    Folder {
        /// How many folders were made.
        folders: u64,
    },
    /// Of [`Request::Read`]: the whole file's size when it was opened.
    Read {
        /// Bytes in the file.
        size: u64,
    },
    /// Of [`Request::Pause`].
    Pause {
        /// How many processes stand still now.
        processes: u64,
    },
    /// Of [`Request::Resume`].
    Resume {
        /// How many processes were told to go on.
        processes: u64,
    },
}

/// How a program ended, and its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecReply {
    /// How it ended.
    pub end: ExecEnd,
    /// Its standard output (and error, where merged).
    pub stdout: Captured,
    /// Its standard error; empty where merged.
    pub stderr: Captured,
    /// From start to end, in microseconds.
    pub duration_us: u64,
    /// Which limits of the sandbox were reached meanwhile.
    #[serde(default)]
    pub reached: LimitsReached,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecEnd {
    /// It exited with this code.
    Exited(i32),
    /// A signal that the guest did not send ended it.
    Signaled(i32),
    /// The kernel killed it, because memory ran out.
    OutOfMemory,
    /// Its time was up; everything it started was killed.
    TimedOut,
    /// The host cancelled it; everything it started was killed.
    Cancelled,
    /// What supervises it inside the sandbox was killed; everything it started was killed.
    Lost,
    /// The folder with a quota took more than that while it ran; everything that ran in the sandbox was killed.
    QuotaExceeded(QuotaExcess),
}

/// One stream of output. For [`OutputMode::Capture`], `head` bytes and then `tail` bytes were sent as data;
/// what lies between is `total - head - tail` bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// All bytes that the program wrote until it ended (and the drain), exact.
    pub total: u64,
    /// How many of them were sent from the start.
    pub head: u64,
    /// How many of them were sent from the end, not overlapping the head.
    pub tail: u64,
    /// The file that holds the output from its start, if head and tail do not hold all of it.
    pub spill_path: Option<String>,
    /// Bytes in that file.
    pub spilled: u64,
}

/// What a view shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Viewed {
    /// UTF-8 text; the lines were sent as data.
    Text {
        /// The first line sent, from 1; 0 for an empty file.
        first_line: u64,
        /// The last line sent.
        last_line: u64,
        /// All lines of the file.
        total_lines: u64,
        /// All bytes of the file.
        size: u64,
        /// Whether `max_bytes` cut the lines that were asked for (within the last line sent, possibly).
        truncated: bool,
    },
    /// An image whose bytes were sent as data, whole.
    Image {
        /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`, by its first bytes.
        media_type: String,
        /// Its bytes.
        size: u64,
    },
    /// Neither; nothing was sent.
    Binary {
        /// Its bytes.
        size: u64,
    },
    /// A folder, two levels deep, without names that begin with a dot.
    Directory {
        /// What is there, sorted by path.
        entries: Vec<FileEntry>,
        /// Whether there was more than could be listed.
        truncated: bool,
    },
}

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its path relative to the listed folder, with `/`; what is not UTF-8 is replaced.
    pub path: String,
    /// What it is; links are not followed.
    pub kind: EntryKind,
    /// Its bytes, for a file; else 0.
    pub size: u64,
    /// When it was last changed, in nanoseconds since the Unix epoch.
    pub modified_ns: i64,
    /// Its permission bits, without those that lend a user or a group.
    pub mode: u32,
}

/// Something that a walk did not list, or whose entries it did not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unlisted {
    /// Its path relative to the folder; what is not UTF-8 is replaced.
    pub path: String,
    /// Why, for people.
    pub reason: String,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, pipe or socket.
    Other,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct GuestError {
    /// The class of failure.
    pub code: ErrorCode,
    /// What failed and on what, for people and models.
    pub message: String,
}

/// The classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The file, folder or program is not there.
    NotFound,
    /// The system refuses.
    PermissionDenied,
    /// The path lies outside the roots, or leads out of them; or the root is read-only.
    PathNotAllowed,
    /// A folder where a file is needed.
    IsDirectory,
    /// A file where a folder is needed.
    NotDirectory,
    /// A device, pipe or socket where a file is needed.
    NotRegular,
    /// Something of that name is there already.
    Exists,
    /// More than the operation takes.
    TooLarge,
    /// Not UTF-8 text where text is needed.
    NotText,
    /// `old` does not occur.
    NoMatch,
    /// `old` occurs more than once.
    NotUnique,
    /// The disk or quota is full.
    NoSpace,
    /// The file is there but cannot be run.
    NotExecutable,
    /// Arguments and environment are longer than the system takes.
    ArgumentsTooLong,
    /// No more processes, memory or files can be had.
    Exhausted,
    /// Its time was up.
    TimedOut,
    /// The host cancelled it.
    Cancelled,
    /// The request makes no sense.
    BadRequest,
    /// Anything else the system said.
    Io,
}
