//! Converts between the types of [`crate::Executor`] and the messages of the guest's protocol.
//!
//! Replies of the guest are checked here: if counts do not match the received bytes, that is a protocol violation.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use conjure_guest::protocol::{
    CaptureLimits, CapturedOutput, ErrorCode, ExecReply, ExecRequest, GuestError, OutputMode,
    ProgramLifetime, Request, StdinMode, StreamId, ViewReply,
};
use futures_util::{StreamExt, stream};

use crate::calls::command::{Command, CommandOutcome, CommandOutput, Input};
use crate::calls::executor::ContentStream;
use crate::calls::files::{Listing, View};
use crate::error::{SandboxError, SandboxErrorKind};
use crate::mux::{Call, Event};

/// The maximum number of bytes that the guest keeps of the head or tail of a stream.
const KEEP_MAX: u32 = 1024 * 1024;

/// Sends content to the guest. Its state survives when [`ContentSender::run`] is dropped and called again.
pub(crate) struct ContentSender {
    content: Option<ContentStream>,
    piece: Bytes,
    failure: Option<SandboxError>,
}

impl ContentSender {
    /// Sends no content and no end of content: for operations without content.
    pub(crate) const fn none() -> Self {
        Self { content: None, piece: Bytes::new(), failure: None }
    }

    /// Sends the whole stream, and then the end of content.
    pub(crate) fn from_stream(content: ContentStream) -> Self {
        Self { content: Some(content), ..Self::none() }
    }

    /// Sends these bytes, and then the end of content.
    pub(crate) fn bytes(bytes: Bytes) -> Self {
        Self::from_stream(stream::iter([Ok(bytes)]).boxed())
    }

    /// Returns the next event of the call. Meanwhile it sends content, as far as the guest grants credit.
    pub(crate) async fn next(&mut self, call: &Call) -> Event {
        tokio::select! {
            biased;
            event = call.next() => event,
            never = self.run(call) => match never {},
        }
    }

    async fn run(&mut self, call: &Call) -> Infallible {
        while let Some(content) = &mut self.content {
            if !self.piece.is_empty() {
                call.send(&mut self.piece).await;
                continue;
            }
            match content.next().await {
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(error)) => {
                    // Without the end mark, the guest discards the content.
                    self.failure = Some(error);
                    self.content = None;
                    call.cancel();
                }
                None => {
                    self.content = None;
                    call.finish();
                }
            }
        }
        pending().await
    }

    /// The error of the content stream, if it failed: it explains the cancelled operation.
    pub(crate) fn into_failure(self) -> Option<SandboxError> {
        self.failure
    }
}

/// The output that a call collected.
#[derive(Debug, Default)]
pub(crate) struct CollectedOutput {
    pub(crate) content: Vec<u8>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl CollectedOutput {
    pub(crate) fn push(&mut self, stream: StreamId, bytes: &[u8]) {
        let buffer = match stream {
            StreamId::Content => &mut self.content,
            StreamId::Stdout => &mut self.stdout,
            StreamId::Stderr => &mut self.stderr,
        };
        buffer.extend_from_slice(bytes);
    }
}

/// The request for a program whose output is captured, and the maximum number of output bytes.
pub(crate) fn captured(mut command: Command) -> (Request, u32, ContentSender) {
    let head = command.keep_head.min(KEEP_MAX);
    let tail = command.keep_tail.min(KEEP_MAX);
    let streams = if command.merge_stderr { 1 } else { 2 };
    let output = OutputMode::Capture(CaptureLimits { head, tail, spill: command.spill });
    let (stdin, sender) = match std::mem::replace(&mut command.input, Input::Empty) {
        Input::Empty => (StdinMode::Null, ContentSender::none()),
        Input::Bytes(bytes) => (StdinMode::Stream, ContentSender::bytes(Bytes::from(bytes))),
    };
    (exec_request(command, stdin, output, ProgramLifetime::Call), (head + tail) * streams, sender)
}

/// The request for a program that lives between calls, and the first bytes of its input.
pub(crate) fn started(mut command: Command) -> (Request, Vec<u8>) {
    let first = match std::mem::replace(&mut command.input, Input::Empty) {
        Input::Empty => Vec::new(),
        Input::Bytes(bytes) => bytes,
    };
    let request = exec_request(command, StdinMode::Stream, OutputMode::Stream, ProgramLifetime::Session);
    (request, first)
}

fn exec_request(
    command: Command,
    stdin: StdinMode,
    output: OutputMode,
    lifetime: ProgramLifetime,
) -> Request {
    Request::Exec(ExecRequest {
        argv: command.argv,
        env: command.env,
        cwd: command.cwd,
        stdin,
        output,
        merge_stderr: command.merge_stderr,
        limits: command.limits,
        lifetime,
    })
}

/// How a program ended; `None` when the counts do not match the received bytes.
pub(crate) fn outcome(reply: ExecReply, collected: CollectedOutput) -> Option<CommandOutcome> {
    Some(CommandOutcome {
        end: reply.end,
        stdout: output(reply.stdout, collected.stdout)?,
        stderr: output(reply.stderr, collected.stderr)?,
        duration: Duration::from_micros(reply.duration_us),
        limits_hit: reply.reached,
    })
}

fn output(captured: CapturedOutput, mut bytes: Vec<u8>) -> Option<CommandOutput> {
    let kept = captured.head.checked_add(captured.tail)?;
    if kept != bytes.len() as u64 || captured.total < kept {
        return None;
    }
    let tail = bytes.split_off(usize::try_from(captured.head).ok()?);
    Some(CommandOutput {
        head: bytes,
        tail,
        total: captured.total,
        spill_path: captured.spill_path,
        spilled: captured.spilled,
    })
}

/// How a program ended, with the total sizes of its streamed output.
pub(crate) fn streamed_outcome(reply: ExecReply) -> Option<CommandOutcome> {
    let without_content = |captured| CapturedOutput { head: 0, tail: 0, ..captured };
    let reply =
        ExecReply { stdout: without_content(reply.stdout), stderr: without_content(reply.stderr), ..reply };
    outcome(reply, CollectedOutput::default())
}

/// The result of a view; `None` when the content does not match the reply.
pub(crate) fn view(viewed: ViewReply, content: Vec<u8>) -> Option<View> {
    Some(match viewed {
        ViewReply::Text { first_line, last_line, total_lines, size, truncated } => View::Text {
            text: String::from_utf8(content).ok()?,
            first_line,
            last_line,
            total_lines,
            size,
            truncated,
        },
        ViewReply::Image { media_type, size } if size == content.len() as u64 => {
            View::Image { media_type, bytes: content }
        }
        ViewReply::Image { .. } => return None,
        ViewReply::Binary { size } => View::Binary { size },
        ViewReply::Directory { entries, truncated } => View::Directory(Listing { entries, truncated }),
    })
}

/// Converts an error of the guest to an error of the sandbox.
pub(crate) fn failure(error: GuestError) -> SandboxError {
    let kind = match error.code {
        ErrorCode::NotFound => SandboxErrorKind::NotFound,
        ErrorCode::PermissionDenied => SandboxErrorKind::PermissionDenied,
        ErrorCode::PathNotAllowed => SandboxErrorKind::PathNotAllowed,
        ErrorCode::IsDirectory | ErrorCode::NotDirectory | ErrorCode::NotRegular => {
            SandboxErrorKind::WrongFileType
        }
        ErrorCode::Exists => SandboxErrorKind::Exists,
        ErrorCode::TooLarge | ErrorCode::ArgumentsTooLong => SandboxErrorKind::TooLarge,
        ErrorCode::NotText => SandboxErrorKind::NotText,
        ErrorCode::NoMatch => SandboxErrorKind::NoMatch,
        ErrorCode::NotUnique => SandboxErrorKind::NotUnique,
        ErrorCode::NoSpace => SandboxErrorKind::NoSpace,
        ErrorCode::NotExecutable => SandboxErrorKind::NotExecutable,
        ErrorCode::Exhausted => SandboxErrorKind::Exhausted,
        ErrorCode::TimedOut => SandboxErrorKind::TimedOut,
        ErrorCode::Cancelled => SandboxErrorKind::Cancelled,
        ErrorCode::BadRequest => SandboxErrorKind::BadRequest,
        _ => SandboxErrorKind::Io,
    };
    SandboxError::new(kind, error.message)
}
