//! Finds the files that a turn created or changed in the session's workspace.
//!
//! The workspace is scanned once, after the turn, by file times. No scan before the turn is needed, so a turn without commands costs
//! nothing and nothing is missed after a crash. A file is an output of the turn when both hold:
//!
//! - its inode changed since the turn began (`ctime`, which no program can set), **and**
//! - its content was written since (`mtime`), or it was created since (`btime`), or an earlier turn produced it and its size or digest
//!   differs now.
//!
//! So a file that only changed its owner, or moved with its directory, is no output. A new file whose `mtime` a program has set back
//! is one. An output is *created* if it is new and no earlier turn produced a file of that path; else it is *changed*.
//!
//! The kernel dates files with a coarse clock, in steps of some milliseconds, so a time may be earlier than the change.
//! [`OutputStore::record_turn_start`] reads the same clock. Without that call, the recorded start minus [`SLACK`] is used. If the clock
//! is set back during a turn, outputs are missed; on a network file system both clocks must agree.
//!
//! A command may create any number of files with long paths. The list is bounded ([`LIST_LIMITS`]), shallowest files first, and says
//! when files were skipped.
//!
//! No link is followed. The workspace directory is opened again for each call, because it may be replaced.
//!
//! State: the start of the last turn, in memory; after a crash the recorded start is used.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Digest, DigestHasher, Timestamp, TurnId, lock};
use conjure_conversation::{Completeness, FILE_LIMIT, FileChange, FileSource, SessionFile};
use conjure_fs::{DirHandle, Links, OpenError, RegularFile, read_head, run_blocking};
use futures_util::future::BoxFuture;
use rustix::fs::{Statx, StatxFlags, StatxTimestamp};
use rustix::time::{ClockId, clock_gettime};
use tokio_util::sync::CancellationToken;

use crate::dir_walk::{WalkBounds, WalkCoverage, walk};
use crate::file_stream::stream_file;
use crate::media::{HEAD_BYTES, content_type_of};
use crate::output::{FinishedTurnInfo, OutputContent, OutputError, OutputStore, TurnOutputs};
use crate::workspace_outputs::shallowest::{CandidateFile, OutputListLimits, ShallowestFiles, WriteEvidence};

/// How many bytes of a turn's files are hashed in total: 256 MiB. Further files have no digest.
const MAX_DIGESTED_BYTES: u64 = 256 << 20;

/// The limits of a turn's file list: [`FILE_LIMIT`] files, paths of at most 1 KiB each and 1 MiB in total. The event log and its
/// readers hold every path.
const LIST_LIMITS: OutputListLimits =
    OutputListLimits { max_files: FILE_LIMIT, max_path_bytes: 1 << 10, max_total_path_bytes: 1 << 20 };

/// How much earlier than the change a file time may be. A clock step takes 1 to 10 milliseconds, longer on a busy machine.
const SLACK: Duration = Duration::from_millis(50);

/// Bytes per read.
const CHUNK: usize = 128 * 1024;

/// The name of the workspace in errors.
const WORKSPACE: &str = "/workspace";

/// The outputs of a session in its workspace directory.
#[derive(Debug, Clone)]
pub struct WorkspaceOutputs {
    path: Arc<Path>,
    bounds: WalkBounds,
    max_digested_bytes: u64,
    list_limits: OutputListLimits,
    last_turn_start: Arc<Mutex<Option<(TurnId, TurnStart)>>>,
}

impl WorkspaceOutputs {
    /// Creates it for this workspace directory, which need not exist yet. Its path must not contain a link.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path: PathBuf = path.into();
        let (bounds, last_turn_start) = (WalkBounds::default(), Arc::default());
        Self {
            path: path.into(),
            bounds,
            max_digested_bytes: MAX_DIGESTED_BYTES,
            list_limits: LIST_LIMITS,
            last_turn_start,
        }
    }

    /// Sets the bounds of the walk, and how many bytes are hashed for each turn.
    #[must_use]
    pub fn with_bounds(self, bounds: WalkBounds, max_digested_bytes: u64) -> Self {
        Self { bounds, max_digested_bytes, ..self }
    }

    fn open_dir(&self) -> Result<DirHandle, OutputError> {
        // Refusing links matters where another session's workspace contains this one: its commands could plant a link.
        DirHandle::open_direct(&self.path).map_err(|errno| open_error(WORKSPACE, errno.into()))
    }
}

impl OutputStore for WorkspaceOutputs {
    fn source(&self) -> FileSource {
        FileSource::Workspace
    }

    fn record_turn_start(&self, turn: TurnId) {
        *lock(&self.last_turn_start) = Some((turn, TurnStart::now()));
    }

    fn turn_outputs<'a>(
        &'a self,
        turn: &'a FinishedTurnInfo,
    ) -> BoxFuture<'a, Result<TurnOutputs, OutputError>> {
        Box::pin(async move {
            let call = CancellationToken::new();
            let _guard = call.clone().drop_guard();
            let known = turn.known.iter().filter(|file| file.source == FileSource::Workspace);
            let known = known.map(|file| (file.id.clone(), (file.size, file.digest))).collect();
            let scan = OutputScan { outputs: self.clone(), turn: turn.turn, known, call };
            let recorded_start = *lock(&self.last_turn_start);
            let recorded_start = recorded_start.filter(|(id, _)| *id == turn.turn).map(|(_, since)| since);
            let since = recorded_start.unwrap_or_else(|| TurnStart::from_timestamp(turn.began));
            run_blocking_for(WORKSPACE, move || scan.run(since)).await
        })
    }

    fn open<'a>(&'a self, file: &'a SessionFile) -> BoxFuture<'a, Result<OutputContent, OutputError>> {
        Box::pin(async move {
            let (outputs, id, name) = (self.clone(), file.id.clone(), file.name.clone());
            run_blocking_for(&file.name, move || {
                let file = open_file(&outputs.open_dir()?, &id, &name)?;
                let head = read_head(file.file(), HEAD_BYTES).map_err(|error| read_error(&name, &error))?;
                let content_type = content_type_of(&id, &head);
                let size = Some(file.size());
                let name_in_path =
                    Path::new(&id).file_name().unwrap_or_default().to_string_lossy().into_owned();
                let stream = stream_file(file, name);
                Ok(OutputContent { name: name_in_path, content_type, size, stream })
            })
            .await
        })
    }
}

/// Seconds and nanoseconds since the Unix epoch.
type Time = (i64, u32);

/// The start of a turn, by the clock that dates files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TurnStart(Time);

impl TurnStart {
    /// Converts a time of another clock, minus [`SLACK`].
    fn from_timestamp(began: Timestamp) -> Self {
        let since = u64::try_from(SLACK.as_millis()).map_or(0, |slack| began.millis().saturating_sub(slack));
        let nanoseconds = u32::try_from(since % 1000).unwrap_or(0) * 1_000_000;
        Self((i64::try_from(since / 1000).unwrap_or(i64::MAX), nanoseconds))
    }

    /// The current time of the clock that dates files.
    fn now() -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self((now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0)))
    }

    fn is_before(self, stamp: StatxTimestamp) -> bool {
        self.0 <= (stamp.tv_sec, stamp.tv_nsec)
    }
}

/// One scan for the outputs of a turn.
struct OutputScan {
    outputs: WorkspaceOutputs,
    turn: TurnId,
    /// Size and digest of the files that earlier turns produced.
    known: HashMap<String, (Option<u64>, Option<Digest>)>,
    call: CancellationToken,
}

/// The result of inspecting a candidate.
enum ScanVerdict {
    /// The turn wrote it.
    Produced(Box<SessionFile>),
    /// It was removed, or is unchanged.
    Unchanged,
    /// Its path now leads to something else, or through a link.
    Unreachable,
}

impl OutputScan {
    fn run(&self, since: TurnStart) -> Result<TurnOutputs, OutputError> {
        let dir = self.outputs.open_dir()?;
        let mut completeness = Completeness::Complete;
        let mut touched = ShallowestFiles::new(self.outputs.list_limits);
        let walked = walk(dir.as_fd(), self.outputs.bounds, |path, stat| {
            if self.call.is_cancelled() {
                return ControlFlow::Break(());
            }
            if !since.is_before(stat.stx_ctime) {
                return ControlFlow::Continue(());
            }
            match path.into_os_string().into_string() {
                Ok(id) => {
                    if let Some(file) = self.candidate(id, stat, since) {
                        touched.add(file);
                    }
                }
                // The event log holds UTF-8 only.
                Err(_) => completeness = Completeness::Truncated,
            }
            ControlFlow::Continue(())
        });
        if walked != WalkCoverage::Complete || touched.has_skipped() {
            completeness = Completeness::Truncated;
        }
        let mut left = self.outputs.max_digested_bytes;
        let mut files = Vec::new();
        for touched in touched.into_sorted() {
            if self.call.is_cancelled() {
                completeness = Completeness::Truncated;
                break;
            }
            match self.inspect(&dir, touched, &mut left) {
                ScanVerdict::Produced(file) => files.push(*file),
                ScanVerdict::Unchanged => {}
                ScanVerdict::Unreachable => completeness = Completeness::Truncated,
            }
        }
        files.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(TurnOutputs { files, completeness })
    }

    fn candidate(&self, id: String, stat: &Statx, since: TurnStart) -> Option<CandidateFile> {
        let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let is_born = has_birth && since.is_before(stat.stx_btime);
        let is_known = self.known.contains_key(&id);
        let evidence = match is_born || since.is_before(stat.stx_mtime) {
            true => WriteEvidence::Certain,
            false if is_known => WriteEvidence::IfContentDiffers,
            false => return None,
        };
        // Without a birth time, the file may be new.
        let change = match is_known || (has_birth && !is_born) {
            true => FileChange::Changed,
            false => FileChange::Created,
        };
        Some(CandidateFile { id, size: stat.stx_size, evidence, change })
    }

    /// Opens a candidate and decides whether it is an output.
    fn inspect(&self, dir: &DirHandle, touched: CandidateFile, left: &mut u64) -> ScanVerdict {
        let CandidateFile { id, mut size, evidence, change } = touched;
        let (mut head, mut digest) = (Vec::new(), None);
        match dir.open_file(Path::new(&id), Links::Refused) {
            Err(OpenError::NotFound(_)) => return ScanVerdict::Unchanged,
            Err(OpenError::NotRegular | OpenError::Link | OpenError::EscapesRoot) => {
                return ScanVerdict::Unreachable;
            }
            // It exists and belongs to another user: only its metadata is known.
            Err(OpenError::PermissionDenied(_) | OpenError::Failed(_)) => {}
            Ok(file) => {
                size = file.size();
                head = read_head(file.file(), HEAD_BYTES).unwrap_or_default();
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
        if evidence == WriteEvidence::IfContentDiffers && !is_other {
            return ScanVerdict::Unchanged;
        }
        let content_type = content_type_of(&id, &head);
        let (source, name) = (FileSource::Workspace, id.clone());
        let (size, turn) = (Some(size), self.turn);
        ScanVerdict::Produced(Box::new(SessionFile {
            source,
            id,
            name,
            size,
            content_type,
            digest,
            change,
            turn,
        }))
    }

    /// Hashes a file; `None` if it changed meanwhile.
    fn digest(&self, plain: &RegularFile) -> Option<Digest> {
        let mut hasher = DigestHasher::new();
        let mut piece = vec![0; CHUNK.max(HEAD_BYTES)];
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
        (read == plain.size() && plain.is_unchanged().unwrap_or(false)).then(|| hasher.finish())
    }
}

/// Opens a file by its recorded path.
fn open_file(dir: &DirHandle, id: &str, name: &str) -> Result<RegularFile, OutputError> {
    let path = Path::new(id);
    let is_relative = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_relative || path.as_os_str().is_empty() {
        return Err(OutputError::NotFound { name: name.to_owned() });
    }
    dir.open_file(path, Links::Refused).map_err(|error| open_error(name, error))
}

fn open_error(name: &str, error: OpenError) -> OutputError {
    let name = name.to_owned();
    match error {
        OpenError::NotFound(_) => OutputError::NotFound { name },
        OpenError::NotRegular | OpenError::Link | OpenError::EscapesRoot => OutputError::NotAFile { name },
        OpenError::PermissionDenied(_) => {
            OutputError::Failed { name, reason: "it may not be read".to_owned() }
        }
        OpenError::Failed(errno) => read_error(&name, &errno.into()),
    }
}

fn read_error(name: &str, error: &io::Error) -> OutputError {
    OutputError::Failed { name: name.to_owned(), reason: error.to_string() }
}

async fn run_blocking_for<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, OutputError> + Send + 'static,
) -> Result<T, OutputError> {
    let result = run_blocking(work).await;
    result
        .unwrap_or_else(|error| Err(OutputError::Failed { name: name.to_owned(), reason: error.to_string() }))
}

mod shallowest;
#[cfg(test)]
mod tests;
