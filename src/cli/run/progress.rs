//! What the user sees of a run while it goes on: a line for each thing that happened, or the session's events.
//!
//! Whoever follows the session must not wait for a reader that is slow. So what is to be written goes through a queue to a
//! thread of its own. The queue is not bounded, but what it holds is the history, which is in memory anyway.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use conjure::{
    AfterAnswer, Block, BlockKind, PinnedSkill, SessionEvent, SessionEventKind, SessionStopReason, Timestamp,
    ToolCall,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::approvals::granted;
use crate::cli::run::produced::size;
use crate::cli::terminal::{Style, Terminal, printable};

/// The most characters of one line.
const LINE: usize = 160;

/// How the run is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// Lines for people, on standard error.
    Progress,
    /// Those, and events for programs, on standard output.
    Events,
}

/// The follower's end of the queue.
#[derive(Debug)]
pub(crate) struct Watcher {
    queue: Mutex<Sender<Item>>,
}

/// What the writer writes.
#[derive(Debug)]
enum Item {
    /// What happened.
    Event(Box<SessionEvent>),
    /// A line for people.
    Note(String),
    /// All before it is written.
    Told(oneshot::Sender<()>),
}

/// The writer's end of it.
#[derive(Debug)]
pub(crate) struct Printer {
    done: JoinHandle<()>,
}

/// Starts the writer. `unread` is cancelled when events are wanted and nobody reads them any more.
pub(crate) fn watch(terminal: Arc<Terminal>, show: Show, unread: CancellationToken) -> (Watcher, Printer) {
    let (sender, receiver) = channel();
    let done = tokio::task::spawn_blocking(move || write_all(&receiver, &terminal, show, &unread));
    (Watcher { queue: Mutex::new(sender) }, Printer { done })
}

impl Watcher {
    /// A line on standard error, after all that happened before it. Does not wait for a reader.
    pub(super) fn note(&self, line: impl Into<String>) {
        self.send(Item::Note(line.into()));
    }

    /// Returns when all that happened before is written.
    pub(super) async fn told(&self) {
        let (sender, told) = oneshot::channel();
        self.send(Item::Told(sender));
        let _ = told.await;
    }

    /// Something happened.
    pub(super) fn tell(&self, event: &SessionEvent) {
        self.send(Item::Event(Box::new(event.clone())));
    }

    fn send(&self, item: Item) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // The writer ends only after this end of the queue; were it gone, there would be nobody to tell.
        let _ = queue.send(item);
    }
}

impl Printer {
    /// Waits until everything is written: a reader may take its time, and an event that is missing would look like
    /// one that did not happen. Gives `over` when that comes first. The watcher must be gone.
    pub(super) async fn finish<T>(self, over: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            _ = self.done => None,
            over = over => Some(over),
        }
    }
}

fn write_all(receiver: &Receiver<Item>, terminal: &Terminal, show: Show, unread: &CancellationToken) {
    let mut narrator = Narrator::default();
    for item in receiver {
        let event = match item {
            Item::Event(event) => event,
            Item::Note(line) => {
                terminal.note(&line);
                continue;
            }
            Item::Told(told) => {
                let _ = told.send(());
                continue;
            }
        };
        if show == Show::Events {
            terminal.output(&event.to_line());
            if terminal.output_is_closed() {
                unread.cancel();
            }
        }
        narrator.tell(&event, terminal);
    }
}

/// Tells the events of a turn in lines.
#[derive(Debug, Default)]
struct Narrator {
    start: Option<Timestamp>,
    /// The calls that were made: the tool's name, and when the answer with the call came.
    calls: HashMap<String, (String, Timestamp)>,
    /// What follows the answer whose parts come now.
    following: Option<AfterAnswer>,
    /// Its texts, until it is known whether it goes on: the last text is the answer, which goes to standard output.
    texts: Vec<String>,
}

impl Narrator {
    fn tell(&mut self, event: &SessionEvent, terminal: &Terminal) {
        let at = event.created_at;
        let elapsed = at.since(*self.start.get_or_insert(at));
        let line = |style, word: &str, text: &str| {
            let head = format!("{:>7.2}s  {word:<8}", elapsed.as_secs_f64());
            terminal.marked(style, &head, &shorten(text));
        };
        match &event.kind {
            SessionEventKind::ModelRequestStart { call } => {
                line(Style::Dim, "model", &format!("call {call}"))
            }
            SessionEventKind::ModelRequestEnd { stop_reason, .. } => {
                self.following = stop_reason.as_ref().map(conjure::StopReason::consequence);
                self.texts.clear();
            }
            SessionEventKind::AgentThinking { thinking } => line(Style::Dim, "thinks", thinking),
            SessionEventKind::AgentMessage { content } => {
                self.texts.extend(texts(content));
                if self.following == Some(AfterAnswer::Resume) {
                    self.texts.drain(..).for_each(|text| line(Style::Plain, "says", &text));
                }
            }
            SessionEventKind::AgentToolUse { tool_use_id, name, input } => {
                if self.following == Some(AfterAnswer::RunTools) {
                    self.texts.drain(..).for_each(|text| line(Style::Plain, "says", &text));
                    // What stands behind a call is followed, too.
                    self.following = Some(AfterAnswer::Resume);
                }
                let call = ToolCall { id: tool_use_id.clone(), name: name.clone(), input: input.clone() };
                line(Style::Plain, "calls", &describe(&call));
                self.calls.insert(tool_use_id.as_str().to_owned(), (name.clone(), at));
            }
            SessionEventKind::SessionError { error } => line(Style::Bad, "failed", &error.to_string()),
            SessionEventKind::AgentToolResult { tool_use_id, result, is_error, .. } => {
                let style = if *is_error { Style::Warning } else { Style::Good };
                let text = match result.kind() {
                    BlockKind::ToolResult { text, .. } => text.as_str(),
                    _ => "",
                };
                let (name, started) =
                    self.calls.remove(tool_use_id.as_str()).unwrap_or_else(|| ("a tool".to_owned(), at));
                let took = at.since(started).as_secs_f64();
                let told = if *is_error {
                    format!("{name} failed after {took:.2}s: {text}")
                } else {
                    format!("{name} done after {took:.2}s, {}", size(text.len() as u64))
                };
                line(style, "result", &told);
            }
            SessionEventKind::SessionStatusIdle {
                stop_reason: SessionStopReason::RequiresAction { reason, .. },
                ..
            } => line(Style::Warning, "asks", reason),
            SessionEventKind::UserToolConfirmation { tool_use_id, result, deny_message, grant } => {
                let name =
                    self.calls.get(tool_use_id.as_str()).map_or(tool_use_id.as_str(), |(name, _)| name);
                let reason = deny_message.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
                let always = granted(grant.as_ref());
                line(Style::Plain, "decided", &format!("{result} {name}{reason}{always}"));
            }
            SessionEventKind::CompactionStart { .. } => {
                line(Style::Dim, "summary", "of the beginning of the conversation, which has grown long");
            }
            SessionEventKind::CompactionEnd { reason: Some(reason), .. } => {
                line(Style::Warning, "summary", &format!("none, the conversation goes on as it is: {reason}"))
            }
            SessionEventKind::SessionCompacted { kept_messages, .. } => line(
                Style::Plain,
                "summary",
                &format!("in place of all but the last {kept_messages} messages"),
            ),
            SessionEventKind::SessionSkillsChanged { active_skills, .. } => {
                line(Style::Plain, "skills", &names(active_skills));
            }
            _ => {}
        }
    }
}

/// Skills by name, in their order.
pub(crate) fn names(skills: &[PinnedSkill]) -> String {
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

/// A call in a few words: what stands for it in its input.
fn describe(call: &ToolCall) -> String {
    let input = call.input_value();
    let field = |name: &str| input.get(name).and_then(serde_json::Value::as_str);
    match field("command").or_else(|| field("path")) {
        Some(what) => format!("{}  {what}", call.name),
        None => format!("{}  {}", call.name, call.input.get()),
    }
}

/// The text on one line that is not too long.
fn shorten(text: &str) -> String {
    let line: String = text.trim().replace(['\n', '\r', '\t'], " ");
    let mut short: String = printable(&line).chars().take(LINE).collect();
    if line.chars().count() > LINE {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the tasks stand in for the writer's thread")]
    async fn a_slow_reader_is_waited_for_unless_the_user_ends_the_wait() {
        let (read, reading) = oneshot::channel::<()>();
        let printing = async { reading.await.unwrap_or_default() };
        let done = tokio::spawn(printing);
        let mut finishing = Box::pin(Printer { done }.finish(std::future::pending::<()>()));
        let day = std::time::Duration::from_secs(24 * 60 * 60);
        assert!(
            tokio::time::timeout(day, &mut finishing).await.is_err(),
            "the rest of the events was given up"
        );
        read.send(()).unwrap();
        assert_eq!(finishing.await, None);

        let stuck = Printer { done: tokio::spawn(std::future::pending()) };
        assert_eq!(stuck.finish(std::future::ready("a signal")).await, Some("a signal"));
    }

    #[test]
    fn a_line_is_short_and_has_no_controls() {
        assert_eq!(shorten(" a\nb\x1b[2J "), "a b\\u{1b}[2J");
        assert_eq!(shorten(&"é".repeat(500)).chars().count(), LINE + 1);
    }

    #[test]
    fn a_call_is_told_by_what_it_does() {
        let call = |input| ToolCall::new("1", "bash_tool", &input);
        assert_eq!(describe(&call(serde_json::json!({"command": "ls"}))), "bash_tool  ls");
        assert_eq!(describe(&call(serde_json::json!([1]))), "bash_tool  [1]");
    }
}
