//! Shows a turn of the chat: the model's text as it arrives, and a line for each tool call.
//!
//! The model's text goes to standard output, everything else to standard error. Nothing moves the cursor, so the output works on any
//! terminal and in any file.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IsTerminal as _};

use conjure::model::{BlockKind, ModelEvent};
use conjure::runtime::Timestamp;
use conjure::session::SessionStopReason;
use conjure::tool::{ToolCall, ToolProgress};
use conjure::{Block, SessionEvent, SessionEventKind};
use tokio_util::sync::CancellationToken;

use crate::cli::approvals::grant_text;
use crate::cli::chat::text_stream::StreamCleaner;
use crate::cli::run::{
    MAX_REASON_CHARS, TurnDisplay, describe_call_shortly, human_size, shorten_to, skill_names,
};
use crate::cli::terminal::{Style, Terminal};

/// The space that a call's line reserves for its duration and the size of its result.
const RESULT_WIDTH: usize = 24;

/// The minimum width of a call.
const MIN_CALL_WIDTH: usize = 20;

/// Shows the turns of a chat.
pub(super) struct ChatDisplay {
    /// Cancelled when standard output is closed.
    output_closed: CancellationToken,
    output: OutputKind,
    /// The text blocks of the response that were shown before they were recorded.
    streamed: VecDeque<StreamedBlock>,
    /// Whether previews were lost, so that text is shown only when it is recorded.
    has_gap: bool,
    cleaner: StreamCleaner,
    /// The line at which the cursor is.
    line: OpenLine,
    /// The running calls.
    calls: HashMap<String, RunningCall>,
}

/// The kind of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputKind {
    /// A terminal, which gets clean text.
    Terminal,
    /// Something else, which gets the text as it is.
    Other,
}

/// A text block that was shown.
struct StreamedBlock {
    index: usize,
    text: String,
}

/// The line that is not complete yet.
#[derive(Debug, PartialEq, Eq)]
enum OpenLine {
    None,
    /// Of standard output: text of the model.
    Text,
    /// Of standard error: this call runs.
    Call(String),
    /// Of standard error: the model is thinking.
    Thinking,
}

struct RunningCall {
    label: String,
    since: Timestamp,
}

impl ChatDisplay {
    pub(super) fn new(output_closed: CancellationToken) -> Self {
        let output = if io::stdout().is_terminal() { OutputKind::Terminal } else { OutputKind::Other };
        Self {
            output_closed,
            output,
            streamed: VecDeque::new(),
            has_gap: false,
            cleaner: StreamCleaner::default(),
            line: OpenLine::None,
            calls: HashMap::new(),
        }
    }

    /// Shows text of the model.
    fn text(&mut self, text: &str, terminal: &Terminal) {
        if text.is_empty() {
            return;
        }
        if self.line != OpenLine::Text {
            self.end_line(terminal);
        }
        let text = match self.output {
            OutputKind::Terminal => self.cleaner.push(text),
            OutputKind::Other => text.to_owned(),
        };
        self.output(&text, terminal);
    }

    fn output(&mut self, text: &str, terminal: &Terminal) {
        if text.is_empty() {
            return;
        }
        terminal.output_part(text);
        self.line = if text.ends_with('\n') { OpenLine::None } else { OpenLine::Text };
        if terminal.output_is_closed() {
            self.output_closed.cancel();
        }
    }

    /// Ends a text block: the next one begins a line.
    fn end_text(&mut self, terminal: &Terminal) {
        let rest = self.cleaner.finish();
        self.output(&rest, terminal);
        if self.line == OpenLine::Text {
            self.output("\n", terminal);
        }
    }

    fn end_line(&mut self, terminal: &Terminal) {
        match self.line {
            OpenLine::None => {}
            OpenLine::Text => self.end_text(terminal),
            OpenLine::Call(_) | OpenLine::Thinking => terminal.note(""),
        }
        self.line = OpenLine::None;
    }

    /// Prints a line on standard error.
    fn note(&mut self, style: Style, text: &str, terminal: &Terminal) {
        self.end_line(terminal);
        let room = terminal.columns().saturating_sub(2).max(MIN_CALL_WIDTH);
        terminal.styled(style, &format!("  {}", shorten_to(text, room)));
    }

    /// Shows the part of a recorded message that was not shown as a preview.
    fn message(&mut self, content: &[Block], terminal: &Terminal) {
        for block in content {
            let BlockKind::Text(text) = block.kind() else { continue };
            let streamed = self.streamed.pop_front().map(|block| block.text).unwrap_or_default();
            match text.strip_prefix(&streamed) {
                Some(rest) if !self.has_gap || streamed.is_empty() => self.text(rest, terminal),
                _ => {
                    // A middle part of the text was not shown.
                    self.end_text(terminal);
                    self.text(text, terminal);
                }
            }
            self.end_text(terminal);
        }
    }

    fn call_began(&mut self, call: &ToolCall, at: Timestamp, terminal: &Terminal) {
        let room = terminal.columns().saturating_sub(RESULT_WIDTH).max(MIN_CALL_WIDTH);
        let label = format!("  {}", shorten_to(&describe_call_shortly(call), room));
        // If several calls run at once, only the first one keeps its line open.
        if self.calls.is_empty() {
            self.end_line(terminal);
            terminal.part(Style::Dim, &label);
            self.line = OpenLine::Call(call.id.as_str().to_owned());
        }
        self.calls.insert(call.id.as_str().to_owned(), RunningCall { label, since: at });
    }

    fn call_ended(&mut self, id: &str, result: &CallResult<'_>, at: Timestamp, terminal: &Terminal) {
        let call = self.calls.remove(id);
        let took = call.as_ref().map_or(0.0, |call| at.duration_since(call.since).as_secs_f64());
        if self.line != OpenLine::Call(id.to_owned()) {
            self.end_line(terminal);
            let label = call.map_or_else(|| "  a tool".to_owned(), |call| call.label);
            terminal.part(Style::Dim, &label);
        }
        self.line = OpenLine::None;
        if result.is_error {
            terminal.styled(Style::Warning, &format!("  failed, {took:.2}s"));
            if !result.text.trim().is_empty() {
                let room = terminal.columns().saturating_sub(4).max(MIN_CALL_WIDTH);
                terminal.styled(Style::Warning, &format!("    {}", shorten_to(result.text, room)));
            }
        } else {
            terminal.styled(Style::Dim, &format!("  {took:.2}s, {}", human_size(result.text.len() as u64)));
        }
    }
}

/// The result of a call.
struct CallResult<'r> {
    text: &'r str,
    is_error: bool,
}

impl TurnDisplay for ChatDisplay {
    fn event(&mut self, event: &SessionEvent, terminal: &Terminal) {
        use SessionEventKind as Kind;
        let at = event.created_at;
        match &event.kind {
            Kind::ModelRequestStart { .. } => {
                self.streamed.clear();
                self.has_gap = false;
            }
            Kind::AgentMessage { content } => self.message(content, terminal),
            Kind::AgentToolUse { call_id, name, input, .. }
            | Kind::AgentCustomToolUse { call_id, name, input } => {
                let call = ToolCall { id: call_id.clone(), name: name.clone(), input: input.clone() };
                self.call_began(&call, at, terminal);
            }
            Kind::AgentToolResult { call_id, result, is_error, .. }
            | Kind::UserCustomToolResult { call_id, result, is_error, .. }
            | Kind::UserToolResult { call_id, result, is_error, .. } => {
                let text = match result.kind() {
                    BlockKind::ToolResult { text, .. } => text.as_str(),
                    _ => "",
                };
                let result = CallResult { text, is_error: *is_error };
                self.call_ended(call_id.as_str(), &result, at, terminal);
            }
            // The question has its own lines.
            Kind::SessionStatusIdle { stop_reason: SessionStopReason::RequiresAction { .. }, .. } => {
                self.end_line(terminal);
            }
            Kind::SessionStatusIdle { .. } => {
                self.end_line(terminal);
                self.calls.clear();
            }
            Kind::UserToolConfirmation { grant: Some(grant), .. } => {
                self.note(Style::Dim, &format!("allowed{}", grant_text(Some(grant))), terminal);
            }
            Kind::ToolServerFailed { failure } => {
                self.end_line(terminal);
                let reason = shorten_to(&failure.reason, MAX_REASON_CHARS);
                terminal.styled(Style::Warning, &format!("  {reason}"));
            }
            Kind::CompactionStart { .. } => {
                self.note(Style::Dim, "the beginning of the conversation is being summarised", terminal);
            }
            Kind::CompactionEnd { reason: Some(reason), .. } => {
                self.note(Style::Warning, &format!("there is no summary: {reason}"), terminal);
            }
            Kind::SessionCompacted { kept_messages, .. } => {
                let told = format!("a summary replaces all but the last {kept_messages} messages");
                self.note(Style::Dim, &told, terminal);
            }
            Kind::SessionSkillsChanged { active_skills, .. } => {
                self.note(Style::Dim, &format!("active skills: {}", skill_names(active_skills)), terminal);
            }
            _ => {}
        }
    }

    fn preview(&mut self, preview: &ModelEvent, terminal: &Terminal) {
        match preview {
            ModelEvent::Started => {
                self.streamed.clear();
                self.has_gap = false;
            }
            ModelEvent::TextDelta { index, text } if !self.has_gap => {
                match self.streamed.back_mut().filter(|block| block.index == *index) {
                    Some(block) => block.text.push_str(text),
                    None => {
                        self.end_text(terminal);
                        self.streamed.push_back(StreamedBlock { index: *index, text: text.clone() });
                    }
                }
                self.text(text, terminal);
            }
            ModelEvent::ThinkingDelta { .. } if self.line == OpenLine::None => {
                terminal.part(Style::Dim, "  thinking …");
                self.line = OpenLine::Thinking;
            }
            _ => {}
        }
    }

    fn progress(&mut self, progress: &ToolProgress, terminal: &Terminal) {
        self.note(Style::Dim, &progress.to_string(), terminal);
    }

    fn lagged(&mut self) {
        self.has_gap = true;
    }

    fn begin_line(&mut self, terminal: &Terminal) {
        self.end_line(terminal);
    }
}
