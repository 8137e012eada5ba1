//! The files that a session's turns produce in its workspace.
//!
//! What a turn did is found behind its end, by the dates that the system gave to the files, without a look before it: a turn that runs
//! no command costs nothing, and none is missed after a crash. A file counts when
//!
//! - the system changed its entry since the turn began (`ctime`, which no program can set), **and**
//! - its content was written since (`mtime`), or it was made since (`btime`), or it is a file that a turn before produced and its size
//!   or digest is another by now.
//!
//! So a file that was only given to another user, or moved with its folder, does not count, and one whose date a program has set back
//! does, if the turn made it. It is *created* when it was made since the turn began and no turn before produced one of its name; a
//! program that replaces a file of its user's by a new one of its name creates it, by all that the system says.
//!
//! The system dates files by a clock of coarse steps, some milliseconds each, so a date may lie before the moment of the change. Who
//! tells of a turn's beginning ([`OutputStore::turn_begins`]) has that very clock read, and what was written one step before counts,
//! too. Else the beginning is the recorded one, by a finer clock, and [`SLACK`] earlier. A clock that is set back meanwhile
//! hides what the turn did, one that is set forward shows it; on a network file system the two machines' clocks must agree.
//!
//! A command may make any number of files with paths of any length. What is kept of them is bounded ([`KEPT`]), the shallowest first,
//! and the list says so where something was left out.
//!
//! Nothing is done by paths, and no link is followed. The folder is opened anew for each question: it may lie elsewhere by then.
//!
//! State: when the turn began that was told of last; after a crash the recorded time is taken.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_base::{Digest, DigestHasher, Timestamp, TurnId};
use conjure_conversation::{Completeness, FILE_LIMIT, FileChange, FileSource, SessionFile};
use futures_util::future::BoxFuture;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, Statx, StatxFlags, StatxTimestamp};
use rustix::time::{ClockId, clock_gettime};
use tokio_util::sync::CancellationToken;

use crate::blocking::blocking;
use crate::content::stream_of;
use crate::media::{HEAD_BYTES, content_type_of};
use crate::output::{OutputContent, OutputError, OutputStore, Produced, TurnRecord};
use crate::plain::{Folder, Links, PlainFile, Unopened};
use crate::walk::{Walk, WalkBounds, Walked, walk};
use crate::workspace::shallowest::{KeptBounds, Shallowest};

/// How many bytes of a turn's files are digested, all together: 256 MiB. A file that does not fit any more has no digest.
const DIGESTED: u64 = 256 << 20;

/// How much is told of a turn's files: [`FILE_LIMIT`] of them, whose paths have at most 1 KiB each and 1 MiB all together. The record
/// holds each path, and so does whoever reads it.
const KEPT: KeptBounds = KeptBounds { files: FILE_LIMIT, path: 1 << 10, paths: 1 << 20 };

/// How far a date may lie before the change by a finer clock. A step has 1 to 10 milliseconds, and comes late on a machine that is busy.
const SLACK: Duration = Duration::from_millis(50);

/// Bytes that are read at once.
const PIECE: usize = 128 * 1024;

/// What the workspace is called where it is not to be had.
const WORKSPACE: &str = "/workspace";

/// The files of a workspace, as what a session produced.
#[derive(Debug, Clone)]
pub struct WorkspaceOutputs {
    path: Arc<Path>,
    bounds: WalkBounds,
    digested: u64,
    kept: KeptBounds,
    began: Arc<Mutex<Option<(TurnId, Since)>>>,
}

impl WorkspaceOutputs {
    /// Those of the workspace in this folder of the host's, which need not be there yet. No link may stand in its path.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path: PathBuf = path.into();
        let (bounds, began) = (WalkBounds::default(), Arc::default());
        Self { path: path.into(), bounds, digested: DIGESTED, kept: KEPT, began }
    }

    /// The same with other bounds: of what is looked at, and of how many bytes are digested for each turn.
    #[must_use]
    pub fn bounded(self, bounds: WalkBounds, digested: u64) -> Self {
        Self { bounds, digested, ..self }
    }

    fn folder(&self) -> Result<Folder, OutputError> {
        // No link leads to a workspace. Commands cannot exchange theirs; those of another session may, where theirs is around it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat2(CWD, &*self.path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        opened.map(Folder::from).map_err(|errno| unopened(WORKSPACE, errno.into()))
    }
}

impl OutputStore for WorkspaceOutputs {
    fn source(&self) -> FileSource {
        FileSource::Workspace
    }

    fn turn_begins(&self, turn: TurnId) {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = Some((turn, Since::now()));
    }

    fn produced<'a>(&'a self, turn: &'a TurnRecord) -> BoxFuture<'a, Result<Produced, OutputError>> {
        Box::pin(async move {
            let call = CancellationToken::new();
            let _stopped_with_this_future = call.clone().drop_guard();
            let known = turn.known.iter().filter(|file| file.source == FileSource::Workspace);
            let known = known.map(|file| (file.id.clone(), (file.size, file.digest))).collect();
            let look = Look { outputs: self.clone(), turn: turn.turn, known, call };
            let told = *self.began.lock().unwrap_or_else(PoisonError::into_inner);
            let told = told.filter(|(told, _)| *told == turn.turn).map(|(_, since)| since);
            let since = told.unwrap_or_else(|| Since::of(turn.began));
            on_a_thread(WORKSPACE, move || look.produced(since)).await
        })
    }

    fn open<'a>(&'a self, file: &'a SessionFile) -> BoxFuture<'a, Result<OutputContent, OutputError>> {
        Box::pin(async move {
            let (outputs, id, name) = (self.clone(), file.id.clone(), file.name.clone());
            on_a_thread(&file.name, move || {
                let file = open_file(&outputs.folder()?, &id, &name)?;
                let head = file.head().map_err(|error| failed(&name, &error))?;
                let content_type = content_type_of(&id, &head);
                let size = Some(file.size());
                let stat = *file.stat();
                let short = Path::new(&id).file_name().unwrap_or_default().to_string_lossy().into_owned();
                let stream = stream_of(file.into_file(), stat, name);
                Ok(OutputContent { name: short, content_type, size, stream })
            })
            .await
        })
    }
}

/// Seconds and nanoseconds since 1970.
type Time = (i64, u32);

/// When a turn began, on the clock that dates files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Since(Time);

impl Since {
    /// A time that was read from another clock.
    fn of(began: Timestamp) -> Self {
        let since = u64::try_from(SLACK.as_millis()).map_or(0, |slack| began.millis().saturating_sub(slack));
        let nanoseconds = u32::try_from(since % 1000).unwrap_or(0) * 1_000_000;
        Self((i64::try_from(since / 1000).unwrap_or(i64::MAX), nanoseconds))
    }

    /// Now, by the clock that dates files.
    fn now() -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self((now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0)))
    }

    fn is_before(self, stamp: StatxTimestamp) -> bool {
        self.0 <= (stamp.tv_sec, stamp.tv_nsec)
    }
}

/// A look for what a turn did.
struct Look {
    outputs: WorkspaceOutputs,
    turn: TurnId,
    /// Size and digest of the files that turns before produced.
    known: HashMap<String, (Option<u64>, Option<Digest>)>,
    call: CancellationToken,
}

/// A file that the turn may have touched.
#[derive(Debug)]
struct Touched {
    id: String,
    size: u64,
    /// Whether the dates alone say that its content is the turn's.
    written: Written,
    change: FileChange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    /// They say so.
    Yes,
    /// Only if it is another than it was.
    IfOther,
}

/// What a second look at a file showed.
enum Seen {
    /// The turn produced it.
    Produced(Box<SessionFile>),
    /// It is gone, or is what it was.
    Nothing,
    /// Something else has its name by now, or a folder of its path is a link: where the file is, is not known.
    Elsewhere,
}

impl Look {
    fn produced(&self, since: Since) -> Result<Produced, OutputError> {
        let folder = self.outputs.folder()?;
        let mut completeness = Completeness::Whole;
        let mut touched = Shallowest::new(self.outputs.kept);
        let walked = walk(folder.handle().as_fd(), self.outputs.bounds, |path, stat| {
            if self.call.is_cancelled() {
                return Walk::Over;
            }
            if !since.is_before(stat.stx_ctime) {
                return Walk::On;
            }
            match path.into_os_string().into_string() {
                Ok(id) => {
                    if let Some(file) = self.touched(id, stat, since) {
                        touched.add(file);
                    }
                }
                // The record holds text.
                Err(_) => completeness = Completeness::Cut,
            }
            Walk::On
        });
        if walked != Walked::Whole || touched.has_left_out() {
            completeness = Completeness::Cut;
        }
        let mut left = self.outputs.digested;
        let mut files = Vec::new();
        for touched in touched.into_sorted() {
            if self.call.is_cancelled() {
                completeness = Completeness::Cut;
                break;
            }
            match self.look_into(&folder, touched, &mut left) {
                Seen::Produced(file) => files.push(*file),
                Seen::Nothing => {}
                Seen::Elsewhere => completeness = Completeness::Cut,
            }
        }
        files.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(Produced { files, completeness })
    }

    fn touched(&self, id: String, stat: &Statx, since: Since) -> Option<Touched> {
        let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let is_born = has_birth && since.is_before(stat.stx_btime);
        let is_known = self.known.contains_key(&id);
        let written = match is_born || since.is_before(stat.stx_mtime) {
            true => Written::Yes,
            false if is_known => Written::IfOther,
            false => return None,
        };
        // A file system that does not know when a file was made says nothing against it.
        let change = match is_known || (has_birth && !is_born) {
            true => FileChange::Changed,
            false => FileChange::Created,
        };
        Some(Touched { id, size: stat.stx_size, written, change })
    }

    /// Reads a file.
    fn look_into(&self, folder: &Folder, touched: Touched, left: &mut u64) -> Seen {
        let Touched { id, mut size, written, change } = touched;
        let (mut head, mut digest) = (Vec::new(), None);
        match folder.open_file(Path::new(&id), Links::Refused) {
            Err(Unopened::NotFound) => return Seen::Nothing,
            Err(Unopened::NotPlain | Unopened::LeadsOut) => return Seen::Elsewhere,
            // It is there, and belongs to another user: what its entry says is all there is.
            Err(Unopened::Denied | Unopened::Failed(_)) => {}
            Ok(file) => {
                size = file.size();
                head = file.head().unwrap_or_default();
                if let Some(rest) = left.checked_sub(size) {
                    *left = rest;
                    digest = self.digest(&file);
                }
            }
        }
        let was = self.known.get(&id);
        let is_other = was.is_some_and(|(was_size, was_digest)| {
            *was_size != Some(size) || (digest.is_some() && *was_digest != digest)
        });
        if written == Written::IfOther && !is_other {
            return Seen::Nothing;
        }
        let content_type = content_type_of(&id, &head);
        let (source, name) = (FileSource::Workspace, id.clone());
        let (size, turn) = (Some(size), self.turn);
        Seen::Produced(Box::new(SessionFile { source, id, name, size, content_type, digest, change, turn }))
    }

    /// The digest of a file that is the same at the end of the reading.
    fn digest(&self, plain: &PlainFile) -> Option<Digest> {
        let mut hasher = DigestHasher::new();
        let mut piece = vec![0; PIECE.max(HEAD_BYTES)];
        let mut file = plain.file();
        let mut read = 0;
        loop {
            if self.call.is_cancelled() || read > plain.size() {
                return None;
            }
            match file.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => {
                    hasher.update(piece.get(..length)?);
                    read += length as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        (read == plain.size() && is_unchanged(plain.stat(), file)).then(|| hasher.finish())
    }
}

fn is_unchanged(then: &Stat, file: &File) -> bool {
    let facts = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
    rustix::fs::fstat(file).is_ok_and(|now| facts(&now) == facts(then))
}

/// Opens a file by the path that the record has for it.
fn open_file(folder: &Folder, id: &str, name: &str) -> Result<PlainFile, OutputError> {
    let path = Path::new(id);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain || path.as_os_str().is_empty() {
        return Err(OutputError::NotFound { name: name.to_owned() });
    }
    folder.open_file(path, Links::Refused).map_err(|error| unopened(name, error))
}

fn unopened(name: &str, error: Unopened) -> OutputError {
    let name = name.to_owned();
    match error {
        Unopened::NotFound => OutputError::NotFound { name },
        Unopened::NotPlain | Unopened::LeadsOut => OutputError::NotAFile { name },
        Unopened::Denied => OutputError::Failed { name, reason: "it may not be read".to_owned() },
        Unopened::Failed(error) => failed(&name, &error),
    }
}

fn failed(name: &str, error: &io::Error) -> OutputError {
    OutputError::Failed { name: name.to_owned(), reason: error.to_string() }
}

async fn on_a_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, OutputError> + Send + 'static,
) -> Result<T, OutputError> {
    let done = blocking(work).await;
    done.unwrap_or_else(|error| Err(OutputError::Failed { name: name.to_owned(), reason: error.to_string() }))
}

mod shallowest;
#[cfg(test)]
mod tests;
