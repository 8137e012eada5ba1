//! Prints the events of a turn on a separate thread, so that the task that follows the session never waits for a slow reader.
//!
//! State: the queue. It is unbounded, but it only holds the history, which is in memory anyway.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use conjure::model::ModelEvent;
use conjure::tool::ToolProgress;
use conjure::{SessionEvent, Update};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cli::terminal::Terminal;

/// Shows the events of a turn.
pub(crate) trait TurnDisplay: Send + 'static {
    /// Shows a recorded event.
    fn event(&mut self, event: &SessionEvent, terminal: &Terminal);

    /// Shows a part of the response that is being received. The part is recorded later.
    fn preview(&mut self, _preview: &ModelEvent, _terminal: &Terminal) {}

    /// Shows the progress of a running call.
    fn progress(&mut self, _progress: &ToolProgress, _terminal: &Terminal) {}

    /// Previews were lost.
    fn lagged(&mut self) {}

    /// Prepares standard error for a line that another component prints.
    fn begin_line(&mut self, _terminal: &Terminal) {}
}

/// The sender of the queue.
#[derive(Debug)]
pub(crate) struct EventSender {
    queue: Mutex<Sender<PrintItem>>,
}

/// An item for the printer.
#[derive(Debug)]
enum PrintItem {
    /// An update of the session.
    Update(Box<Update>),
    /// A line for people.
    Note(String),
    /// Replies when everything before it is written.
    Flush(oneshot::Sender<()>),
}

/// The thread that prints.
#[derive(Debug)]
pub(crate) struct PrinterThread {
    done: JoinHandle<()>,
}

/// Starts the printer.
pub(crate) fn start_printer(
    terminal: Arc<Terminal>,
    display: impl TurnDisplay,
) -> (EventSender, PrinterThread) {
    let (sender, receiver) = channel();
    let done = tokio::task::spawn_blocking(move || write_all(&receiver, &terminal, display));
    (EventSender { queue: Mutex::new(sender) }, PrinterThread { done })
}

impl EventSender {
    /// Prints a line on standard error after all earlier events. Does not wait for the reader.
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.send(PrintItem::Note(line.into()));
    }

    /// Returns when all earlier items are written.
    pub(crate) async fn flush(&self) {
        let (sender, told) = oneshot::channel();
        self.send(PrintItem::Flush(sender));
        let _ = told.await;
    }

    /// Shows an update of the session.
    pub(crate) fn send_update(&self, update: Update) {
        self.send(PrintItem::Update(Box::new(update)));
    }

    fn send(&self, item: PrintItem) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // The printer outlives its senders, so this does not fail.
        let _ = queue.send(item);
    }
}

impl PrinterThread {
    /// Waits until everything is written. Otherwise a slow reader could miss an event and conclude that it did not happen. If `over`
    /// completes first, returns its value. All senders must be dropped before.
    pub(crate) async fn finish<T>(self, over: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            _ = self.done => None,
            over = over => Some(over),
        }
    }
}

fn write_all(receiver: &Receiver<PrintItem>, terminal: &Terminal, mut display: impl TurnDisplay) {
    for item in receiver {
        match item {
            PrintItem::Update(update) => match *update {
                Update::Recorded(event) => display.event(&event, terminal),
                Update::Preview(preview) => display.preview(&preview, terminal),
                Update::ToolProgress(progress) => display.progress(&progress, terminal),
                Update::Lagged => display.lagged(),
                // An update of a later version.
                _ => {}
            },
            PrintItem::Note(line) => {
                display.begin_line(terminal);
                terminal.note(&line);
            }
            PrintItem::Flush(told) => {
                display.begin_line(terminal);
                let _ = told.send(());
            }
        }
    }
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
        let mut finishing = Box::pin(PrinterThread { done }.finish(std::future::pending::<()>()));
        let day = std::time::Duration::from_secs(24 * 60 * 60);
        assert!(
            tokio::time::timeout(day, &mut finishing).await.is_err(),
            "the rest of the events was given up"
        );
        read.send(()).unwrap();
        assert_eq!(finishing.await, None);

        let stuck = PrinterThread { done: tokio::spawn(std::future::pending()) };
        assert_eq!(stuck.finish(std::future::ready("a signal")).await, Some("a signal"));
    }
}
