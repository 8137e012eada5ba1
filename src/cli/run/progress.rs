//! What the user sees of a run while it goes on: a line for each thing that happened, or the session's events.
//!
//! The driver calls the observer in line and must not wait for a reader that is slow. So what is to be written goes
//! through a queue to a thread of its own. The queue is not bounded, but what it holds is the history, which is in
//! memory anyway.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use conjure::{
    AfterAnswer, Block, BlockKind, Event, EventKind, Observer, Response, SessionId, Timestamp, ToolCall,
    ToolResult, session_events,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::run::produced::size;
use crate::cli::terminal::{Style, Terminal, printable};

/// The most characters of one line.
const LINE: usize = 160;

/// How the run is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// Lines for people, on standard error.
    Progress,
    /// Those, and events for programs, on standard output.
    Events(SessionId),
}

/// The observer's end of the queue.
#[derive(Debug)]
pub(super) struct Watcher {
    queue: Mutex<Sender<Item>>,
}

/// What the writer writes.
#[derive(Debug)]
enum Item {
    /// What was recorded, and its place.
    Event(u64, Event),
    /// A line for people.
    Note(&'static str),
}

/// The writer's end of it.
#[derive(Debug)]
pub(super) struct Printer {
    done: JoinHandle<()>,
}

/// Starts the writer. `unread` is cancelled when events are wanted and nobody reads them any more.
pub(super) fn watch(terminal: Arc<Terminal>, show: Show, unread: CancellationToken) -> (Watcher, Printer) {
    let (sender, receiver) = channel();
    let done = tokio::task::spawn_blocking(move || write_all(&receiver, &terminal, show, &unread));
    (Watcher { queue: Mutex::new(sender) }, Printer { done })
}

impl Watcher {
    /// A line on standard error, after all that happened before it. Does not wait for a reader.
    pub(super) fn note(&self, line: &'static str) {
        self.send(Item::Note(line));
    }

    fn send(&self, item: Item) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // The writer ends only after this end of the queue; were it gone, there would be nobody to tell.
        let _ = queue.send(item);
    }
}

impl Observer for Watcher {
    fn recorded(&self, seq: u64, event: &Event) {
        self.send(Item::Event(seq, event.clone()));
    }
}

impl Printer {
    /// Waits until everything is written: a reader may take its time, and an event that is missing would look like
    /// one that did not happen. Gives `over` when that comes first. The observer must be gone.
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
        let (seq, event) = match item {
            Item::Event(seq, event) => (seq, event),
            Item::Note(line) => {
                terminal.note(line);
                continue;
            }
        };
        if let Show::Events(session) = show {
            for event in session_events(session, seq, &event) {
                terminal.output(&event.to_line());
            }
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
    /// The calls that were made: the tool's name, and when the call started.
    calls: HashMap<String, (String, Timestamp)>,
}

impl Narrator {
    fn tell(&mut self, event: &Event, terminal: &Terminal) {
        let at = event.at;
        let elapsed = at.since(*self.start.get_or_insert(at));
        let line = |style, word: &str, text: &str| {
            let head = format!("{:>7.2}s  {word:<8}", elapsed.as_secs_f64());
            terminal.marked(style, &head, &shorten(text));
        };
        match &event.kind {
            EventKind::ModelCallStarted { call, .. } => line(Style::Dim, "model", &format!("call {call}")),
            EventKind::ModelAnswered { response, .. } => {
                let goes_on = is_followed(response);
                for block in &response.content {
                    self.remember(block, at);
                    match block.kind() {
                        BlockKind::Thinking(text) => line(Style::Dim, "thinks", text),
                        // The last text is the answer, which goes to standard output.
                        BlockKind::Text(text) if goes_on => line(Style::Plain, "says", text),
                        BlockKind::ToolUse(call) => line(Style::Plain, "calls", &describe(call)),
                        _ => {}
                    }
                }
            }
            EventKind::ModelCallFailed { error, .. } => line(Style::Bad, "failed", &error.to_string()),
            EventKind::ToolStarted { call, .. } => {
                if let Some((_, started)) = self.calls.get_mut(call.as_str()) {
                    *started = at;
                }
            }
            EventKind::ToolFinished { result, .. } => {
                let style = if result.is_error { Style::Warning } else { Style::Good };
                line(style, "result", &self.result(result, at));
            }
            EventKind::ApprovalRequested { reason, .. } => line(Style::Warning, "asks", reason),
            _ => {}
        }
    }

    fn remember(&mut self, block: &Block, at: Timestamp) {
        if let BlockKind::ToolUse(call) = block.kind() {
            self.calls.insert(call.id.as_str().to_owned(), (call.name.clone(), at));
        }
    }

    fn result(&mut self, result: &ToolResult, at: Timestamp) -> String {
        let (name, started) =
            self.calls.remove(result.tool_use_id.as_str()).unwrap_or_else(|| ("a tool".to_owned(), at));
        let text = result.text();
        let took = at.since(started).as_secs_f64();
        if result.is_error {
            format!("{name} failed after {took:.2}s: {text}")
        } else {
            format!("{name} done after {took:.2}s, {}", size(text.len() as u64))
        }
    }
}

/// Whether the conversation goes on after this answer, as far as the answer tells.
fn is_followed(response: &Response) -> bool {
    match response.stop_reason.consequence() {
        AfterAnswer::RunTools => response.content.iter().any(|block| block.tool_call().is_some()),
        AfterAnswer::Resume => true,
        AfterAnswer::Stop | AfterAnswer::StopWithoutTools => false,
    }
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
        let (read, reading) = tokio::sync::oneshot::channel::<()>();
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
