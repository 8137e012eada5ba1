//! Why a journal did not do what it was asked.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use conjure_base::{Digest, Timestamp};

use crate::key::{Epoch, SessionKey};
use crate::lease::Owner;

/// A failure of the journal. Unless a variant says otherwise, nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The tenant has no such session, or has it no more.
    #[error("there is no session {session}")]
    NotFound {
        /// What was asked for.
        session: SessionKey,
    },
    /// The tenant has a session with this id already.
    #[error("the session {session} is there already")]
    Exists {
        /// Which.
        session: SessionKey,
    },
    /// Somebody else has appended since the session was read.
    #[error("the session holds {found} events where {expected} were expected; load it again")]
    Conflict {
        /// How many events the caller knows of.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// The epoch is not, or no more, that of the session: somebody else holds the lease, or it was released.
    #[error("the epoch {epoch} may not write the session, whose epoch is {current}; lease it again")]
    StaleEpoch {
        /// The caller's.
        epoch: Epoch,
        /// The session's.
        current: Epoch,
    },
    /// Somebody else holds the lease.
    #[error("the session is leased by `{owner}` until {until}")]
    LeaseHeld {
        /// Who.
        owner: Owner,
        /// Until when, unless it is renewed or released.
        until: Timestamp,
    },
    /// Too much waits already. It was not accepted and may be tried again a little later.
    #[error("{waiting} calls and {bytes} bytes wait for the journal{}; try again later", scope(.tenant))]
    Overloaded {
        /// The tenant's name when only its own share is used up.
        tenant: Option<String>,
        /// How many calls wait, of the tenant or in all.
        waiting: usize,
        /// How many bytes of bodies wait, of the tenant or in all.
        bytes: usize,
    },
    /// More than is ever accepted.
    #[error("{what} has {size} bytes, more than {limit}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its bytes.
        size: usize,
        /// The most that are accepted.
        limit: usize,
    },
    /// What was passed cannot be what it should be.
    #[error("{what} is not valid: {rule}")]
    Invalid {
        /// What.
        what: &'static str,
        /// What it must be.
        rule: &'static str,
    },
    /// Another process has held the journal for longer than is waited for.
    #[error("`{}` is locked by another process; end it, or try again", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The journal lies where nothing can be written.
    #[error("`{}` cannot be written; name a folder of your own, on a file system that is not read-only", path.display())]
    ReadOnly {
        /// The file or folder.
        path: PathBuf,
    },
    /// The disk, the quota, or the size that the journal was given is used up.
    #[error("there is no room for `{}`; make some on its file system, or raise the journal's limit", path.display())]
    DiskFull {
        /// The file or folder.
        path: PathBuf,
    },
    /// A file of the journal is not where it was opened, so that what is written now would be found by nobody. Nothing is
    /// acknowledged until it is put back. Whether the call was carried out is not known.
    #[error("{found} at `{}`, where the journal was opened; put its file back, or begin anew with a new process", path.display())]
    Displaced {
        /// Where it was.
        path: PathBuf,
        /// What is there now.
        found: Found,
    },
    /// What was recorded is damaged. What else is recorded may be whole.
    #[error("{place} is damaged: {reason}")]
    Corrupt {
        /// Where.
        place: Place,
        /// What is wrong.
        reason: String,
    },
    /// The file is something else than a journal.
    #[error("`{}` is not a journal: {reason}; name another folder", path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A later version of this library has written it.
    #[error("`{}` has the format {found}, and this version knows those up to {known}; use a later version", path.display())]
    FutureFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The latest that is known.
        known: i64,
    },
    /// A later version of the program has recorded it.
    #[error("the event {seq} is of kind `{kind}` in version {version}, {}; use a later version", known_as(.known))]
    FutureEvent {
        /// Its place.
        seq: u64,
        /// Its kind.
        kind: String,
        /// Its version.
        version: u32,
        /// The newest version of this kind that is known; `None` when the kind is not.
        known: Option<u32>,
    },
    /// An event of an old version could not be brought to the present one.
    #[error("the event {seq} of kind `{kind}` in version {version} cannot be read: {reason}")]
    Upcast {
        /// Its place.
        seq: u64,
        /// Its kind.
        kind: String,
        /// The version from which the step failed.
        version: u32,
        /// Why.
        reason: String,
    },
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
    /// What does the journal's work has ended by a defect. Whether the call was carried out is not known; a new journal
    /// must be opened.
    #[error("the journal's {part} has ended: {reason}; open the journal again")]
    Lost {
        /// Who ended.
        part: &'static str,
        /// How.
        reason: String,
    },
    /// What does the journal's work had ended by a defect before the call came, which was not carried out; a new journal must be
    /// opened.
    #[error("the journal's {part} has ended: {reason}; nothing was done, open the journal again")]
    Ended {
        /// Who had ended.
        part: &'static str,
        /// How.
        reason: String,
    },
    /// Anything else that the system said. Whether the call was carried out is not known.
    #[error("cannot {doing} `{}`: {reason}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
}

fn scope(tenant: &Option<String>) -> String {
    tenant.as_ref().map(|tenant| format!(" for the tenant `{tenant}`")).unwrap_or_default()
}

fn known_as(known: &Option<u32>) -> String {
    match known {
        Some(version) => format!("and this version knows those up to {version}"),
        None => "which this version does not know".to_owned(),
    }
}

/// What is where a file of the journal was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A file that was put there.
    Another,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "there is nothing",
            Self::Another => "there is another file",
        })
    }
}

/// What is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The file as such.
    File {
        /// Which.
        path: PathBuf,
    },
    /// One event.
    Event {
        /// Of which session.
        session: SessionKey,
        /// Its place.
        seq: u64,
    },
    /// A session's snapshot. Its events may be replayed instead.
    Snapshot {
        /// Of which session.
        session: SessionKey,
    },
    /// A session's lease.
    Lease {
        /// Of which session.
        session: SessionKey,
    },
    /// A large body that is kept by its digest.
    Blob {
        /// Which.
        digest: Digest,
    },
}

impl fmt::Display for Place {
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
    /// The session is there already.
    Exists,
    /// Another sequence than expected.
    Conflict,
    /// Another epoch than the session's.
    StaleEpoch,
    /// Somebody else holds the lease.
    LeaseHeld,
    /// Too much waits.
    Overloaded,
    /// What was passed is too large or not valid.
    Invalid,
    /// Another process holds the journal.
    Locked,
    /// It cannot be written.
    ReadOnly,
    /// There is no room.
    DiskFull,
    /// Its file is gone, or another.
    Displaced,
    /// What was recorded is damaged, or no journal.
    Corrupt,
    /// A later version has written it.
    Future,
    /// It was closed.
    Closed,
    /// What does its work has ended, and may have carried out the call.
    Lost,
    /// What does its work had ended before.
    Ended,
    /// Anything else.
    Io,
}

/// How soon it is worth another try: the writer has done with what waited by then, or with a good part of it.
const SOON: Duration = Duration::from_millis(250);

impl JournalError {
    /// When it is worth another try, where too much waited for this one.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { .. } => Some(SOON),
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
            Self::Displaced { .. } => JournalErrorKind::Displaced,
            Self::Corrupt { .. } | Self::NotAJournal { .. } | Self::Upcast { .. } => {
                JournalErrorKind::Corrupt
            }
            Self::FutureFormat { .. } | Self::FutureEvent { .. } => JournalErrorKind::Future,
            Self::Closed => JournalErrorKind::Closed,
            Self::Lost { .. } => JournalErrorKind::Lost,
            Self::Ended { .. } => JournalErrorKind::Ended,
            Self::Io { .. } => JournalErrorKind::Io,
        }
    }

    /// Whether the same call may well succeed a little later, with nothing changed by the caller.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Overloaded { .. } | Self::Locked { .. } | Self::LeaseHeld { .. })
    }

    /// Whether the journal as a whole is gone, and not the one call: a supervisor opens it anew.
    #[must_use]
    pub const fn is_critical(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Ended { .. })
    }
}
