//! Streams out of a sandbox: a program's output while it runs, and a file's content.

use std::pin::Pin;
use std::sync::Arc;

use conjure_guest::protocol::{Reply, Request, StreamId};
use futures_util::{Stream, StreamExt as _, stream};

use super::{Sandbox, SandboxCore, wrong_reply};
use crate::calls::call_options::CallOptions;
use crate::calls::command::{Command, RunEvent};
use crate::calls::guest_ops::{self, ContentSender};
use crate::error::SandboxError;
use crate::mux::{Call, Event};

/// How many bytes of a file or of output may wait for a reader that does not read.
pub(super) const WINDOW: u32 = 512 * 1024;

/// The events of a running program.
pub type RunStream = Pin<Box<dyn Stream<Item = Result<RunEvent, SandboxError>> + Send>>;

impl Sandbox {
    /// Runs a program and streams its output while it runs, then its outcome. If the stream is not polled, the
    /// program is blocked once half a megabyte waits. Dropping the stream ends the program. `keep_head`, `keep_tail`
    /// and `spill` do not apply.
    ///
    /// # Errors
    /// When the program cannot be requested. A later error is the last item of the stream.
    pub fn run_streamed(&self, command: Command, options: CallOptions) -> Result<RunStream, SandboxError> {
        let command = self.with_environment(command);
        let (request, sender) = guest_ops::streamed(command);
        let state = RunStreamState::new(self, request, sender, options)?;
        Ok(state.into_stream(|call, event| match event {
            Event::Data(StreamId::Stdout, bytes) => RunItem::Piece(RunEvent::Stdout(bytes)),
            Event::Data(StreamId::Stderr, bytes) => RunItem::Piece(RunEvent::Stderr(bytes)),
            Event::Data(StreamId::Content, _) => {
                RunItem::Last(Err(call.protocol_error("a program has no content")))
            }
            Event::Done(Ok(Reply::Exec(reply))) => RunItem::Last(
                guest_ops::streamed_outcome(reply)
                    .map(RunEvent::Ended)
                    .ok_or_else(|| call.protocol_error("its counts of output are wrong")),
            ),
            Event::Done(Ok(_)) => RunItem::Last(Err(wrong_reply(call))),
            Event::Done(Err(error)) => RunItem::Last(Err(guest_ops::failure(error))),
            Event::Lost(error) => RunItem::Last(Err(error)),
        }))
    }
}

/// A call whose events become a stream. It grants consumed bytes to the guest again when the reader asks for the next
/// chunk.
pub(super) struct RunStreamState {
    call: Call,
    sender: ContentSender,
    /// Bytes that the reader consumed and that are not granted again yet.
    taken: u32,
    first: Option<Event>,
    /// Keeps the sandbox alive as long as the stream.
    _core: Arc<SandboxCore>,
}

/// What an event contributes to the stream.
pub(super) enum RunItem<T> {
    Piece(T),
    Last(Result<T, SandboxError>),
    End,
}

impl RunStreamState {
    pub(super) fn new(
        sandbox: &Sandbox,
        request: Request,
        sender: ContentSender,
        options: CallOptions,
    ) -> Result<Self, SandboxError> {
        let core = Arc::clone(&sandbox.core);
        let call = Call::open(Arc::clone(&core.mux), request, WINDOW, options)?;
        Ok(Self { call, sender, taken: 0, first: None, _core: core })
    }

    pub(super) fn put_back(&mut self, event: Event) {
        self.first = Some(event);
    }

    pub(super) async fn next(&mut self) -> Event {
        if let Some(event) = self.first.take() {
            return event;
        }
        if self.taken >= WINDOW / 4 {
            self.call.grant(std::mem::take(&mut self.taken));
        }
        let event = self.sender.next(&self.call).await;
        if let Event::Data(_, bytes) = &event {
            // The content of a frame is far below four gigabytes, so this cannot fail.
            self.taken = self.taken.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        }
        event
    }

    pub(super) fn into_stream<T: Send + 'static>(
        self,
        item: impl Fn(&Call, Event) -> RunItem<T> + Send + 'static,
    ) -> Pin<Box<dyn Stream<Item = Result<T, SandboxError>> + Send>> {
        stream::unfold((Some(self), item), |(state, item)| async move {
            let mut state = state?;
            let event = state.next().await;
            match item(&state.call, event) {
                RunItem::Piece(piece) => Some((Ok(piece), (Some(state), item))),
                RunItem::Last(last) => Some((last, (None, item))),
                RunItem::End => None,
            }
        })
        .boxed()
    }
}
