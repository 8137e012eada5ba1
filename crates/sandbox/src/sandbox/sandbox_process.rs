//! [`Process`] over one channel of the guest's protocol.
//!
//! It does not keep the sandbox alive: when the sandbox is dropped, the program ends with it.

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use conjure_base::Deadline;
use conjure_guest::protocol::{Reply, StreamId};
use futures_util::future::BoxFuture;

use super::Sandbox;
use super::file_stream::WINDOW;
use crate::calls::call_options::CallOptions;
use crate::calls::command::{Command, RunEvent};
use crate::calls::guest_ops;
use crate::calls::process::{Process, ProcessCall};
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_connection::wrong_reply;
use crate::mux::{Call, Event};

/// A program that lives between calls.
#[derive(Debug)]
struct SandboxProcess {
    call: Call,
    /// The number of bytes that were read and not granted to the guest again yet.
    taken: AtomicU32,
}

impl Sandbox {
    /// Starts a program that lives between calls.
    pub(super) async fn start_process(
        &self,
        command: Command,
        options: CallOptions,
    ) -> Result<Box<dyn Process>, SandboxError> {
        let (request, input) = guest_ops::started(self.with_environment(command));
        let mux = &self.guest.mux;
        check_bounds(&options, mux.clock().remaining(options.deadline).is_zero())?;
        // The options apply only to the start.
        let call = Call::open(mux.clone(), request, WINDOW, CallOptions::until(Deadline::NEVER))?;
        let process = SandboxProcess { call, taken: AtomicU32::new(0) };
        tokio::select! {
            biased;
            () = process.write(input) => {}
            () = options.cancel.cancelled() => check_bounds(&options, false)?,
            () = mux.clock().sleep_until(options.deadline) => check_bounds(&options, true)?,
        }
        Ok(Box::new(process))
    }
}

fn check_bounds(options: &CallOptions, is_late: bool) -> Result<(), SandboxError> {
    let (kind, message) = if options.cancel.is_cancelled() {
        (SandboxErrorKind::Cancelled, "it was cancelled before the program was started")
    } else if is_late {
        (SandboxErrorKind::TimedOut, "its time was up before the program was started")
    } else {
        return Ok(());
    };
    Err(SandboxError::new(kind, message))
}

impl Process for SandboxProcess {
    /// Needs no request: the guest resumes all processes by itself when the program gets input.
    fn begin_call(&self, options: CallOptions) -> BoxFuture<'_, Result<ProcessCall, SandboxError>> {
        Box::pin(async move {
            check_bounds(&options, false)?;
            self.call.failure().map_or(Ok(ProcessCall::new()), Err)
        })
    }

    fn write(&self, bytes: Vec<u8>) -> BoxFuture<'_, ()> {
        let mut bytes = Bytes::from(bytes);
        Box::pin(async move {
            while !bytes.is_empty() {
                self.call.send(&mut bytes).await;
            }
        })
    }

    fn close_input(&self) {
        self.call.finish();
    }

    fn next_event(&self) -> BoxFuture<'_, Result<RunEvent, SandboxError>> {
        Box::pin(async {
            if self.taken.load(Ordering::Relaxed) >= WINDOW / 4 {
                self.call.grant(self.taken.swap(0, Ordering::Relaxed));
            }
            match self.call.next().await {
                Event::Data(StreamId::Content, _) => {
                    Err(self.call.protocol_error("a program has no content"))
                }
                Event::Data(stream, bytes) => {
                    // The content of a frame is far below four gigabytes, so this cannot fail.
                    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    self.taken.fetch_add(length, Ordering::Relaxed);
                    Ok(if stream == StreamId::Stdout {
                        RunEvent::Stdout(bytes)
                    } else {
                        RunEvent::Stderr(bytes)
                    })
                }
                Event::Done(Ok(Reply::Exec(reply))) => guest_ops::streamed_outcome(reply)
                    .map(RunEvent::Ended)
                    .ok_or_else(|| self.call.protocol_error("its counts of output are wrong")),
                Event::Done(Ok(_)) => Err(wrong_reply(&self.call)),
                Event::Done(Err(error)) => Err(guest_ops::failure(error)),
                Event::Lost(error) => Err(error),
            }
        })
    }
}
