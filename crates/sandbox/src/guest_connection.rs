//! [`GuestConnection`]: the connection of a sandbox to its guest, and requests that run to their end.

use std::sync::Arc;

use conjure_guest::protocol::{Reply, Request};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::calls::call_options::CallOptions;
use crate::calls::guest_ops::{self, CollectedOutput, ContentSender};
use crate::error::SandboxError;
use crate::mux::{Call, Event, SharedMux};

/// The state that a sandbox and its streams share. Dropping the last handle closes the sandbox.
#[derive(Debug)]
pub(crate) struct GuestConnection {
    pub(crate) mux: Arc<SharedMux>,
    pub(crate) closing: CancellationToken,
    /// The task that serves the stream, which ends soon after `closing` is cancelled.
    pub(crate) tasks: TaskTracker,
}

impl Drop for GuestConnection {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl GuestConnection {
    /// Runs a request to its end.
    pub(crate) async fn finish(
        &self,
        request: Request,
        credit: u32,
        mut sender: ContentSender,
        options: CallOptions,
    ) -> Result<(Call, Reply, CollectedOutput), SandboxError> {
        let call = Call::open(Arc::clone(&self.mux), request, credit, options)?;
        let mut collected = CollectedOutput::default();
        loop {
            match sender.next(&call).await {
                Event::Data(stream, bytes) => collected.push(stream, &bytes),
                Event::Done(Ok(reply)) => return Ok((call, reply, collected)),
                Event::Done(Err(error)) => {
                    return Err(sender.into_failure().unwrap_or_else(|| guest_ops::failure(error)));
                }
                Event::Lost(error) => return Err(error),
            }
        }
    }
}

pub(crate) fn wrong_reply(call: &Call) -> SandboxError {
    call.protocol_error("the reply is not one to this request")
}
