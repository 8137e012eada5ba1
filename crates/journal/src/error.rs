//! The errors of a journal.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use conjure_base::{Digest, Timestamp};

use crate::key::{Epoch, SessionKey};
use crate::lease::{LeaseOwner, LeaseOwnerError};

/// A failure of the journal. Unless the variant states otherwise, nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The tenant has no such session.
    #[error("there is no session {session}")]
    NotFound {
        /// The requested session.
        session: SessionKey,
    },
    /// The tenant has a session with this id already.
    #[error("the session {session} exists already")]
    Exists {
        /// The session.
        session: SessionKey,
    },
    /// Another writer has appended since the session was read.
    #[error("the session has {found} events, but {expected} were expected; read it again")]
    Conflict {
        /// The caller's number of events.
        expected: u64,
        /// The actual number of events.
        found: u64,
    },
    /// The epoch is not that of the session: another owner has the lease, or it was released.
    #[error("the epoch {epoch} may not write the session, whose epoch is {current}; lease it again")]
    StaleEpoch {
        /// The caller's epoch.
        epoch: Epoch,
        /// The session's epoch.
        current: Epoch,
    },
    /// Another owner holds the lease.
    #[error("the session is leased by `{owner}` until {until}")]
    LeaseHeld {
        /// The owner.
        owner: LeaseOwner,
        /// When the lease expires, unless it is renewed or released.
        until: Timestamp,
    },
    /// The queue is full. The call was not accepted; try again later.
    #[error("{waiting} calls and {bytes} bytes wait for the journal{}; try again later", scope(.tenant))]
    Overloaded {
        /// The tenant's name when only its own limit is reached.
        tenant: Option<String>,
        /// The number of waiting calls, of the tenant or in total.
        waiting: usize,
        /// The waiting bytes of bodies, of the tenant or in total.
        bytes: usize,
    },
    /// A value is larger than its limit.
    #[error("{what} has {size} bytes, more than {limit}")]
    TooLarge {
        /// Which value.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A value is not valid.
    #[error("{what} is not valid: {rule}")]
    Invalid {
        /// Which value.
        what: &'static str,
        /// The rule.
        rule: &'static str,
    },
    /// Another process has locked the journal for longer than the timeout.
    #[error("`{}` is locked by another process; end it, or try again", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The journal's directory or file cannot be written.
    #[error("`{}` cannot be written; use a writable directory on a file system that is not read-only", path.display())]
    ReadOnly {
        /// The file or directory.
        path: PathBuf,
    },
    /// The disk, the quota, or the journal's size limit is full.
    #[error("there is no space for `{}`; free some on its file system, or raise the journal's limit", path.display())]
    DiskFull {
        /// The file or directory.
        path: PathBuf,
    },
    /// A file of the journal was moved or replaced, so new data would be lost. No call is acknowledged until the file is put back. It is not
    /// known whether the call was carried out.
    #[error("{found} at `{}`, where the journal was opened; put the file back, or restart with a new journal", path.display())]
    DatabaseMoved {
        /// The path where it was opened.
        path: PathBuf,
        /// What is at that path now.
        found: FoundInstead,
    },
    /// Stored data is damaged. Other data may be intact.
    #[error("{place} is damaged: {reason}")]
    Corrupt {
        /// The damaged part.
        place: DamagedPart,
        /// What is wrong.
        reason: String,
    },
    /// The file is not a journal.
    #[error("`{}` is not a journal: {reason}; use another directory", path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A newer version of this library has written the database.
    #[error("`{}` has the format {found}, and this version supports formats up to {known}; use a newer version", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest supported format.
        known: i64,
    },
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
    /// The thread of the journal has panicked. It is not known whether the call was carried out. The journal must be reopened.
    #[error("the journal's {part} has ended: {reason}; open the journal again")]
    Lost {
        /// Which thread.
        part: &'static str,
        /// Why it ended.
        reason: String,
    },
    /// The thread of the journal had panicked before the call, which was not carried out. The journal must be reopened.
    #[error("the journal's {part} has ended: {reason}; nothing was done, open the journal again")]
    ThreadEnded {
        /// Which thread.
        part: &'static str,
        /// Why it ended.
        reason: String,
    },
    /// Any other error of the operating system. It is not known whether the call was carried out.
    #[error("cannot {doing} `{}`: {reason}", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        reason: String,
    },
}

fn scope(tenant: &Option<String>) -> String {
    tenant.as_ref().map(|tenant| format!(" for the tenant `{tenant}`")).unwrap_or_default()
}

/// What is at the path of a file of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FoundInstead {
    /// Nothing.
    Nothing,
    /// Another file.
    Another,
}

impl fmt::Display for FoundInstead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "there is nothing",
            Self::Another => "there is another file",
        })
    }
}

/// The damaged part of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamagedPart {
    /// The database file.
    File {
        /// The file.
        path: PathBuf,
    },
    /// One event.
    Event {
        /// The session.
        session: SessionKey,
        /// Its sequence number.
        seq: u64,
    },
    /// A session's snapshot. The events can be replayed instead.
    Snapshot {
        /// The session.
        session: SessionKey,
    },
    /// A session's lease.
    Lease {
        /// The session.
        session: SessionKey,
    },
    /// A large body, stored by its digest.
    Blob {
        /// The digest.
        digest: Digest,
    },
}

impl fmt::Display for DamagedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path } => write!(f, "the file `{}`", path.display()),
            Self::Event { session, seq } => write!(f, "the event {seq} of the session {session}"),
            Self::Snapshot { session } => write!(f, "the snapshot of the session {session}"),
            Self::Lease { session } => write!(f, "the lease of the session {session}"),
            Self::Blob { digest } => write!(f, "the body {digest}"),
        }
    }
}

/// The classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JournalErrorKind {
    /// There is no such session.
    NotFound,
    /// The session exists already.
    Exists,
    /// The sequence number is not the expected one.
    Conflict,
    /// The epoch is not the session's.
    StaleEpoch,
    /// Another owner holds the lease.
    LeaseHeld,
    /// The queue is full.
    Overloaded,
    /// A value is too large or not valid.
    Invalid,
    /// Another process has locked the journal.
    Locked,
    /// It cannot be written.
    ReadOnly,
    /// There is no space.
    DiskFull,
    /// Its file was moved or replaced.
    DatabaseMoved,
    /// Stored data is damaged, or the file is not a journal.
    Corrupt,
    /// A newer version has written it.
    Newer,
    /// It was closed.
    Closed,
    /// Its thread has panicked, and may have carried out the call.
    Lost,
    /// Its thread had panicked before the call.
    ThreadEnded,
    /// Any other error.
    Io,
}

/// The wait before a retry. By then the writer has run most of the waiting calls.
const RETRY_AFTER: Duration = Duration::from_millis(250);

impl From<LeaseOwnerError> for JournalError {
    fn from(_: LeaseOwnerError) -> Self {
        Self::Invalid { what: "an owner", rule: "it must have 1 to 128 bytes and no control characters" }
    }
}

impl JournalError {
    /// The wait before a retry of an overloaded call.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { .. } => Some(RETRY_AFTER),
            _ => None,
        }
    }

    /// The class.
    #[must_use]
    pub const fn kind(&self) -> JournalErrorKind {
        match self {
            Self::NotFound { .. } => JournalErrorKind::NotFound,
            Self::Exists { .. } => JournalErrorKind::Exists,
            Self::Conflict { .. } => JournalErrorKind::Conflict,
            Self::StaleEpoch { .. } => JournalErrorKind::StaleEpoch,
            Self::LeaseHeld { .. } => JournalErrorKind::LeaseHeld,
            Self::Overloaded { .. } => JournalErrorKind::Overloaded,
            Self::TooLarge { .. } | Self::Invalid { .. } => JournalErrorKind::Invalid,
            Self::Locked { .. } => JournalErrorKind::Locked,
            Self::ReadOnly { .. } => JournalErrorKind::ReadOnly,
            Self::DiskFull { .. } => JournalErrorKind::DiskFull,
            Self::DatabaseMoved { .. } => JournalErrorKind::DatabaseMoved,
            Self::Corrupt { .. } | Self::NotAJournal { .. } => JournalErrorKind::Corrupt,
            Self::NewerFormat { .. } => JournalErrorKind::Newer,
            Self::Closed => JournalErrorKind::Closed,
            Self::Lost { .. } => JournalErrorKind::Lost,
            Self::ThreadEnded { .. } => JournalErrorKind::ThreadEnded,
            Self::Io { .. } => JournalErrorKind::Io,
        }
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Overloaded { .. } | Self::Locked { .. } | Self::LeaseHeld { .. })
    }

    /// Whether the whole journal has failed: a supervisor must reopen it.
    #[must_use]
    pub const fn is_critical(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::ThreadEnded { .. })
    }
}
