//! [`ProcessTransport`]: JSON-RPC messages over the standard streams of a program in a sandbox, one per line.

use std::sync::{Arc, Mutex};

use conjure_base::lock;
use conjure_sandbox::{CommandEnd, Process, RunEvent, SandboxError};
use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

use super::startup_answers::StartupAnswers;

/// The maximum size of a server's message, in bytes. A longer one is discarded while it arrives, and its call fails.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// How many bytes of an oversized message are kept, to find the call that it answers.
const KEPT_HEAD_BYTES: usize = 256;

/// How many of the last bytes of standard error are kept.
const STDERR_BYTES: usize = 4096;

/// The transport to a program. Dropping it ends the program.
#[derive(Debug)]
pub(in crate::client) struct ProcessTransport {
    process: Arc<dyn Process>,
    /// Serializes the writes of messages.
    writing: Arc<tokio::sync::Mutex<()>>,
    lines: LineBuffer,
    startup: StartupAnswers,
    diagnosis: Diagnosis,
}

/// What is known about a program's failure. Clones share it.
#[derive(Debug, Clone, Default)]
pub(in crate::client) struct Diagnosis(Arc<Mutex<DiagnosisState>>);

#[derive(Debug, Default)]
struct DiagnosisState {
    stderr: Vec<u8>,
    end: Option<String>,
    /// The first line on standard output that was not a message.
    noise: Option<String>,
    /// Whether the program answered `server/discover` after the client had stopped waiting.
    speaks_newest: bool,
}

impl Diagnosis {
    fn push_stderr(&self, bytes: &[u8]) {
        let stderr = &mut lock(&self.0).stderr;
        stderr.extend_from_slice(bytes);
        let surplus = stderr.len().saturating_sub(STDERR_BYTES);
        stderr.drain(..surplus);
    }

    /// Describes how the program ended, with the last lines of its standard error.
    pub(in crate::client) fn reason(&self) -> String {
        let state = lock(&self.0);
        let mut parts = vec![state.end.clone().unwrap_or_else(|| "it did not answer".to_owned())];
        if let Some(noise) = &state.noise {
            parts.push(format!("it wrote to standard output what is no message: {noise}"));
        }
        let stderr = String::from_utf8_lossy(&state.stderr);
        let lines: Vec<&str> = stderr.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n");
        if !last.is_empty() {
            parts.push(format!("its standard error ends in:\n{}", printable(&last)));
        }
        parts.join("; ")
    }

    /// Whether the program speaks the newest revision of the protocol, but said so too late.
    pub(in crate::client) fn speaks_newest(&self) -> bool {
        lock(&self.0).speaks_newest
    }

    fn set_end(&self, end: String) {
        lock(&self.0).end.get_or_insert(end);
    }
}

impl ProcessTransport {
    pub(in crate::client) fn new(process: Arc<dyn Process>, diagnosis: Diagnosis) -> Self {
        let (lines, startup) = (LineBuffer::default(), StartupAnswers::default());
        Self { process, writing: Arc::default(), lines, startup, diagnosis }
    }

    /// The message in a line. `None` if the line is not a message.
    fn message(&self, line: Line) -> Option<ServerJsonRpcMessage> {
        let bytes = match line {
            Line::Complete(bytes) => bytes,
            Line::TooLong { head } => {
                let reason = format!("its answer has more than {} MiB", MAX_MESSAGE_BYTES >> 20);
                tracing::warn!("a message of an MCP server is dropped: {reason}");
                let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, reason, None);
                return Some(ServerJsonRpcMessage::error(error, Some(answered_id(&head)?)));
            }
        };
        match serde_json::from_slice(&bytes) {
            Ok(message) => Some(message),
            Err(error) => {
                if !bytes.iter().all(u8::is_ascii_whitespace) {
                    tracing::debug!(%error, "a line of an MCP server is no message");
                    let shown = String::from_utf8_lossy(&bytes).chars().take(200).collect::<String>();
                    lock(&self.diagnosis.0).noise.get_or_insert(format!("`{}`", printable(&shown)));
                }
                None
            }
        }
    }
}

impl Transport<RoleClient> for ProcessTransport {
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.startup.sent(&item);
        let (process, writing) = (Arc::clone(&self.process), Arc::clone(&self.writing));
        async move {
            let mut line = serde_json::to_vec(&item).map_err(std::io::Error::other)?;
            line.push(b'\n');
            let _one = writing.lock_owned().await;
            process.write(line).await;
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            while let Some(line) = self.lines.next() {
                let Some(message) = self.message(line) else { continue };
                if !self.startup.is_late(&message) {
                    return Some(message);
                }
                if matches!(message, ServerJsonRpcMessage::Response(_)) {
                    lock(&self.diagnosis.0).speaks_newest = true;
                }
            }
            match self.process.next_event().await {
                Ok(RunEvent::Stdout(bytes)) => self.lines.push(&bytes),
                Ok(RunEvent::Stderr(bytes)) => self.diagnosis.push_stderr(&bytes),
                Ok(RunEvent::Ended(outcome)) => {
                    self.diagnosis.set_end(end_text(outcome.end));
                    return None;
                }
                Err(error) => {
                    self.diagnosis.set_end(start_text(&error));
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.process.close_input();
        Ok(())
    }
}

fn end_text(end: CommandEnd) -> String {
    match end {
        CommandEnd::Exited(code) => format!("it exited with code {code}"),
        CommandEnd::Signaled(signal) => format!("signal {signal} ended it"),
        CommandEnd::OutOfMemory => "it was killed because its sandbox's memory ran out".to_owned(),
        CommandEnd::QuotaExceeded(excess) => format!("it was ended because the workspace took {excess}"),
        CommandEnd::TimedOut | CommandEnd::Cancelled | CommandEnd::Lost => "it was ended".to_owned(),
    }
}

fn start_text(error: &SandboxError) -> String {
    error.to_string()
}

/// A server's text for an error message, with control characters escaped.
pub(in crate::client) fn printable(text: &str) -> String {
    let shown = |c: char| c == '\n' || c == '\t' || !c.is_control();
    conjure_base::text::strip_deceptive(text)
        .chars()
        .map(|c| if shown(c) { c.to_string() } else { c.escape_default().to_string() })
        .collect()
}

/// The id of the request that a message answers, found in its first bytes.
fn answered_id(head: &[u8]) -> Option<RequestId> {
    let text = String::from_utf8_lossy(head);
    let (_, after) = text.split_once("\"id\"")?;
    let value = after.trim_start().strip_prefix(':')?.trim_start();
    let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().map(RequestId::Number)
}

/// Splits bytes into lines.
#[derive(Debug, Default)]
struct LineBuffer {
    buffer: Vec<u8>,
    /// How many bytes of the buffer were searched and hold no line end.
    searched: usize,
    /// Whether the current line is too long. The buffer then holds only its head.
    is_dropping: bool,
    /// The head of a discarded line that has ended.
    dropped: Option<Vec<u8>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Complete(Vec<u8>),
    TooLong { head: Vec<u8> },
}

impl LineBuffer {
    fn push(&mut self, mut bytes: &[u8]) {
        if self.is_dropping {
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
            self.is_dropping = false;
            self.dropped = Some(std::mem::take(&mut self.buffer));
            bytes = bytes.get(end + 1..).unwrap_or_default();
        }
        self.buffer.extend_from_slice(bytes);
        let has_end = self.buffer.get(self.searched..).is_some_and(|new| new.contains(&b'\n'));
        if !has_end && self.buffer.len() > MAX_MESSAGE_BYTES {
            self.buffer.truncate(KEPT_HEAD_BYTES);
            self.buffer.shrink_to_fit();
            self.searched = 0;
            self.is_dropping = true;
        }
    }

    fn next(&mut self) -> Option<Line> {
        if let Some(head) = self.dropped.take() {
            return Some(Line::TooLong { head });
        }
        if self.is_dropping {
            return None;
        }
        let new = self.buffer.get(self.searched..)?;
        let Some(end) = new.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + end;
        let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
        line.pop();
        self.searched = 0;
        Some(Line::Complete(line))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_dropped_and_the_next_one_is_read() {
        let mut lines = LineBuffer::default();
        lines.push(b"{\"jsonrpc\":\"2.0\", \"id\" : 17,\"result\":\"");
        for _ in 0..=32 {
            lines.push(&vec![b'x'; 1 << 20]);
            assert_eq!(lines.next(), None);
        }
        assert!(lines.buffer.capacity() < 1 << 20, "nothing of it is kept");
        lines.push(b"xx\"}\n{}\n");
        let Some(Line::TooLong { head }) = lines.next() else { panic!("it was dropped") };
        assert_eq!(answered_id(&head), Some(RequestId::Number(17)));
        assert_eq!(lines.next(), Some(Line::Complete(b"{}".to_vec())));
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn standard_error_is_kept_from_its_end_and_shown_without_escapes() {
        let diagnosis = Diagnosis::default();
        diagnosis.push_stderr(&vec![b'a'; 2 * STDERR_BYTES]);
        diagnosis.push_stderr(b"\nlast \x1b[31mline\n\n");
        diagnosis.set_end("it exited with code 1".to_owned());
        let reason = diagnosis.reason();
        assert!(reason.starts_with("it exited with code 1; "), "{reason}");
        assert!(reason.ends_with("last \\u{1b}[31mline"), "{reason}");
        assert!(reason.len() < 2 * STDERR_BYTES);
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_bytes_are_cut(
            text in "[a-z\n]{0,200}",
            cuts in proptest::collection::vec(1_usize..20, 1..40),
        ) {
            let (mut lines, mut read) = (LineBuffer::default(), Vec::new());
            let (mut rest, mut cuts) = (text.as_bytes(), cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                lines.push(now);
                while let Some(Line::Complete(line)) = lines.next() {
                    read.push(String::from_utf8(line).unwrap());
                }
                rest = later;
            }
            let mut expected: Vec<String> = text.split('\n').map(str::to_owned).collect();
            expected.pop();
            prop_assert_eq!(read, expected);
        }
    }
}
