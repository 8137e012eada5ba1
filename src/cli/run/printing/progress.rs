//! The progress of a run: a line for each event, or the events as JSON.

use std::collections::HashMap;

use conjure::conversation::AfterResponse;
use conjure::model::BlockKind;
use conjure::runtime::Timestamp;
use conjure::session::{PinnedSkill, RequiredNeed, SessionStopReason};
use conjure::tool::{ToolCall, ToolProgress};
use conjure::{Block, SessionEvent, SessionEventKind};
use conjure_base::text::truncate;
use tokio_util::sync::CancellationToken;

use crate::cli::approvals::grant_text;
use crate::cli::run::outputs::output_report::human_size;
use crate::cli::run::printing::printer::TurnDisplay;
use crate::cli::terminal::{Style, Terminal, printable};

/// The maximum length of a line, in characters.
const MAX_LINE_CHARS: usize = 160;

/// The maximum length of the reason why a tool server is missing, in characters. The reason ends with the server's own output.
pub(crate) const MAX_REASON_CHARS: usize = 1_000;

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DisplayMode {
    /// Lines for people, on standard error.
    Lines,
    /// The same, and events as JSON on standard output.
    Events,
}

/// Shows the progress of a run.
#[derive(Debug)]
pub(crate) struct ProgressDisplay {
    mode: DisplayMode,
    formatter: ProgressFormatter,
    /// Cancelled when events are printed and standard output is closed.
    output_closed: CancellationToken,
}

impl ProgressDisplay {
    pub(crate) fn new(mode: DisplayMode, output_closed: CancellationToken) -> Self {
        Self { mode, formatter: ProgressFormatter::default(), output_closed }
    }
}

impl TurnDisplay for ProgressDisplay {
    fn event(&mut self, event: &SessionEvent, terminal: &Terminal) {
        if self.mode == DisplayMode::Events {
            terminal.output(&event.to_line());
            if terminal.output_is_closed() {
                self.output_closed.cancel();
            }
        }
        self.formatter.print(event, terminal);
    }

    fn progress(&mut self, progress: &ToolProgress, terminal: &Terminal) {
        let name = self.formatter.calls.get(progress.call_id.as_str()).map_or("", |(name, _)| name);
        let head = format!("{:>8}  {:<8}", "", "");
        terminal.marked(Style::Dim, &head, &shorten(&format!("{name}: {progress}")));
    }
}

/// Formats the events of a turn as lines.
#[derive(Debug, Default)]
struct ProgressFormatter {
    start: Option<Timestamp>,
    /// The running calls: the name of the tool, and the time of the response.
    calls: HashMap<String, (String, Timestamp)>,
    /// What follows the current response.
    following: Option<AfterResponse>,
    /// The texts of the response, until it is known whether the turn continues. The last text is the result on standard output.
    texts: Vec<String>,
}

impl ProgressFormatter {
    fn print(&mut self, event: &SessionEvent, terminal: &Terminal) {
        let at = event.created_at;
        let elapsed = at.duration_since(*self.start.get_or_insert(at));
        let line_to = |limit, style, word: &str, text: &str| {
            let head = format!("{:>7.2}s  {word:<8}", elapsed.as_secs_f64());
            terminal.marked(style, &head, &shorten_to(text, limit));
        };
        let line = |style, word: &str, text: &str| line_to(MAX_LINE_CHARS, style, word, text);
        match &event.kind {
            SessionEventKind::ModelRequestStart { call, .. } => {
                line(Style::Dim, "model", &format!("call {call}"))
            }
            SessionEventKind::ModelRequestEnd { stop_reason, .. } => {
                self.following = stop_reason.as_ref().map(conjure::StopReason::after_response);
                self.texts.clear();
            }
            SessionEventKind::AgentThinking { thinking } => line(Style::Dim, "thinks", thinking),
            SessionEventKind::AgentMessage { content } => {
                self.texts.extend(texts(content));
                if self.following == Some(AfterResponse::Resume) {
                    self.texts.drain(..).for_each(|text| line(Style::Plain, "says", &text));
                }
            }
            SessionEventKind::AgentToolUse { call_id, name, input, .. }
            | SessionEventKind::AgentCustomToolUse { call_id, name, input } => {
                if self.following == Some(AfterResponse::RunTools) {
                    self.texts.drain(..).for_each(|text| line(Style::Plain, "says", &text));
                    // Text after a call is continued, too.
                    self.following = Some(AfterResponse::Resume);
                }
                let call = ToolCall { id: call_id.clone(), name: name.clone(), input: input.clone() };
                line(Style::Plain, "calls", &describe_call_shortly(&call));
                self.calls.insert(call_id.as_str().to_owned(), (name.clone(), at));
            }
            SessionEventKind::AgentInputRequest { asked_by, questions, .. } => {
                for question in questions.values() {
                    line(Style::Warning, "asks", &format!("{asked_by}: {}", question.message));
                }
            }
            SessionEventKind::ToolServerFailed { failure } => {
                line_to(MAX_REASON_CHARS, Style::Warning, "missing", &failure.reason);
            }
            SessionEventKind::SessionError { error } => line(Style::Bad, "failed", &error.to_string()),
            SessionEventKind::AgentToolResult { call_id, result, is_error, .. }
            | SessionEventKind::UserCustomToolResult { call_id, result, is_error, .. }
            | SessionEventKind::UserToolResult { call_id, result, is_error, .. } => {
                let style = if *is_error { Style::Warning } else { Style::Good };
                let text = match result.kind() {
                    BlockKind::ToolResult { text, .. } => text.as_str(),
                    _ => "",
                };
                let (name, started) =
                    self.calls.remove(call_id.as_str()).unwrap_or_else(|| ("a tool".to_owned(), at));
                let took = at.duration_since(started).as_secs_f64();
                let told = if *is_error {
                    format!("{name} failed after {took:.2}s: {text}")
                } else {
                    format!("{name} done after {took:.2}s, {}", human_size(text.len() as u64))
                };
                line(style, "result", &told);
            }
            SessionEventKind::SessionStatusIdle {
                stop_reason: SessionStopReason::RequiresAction { actions, .. },
                ..
            } => {
                for action in actions {
                    if let RequiredNeed::Approval { reason } = &action.need {
                        line(Style::Warning, "asks", reason);
                    }
                }
            }
            SessionEventKind::UserToolConfirmation { call_id, result, deny_message, grant, .. } => {
                let name = self.calls.get(call_id.as_str()).map_or(call_id.as_str(), |(name, _)| name);
                let reason = deny_message.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
                let always = grant_text(grant.as_ref());
                line(Style::Plain, "decided", &format!("{result} {name}{reason}{always}"));
            }
            SessionEventKind::CompactionStart { .. } => {
                line(Style::Dim, "summary", "of the beginning of the conversation, which has grown long");
            }
            SessionEventKind::CompactionEnd { reason: Some(reason), .. } => line(
                Style::Warning,
                "summary",
                &format!("none, the conversation continues unchanged: {reason}"),
            ),
            SessionEventKind::SessionCompacted { kept_messages, .. } => line(
                Style::Plain,
                "summary",
                &format!("in place of all but the last {kept_messages} messages"),
            ),
            SessionEventKind::SessionSkillsChanged { active_skills, .. } => {
                line(Style::Plain, "skills", &skill_names(active_skills));
            }
            _ => {}
        }
    }
}

/// The names of skills, in order.
pub(crate) fn skill_names(skills: &[PinnedSkill]) -> String {
    if skills.is_empty() {
        return "none".to_owned();
    }
    skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn texts(content: &[Block]) -> impl Iterator<Item = String> {
    content.iter().filter_map(|block| match block.kind() {
        BlockKind::Text(text) => Some(text.clone()),
        _ => None,
    })
}

/// Describes a call briefly, by its command or its path.
pub(crate) fn describe_call_shortly(call: &ToolCall) -> String {
    let input = call.input_value();
    let field = |name: &str| input.get(name).and_then(serde_json::Value::as_str);
    match field("command").or_else(|| field("path")) {
        Some(what) => format!("{}  {what}", call.name),
        None => format!("{}  {}", call.name, call.input.get()),
    }
}

/// The text on one line, truncated.
fn shorten(text: &str) -> String {
    shorten_to(text, MAX_LINE_CHARS)
}

/// The text on one line of at most this many characters, and `…` if it is longer.
pub(crate) fn shorten_to(text: &str, limit: usize) -> String {
    let line = printable(&text.trim().replace(['\n', '\r', '\t'], " "));
    truncate(&line, limit + 1).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_short_and_has_no_controls() {
        assert_eq!(shorten(" a\nb\x1b[2J "), "a b\\u{1b}[2J");
        assert_eq!(shorten(&"é".repeat(500)).chars().count(), MAX_LINE_CHARS + 1);
    }

    #[test]
    fn a_call_is_reported_by_what_it_does() {
        let call = |input| ToolCall::new("1", "bash_tool", &input);
        assert_eq!(describe_call_shortly(&call(serde_json::json!({"command": "ls"}))), "bash_tool  ls");
        assert_eq!(describe_call_shortly(&call(serde_json::json!([1]))), "bash_tool  [1]");
    }
}
