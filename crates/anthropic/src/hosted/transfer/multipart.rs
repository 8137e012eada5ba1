//! A multipart form of files (`multipart/form-data`, RFC 7578) of known length, read while it is sent.
//!
//! Names are escaped as browsers and the official SDK do: `"` as `%22`, `\` doubled, control characters by their number. A form can be sent
//! several times, because its sources are read again. At most one file of a skill, or one piece of a larger file, is in memory. If the form
//! is dropped during a read, the read still runs to its end.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use conjure_base::lock;
use conjure_skill::Skill;
use http_body::{Frame, SizeHint};
use tokio::task::JoinHandle;

/// How many bytes of a body are sent at once.
const PIECE: usize = 64 << 10;
/// How many bytes of a large file are read at once.
const READ: usize = 1 << 20;

/// The progress of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// How many bytes of the request's body were passed to the connection. If the upload is retried, it restarts from zero.
    pub sent: u64,
    /// The total number of bytes.
    pub total: u64,
}

/// A callback that is called after each piece of an upload. It must not block.
pub(crate) type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// A form. It can be sent any number of times.
pub(crate) struct Form {
    boundary: String,
    parts: Vec<Part>,
    end: Bytes,
    length: u64,
    state: Arc<FormState>,
}

#[derive(Debug, Clone)]
struct Part {
    head: Bytes,
    content: Content,
    size: u64,
}

/// The content of a part.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Bytes(Bytes),
    /// A file of a skill, by its path in the skill.
    SkillFile(Arc<Skill>, PathBuf),
    /// An open file, read from its start.
    File(Arc<File>, PathBuf),
}

/// The state of a body while it is sent.
#[derive(Default)]
pub(crate) struct FormState {
    sent: AtomicU64,
    /// Why a source could not be read to its end.
    read_error: Mutex<Option<String>>,
    on_progress: Option<OnProgress>,
}

impl Form {
    pub(crate) fn new(on_progress: Option<OnProgress>) -> Self {
        // The boundary is random, so the author of a skill cannot know it and put it into a file.
        let random = || RandomState::new().build_hasher().finish();
        let boundary = format!("{:016x}{:016x}", random(), random());
        let end = Bytes::from(format!("--{boundary}--\r\n"));
        let state = Arc::new(FormState { on_progress, ..FormState::default() });
        Self { boundary, parts: Vec::new(), length: end.len() as u64, end, state }
    }

    /// Adds a text field.
    pub(crate) fn text(self, name: &str, value: &str) -> Self {
        let head = format!("Content-Disposition: form-data; name=\"{}\"\r\n", escaped(name));
        let content = Bytes::copy_from_slice(value.as_bytes());
        let size = content.len() as u64;
        self.part(&head, Content::Bytes(content), size)
    }

    /// Adds a file field of this size.
    pub(crate) fn file(
        self,
        name: &str,
        file_name: &str,
        media_type: &str,
        content: Content,
        size: u64,
    ) -> Self {
        let (name, file_name) = (escaped(name), escaped(file_name));
        let head = format!(
            "Content-Disposition: form-data; name=\"{name}\"; filename=\"{file_name}\"\r\nContent-Type: {media_type}\r\n"
        );
        self.part(&head, content, size)
    }

    fn part(mut self, head: &str, content: Content, size: u64) -> Self {
        let head = Bytes::from(format!("--{}\r\n{head}\r\n", self.boundary));
        self.length += head.len() as u64 + size + 2;
        self.parts.push(Part { head, content, size });
        self
    }

    pub(crate) fn content_type(&self) -> String {
        format!("multipart/form-data; boundary={}", self.boundary)
    }

    /// The complete body from its start.
    pub(crate) fn body(&self) -> FormBody {
        self.state.sent.store(0, Ordering::Relaxed);
        let mut queue = VecDeque::new();
        for part in &self.parts {
            queue.push_back(Piece::Bytes(part.head.clone()));
            queue.push_back(match &part.content {
                Content::Bytes(bytes) => Piece::Bytes(bytes.clone()),
                source => Piece::Read { source: source.clone(), at: 0, size: part.size },
            });
            queue.push_back(Piece::Bytes(Bytes::from_static(b"\r\n")));
        }
        queue.push_back(Piece::Bytes(self.end.clone()));
        FormBody {
            queue,
            reading: None,
            left: self.length,
            total: self.length,
            state: Arc::clone(&self.state),
        }
    }

    /// How many bytes were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::Relaxed)
    }

    /// Why the body failed, if it did.
    pub(crate) fn read_error(&self) -> Option<String> {
        lock(&self.state.read_error).clone()
    }
}

/// Escapes a text as a quoted name.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => escaped.push_str("%22"),
            '\\' => escaped.push_str("\\\\"),
            '\u{1b}' => escaped.push(character),
            '\0'..='\u{1f}' => escaped.push_str(&format!("%{:02X}", u32::from(character))),
            other => escaped.push(other),
        }
    }
    escaped
}

#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    /// The unread rest of a source of this size.
    Read {
        source: Content,
        at: u64,
        size: u64,
    },
}

/// A body that is being sent.
pub(crate) struct FormBody {
    queue: VecDeque<Piece>,
    reading: Option<JoinHandle<io::Result<Vec<Piece>>>>,
    left: u64,
    total: u64,
    state: Arc<FormState>,
}

impl http_body::Body for FormBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(pin!(reading).poll(context));
                self.reading = None;
                match read.map_err(io::Error::other).flatten() {
                    Ok(pieces) => pieces.into_iter().rev().for_each(|piece| self.queue.push_front(piece)),
                    Err(error) => return Poll::Ready(Some(Err(self.fail(error)))),
                }
            }
            match self.queue.pop_front() {
                None => return Poll::Ready(None),
                Some(Piece::Bytes(bytes)) if bytes.is_empty() => {}
                Some(Piece::Bytes(mut bytes)) => {
                    let piece = bytes.split_to(bytes.len().min(PIECE));
                    if !bytes.is_empty() {
                        self.queue.push_front(Piece::Bytes(bytes));
                    }
                    return Poll::Ready(Some(Ok(Frame::data(self.count(piece)))));
                }
                Some(Piece::Read { source, at, size }) => {
                    self.reading = Some(tokio::task::spawn_blocking(move || read(source, at, size)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl FormBody {
    fn count(&mut self, piece: Bytes) -> Bytes {
        self.left = self.left.saturating_sub(piece.len() as u64);
        let sent = self.total - self.left;
        self.state.sent.store(sent, Ordering::Relaxed);
        if let Some(callback) = &self.state.on_progress {
            callback(Progress { sent, total: self.total });
        }
        piece
    }

    fn fail(&mut self, error: io::Error) -> io::Error {
        self.queue.clear();
        *lock(&self.state.read_error) = Some(error.to_string());
        error
    }
}

/// Reads the next pieces of a source. The last piece is the unread rest.
fn read(source: Content, at: u64, size: u64) -> io::Result<Vec<Piece>> {
    let changed = |path: &PathBuf| {
        io::Error::other(format!("`{}` has changed while it was uploaded; upload it again", path.display()))
    };
    match source {
        Content::Bytes(bytes) => Ok(vec![Piece::Bytes(bytes)]),
        Content::SkillFile(skill, path) => {
            let content = skill.read_resource_up_to(&path, size).map_err(io::Error::other)?;
            if content.len() as u64 != size {
                return Err(changed(&path));
            }
            Ok(vec![Piece::Bytes(content.into())])
        }
        Content::File(file, path) => {
            let wanted = usize::try_from(size.saturating_sub(at)).unwrap_or(READ).min(READ);
            if wanted == 0 {
                return Ok(Vec::new());
            }
            let mut buffer = vec![0; wanted];
            let count = file.read_at(&mut buffer, at)?;
            if count == 0 {
                return Err(changed(&path));
            }
            buffer.truncate(count);
            let rest = Piece::Read { source: Content::File(file, path), at: at + count as u64, size };
            Ok(vec![Piece::Bytes(buffer.into()), rest])
        }
    }
}

#[cfg(test)]
mod tests;
