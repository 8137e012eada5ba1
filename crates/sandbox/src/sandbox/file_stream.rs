//! The content of a file of a sandbox, as a stream.

use std::sync::Arc;

use conjure_guest::protocol::{Reply, Request, StreamId};
use futures_util::{StreamExt as _, stream};

use crate::calls::call_options::CallOptions;
use crate::calls::executor::ContentStream;
use crate::calls::guest_ops;
use crate::error::SandboxError;
use crate::guest_connection::{GuestConnection, wrong_reply};
use crate::mux::{Call, Event};

/// How many bytes of a file or of output may wait for a reader that does not read.
pub(super) const WINDOW: u32 = 512 * 1024;

impl GuestConnection {
    /// Reads a file. If it cannot be opened or read at the start, the call fails, not its stream.
    pub(crate) async fn stream_file(
        self: &Arc<Self>,
        path: &str,
        options: CallOptions,
    ) -> Result<ContentStream, SandboxError> {
        let request = Request::Read { path: path.to_owned(), offset: 0, length: None };
        let call = Call::open(Arc::clone(&self.mux), request, WINDOW, options)?;
        let first = match call.next().await {
            Event::Done(Err(error)) => return Err(guest_ops::failure(error)),
            Event::Lost(error) => return Err(error),
            event => Some(event),
        };
        let file = FileStream { call, taken: 0, first, _guest: Arc::clone(self) };
        let pieces = stream::unfold(Some(file), |file| async move {
            let mut file = file?;
            let last = match file.next().await {
                Event::Data(StreamId::Content, bytes) => {
                    // The content of a frame is far below four gigabytes, so this cannot fail.
                    file.taken = file.taken.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                    return Some((Ok(bytes), Some(file)));
                }
                Event::Data(..) => file.call.protocol_error("a file has no output"),
                Event::Done(Ok(Reply::Read { .. })) => return None,
                Event::Done(Ok(_)) => wrong_reply(&file.call),
                Event::Done(Err(error)) => guest_ops::failure(error),
                Event::Lost(error) => error,
            };
            Some((Err(last), None))
        });
        Ok(pieces.boxed())
    }
}

/// A call whose content becomes a stream. It grants consumed bytes to the guest again when the reader asks for the next
/// chunk.
struct FileStream {
    call: Call,
    /// Bytes that the reader consumed and that are not granted again yet.
    taken: u32,
    first: Option<Event>,
    /// Keeps the sandbox alive as long as the stream.
    _guest: Arc<GuestConnection>,
}

impl FileStream {
    async fn next(&mut self) -> Event {
        if let Some(event) = self.first.take() {
            return event;
        }
        if self.taken >= WINDOW / 4 {
            self.call.grant(std::mem::take(&mut self.taken));
        }
        self.call.next().await
    }
}
