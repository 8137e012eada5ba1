//! The tasks of one sandbox: a reader, a writer, and their supervisor, which also holds the guard.
//!
//! The supervisor ends when the sandbox is closed, or when the guest ends, breaks the protocol or does not answer in
//! time. Then it ends every call as lost, and closes both directions of the stream. A healthy guest then ends
//! everything it runs and itself. If it has not ended within [`GRACE`], the supervisor kills it. If the supervisor's
//! task is dropped (because the Tokio runtime ends), the guard does this.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use conjure_base::Deadline;
use conjure_guest::protocol::{Decoder, TUNNELS_MAX};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::shared::{GRACE, SharedMux};
use super::tunnel_stream::TunnelStream;
use super::violation::Violation;
use crate::connector::SandboxGuard;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::proxy_gateway::Gateway;

/// How long to wait for the reason of a guest's end, which the error contains.
const END_REASON_TIMEOUT: Duration = Duration::from_secs(1);

/// The size of the read buffer.
const READ_BUFFER: usize = 256 * 1024;

/// Runs the sandbox to its end, and returns when nothing of it remains.
pub(crate) async fn run_tasks(
    link: Arc<SharedMux>,
    mut guard: Box<dyn SandboxGuard>,
    decoder: Decoder,
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    gateway: Option<Arc<dyn Gateway>>,
    closing: CancellationToken,
) {
    let _failing = FailOnDrop(Arc::clone(&link));
    let mut tasks = JoinSet::new();
    let mut served = JoinSet::new();
    tasks.spawn(read(Arc::clone(&link), reader, decoder));
    tasks.spawn(write(Arc::clone(&link), writer));
    let reason = tokio::select! {
        biased;
        () = closing.cancelled() => "it was closed".to_owned(),
        reason = watch_deadlines(&link) => reason,
        reason = stream_end(&link, &mut tasks, guard.as_mut()) => reason,
        never = serve_tunnels(&link, gateway, &mut served) => match never {},
    };
    tracing::debug!(reason, "sandbox ends");
    link.fail(lost(&reason));
    // First closes both directions, and then waits for the end of the guest.
    tasks.shutdown().await;
    tokio::join!(end_guest(&link, guard.as_mut()), end_tunnels(&link, served));
    link.release_workspace();
    let timeout = link.clock().sleep_until(link.clock().deadline(GRACE));
    tokio::select! {
        biased;
        () = guard.remove_leftovers() => {}
        () = timeout => tracing::warn!(?guard, "leftovers of a sandbox are not removed yet"),
    }
}

async fn end_guest(link: &SharedMux, guard: &mut dyn SandboxGuard) {
    let timeout = link.clock().sleep_until(link.clock().deadline(GRACE));
    tokio::select! {
        biased;
        _ = guard.wait() => {}
        () = timeout => {
            // A process that the kernel cannot kill yet is not waited for any longer.
            let timeout = link.clock().sleep_until(link.clock().deadline(GRACE));
            tokio::select! {
                biased;
                () = guard.kill() => {}
                () = timeout => tracing::warn!(?guard, "the guest was killed and has not ended yet"),
            }
        }
    }
    let timeout = link.clock().sleep_until(link.clock().deadline(GRACE));
    tokio::select! {
        biased;
        () = guard.release() => {}
        () = timeout => tracing::warn!(?guard, "the resources of a sandbox are not released yet"),
    }
}

/// Ends the tasks that serve tunnels, and waits for them.
async fn end_tunnels(link: &SharedMux, mut served: JoinSet<()>) {
    let timeout = link.clock().sleep_until(link.clock().deadline(GRACE));
    tokio::select! {
        biased;
        () = served.shutdown() => {}
        () = timeout => tracing::error!("a gateway blocks its thread and does not end"),
    }
}

/// Serves each tunnel, with a limit on how many are open. If a tunnel has ended in the guest, it still counts until
/// the gateway has ended it as well. So a guest that opens and closes tunnels quickly limits only itself.
async fn serve_tunnels(
    link: &Arc<SharedMux>,
    gateway: Option<Arc<dyn Gateway>>,
    served: &mut JoinSet<()>,
) -> Infallible {
    let Some(gateway) = gateway else { return pending().await };
    loop {
        tokio::select! {
            biased;
            Some(ended) = served.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a tunnel was not served to its end");
                }
            }
            tunnel = TunnelStream::next(link), if served.len() < TUNNELS_MAX => {
                served.spawn(Arc::clone(&gateway).serve(tunnel));
            }
        }
    }
}

/// Ends all calls if the supervisor's task is dropped or panics.
struct FailOnDrop(Arc<SharedMux>);

impl Drop for FailOnDrop {
    fn drop(&mut self) {
        self.0.fail(lost("its supervisor ended"));
    }
}

fn lost(reason: &str) -> SandboxError {
    SandboxError::new(SandboxErrorKind::Lost, format!("the sandbox was lost: {reason}"))
}

/// Resolves with the reason when a call found a protocol error, or the guest does not answer in time.
async fn watch_deadlines(link: &SharedMux) -> String {
    loop {
        let armed = link.next_deadline();
        if let Some(failure) = link.failure() {
            return failure.to_string();
        }
        if armed != Deadline::NEVER && link.clock().remaining(armed).is_zero() {
            return format!("the guest did not answer within {} s of a deadline", GRACE.as_secs());
        }
        tokio::select! {
            () = link.attention() => {}
            () = link.clock().sleep_until(armed) => {}
        }
    }
}

/// Resolves with the reason when the stream or the guest has ended.
async fn stream_end(link: &SharedMux, tasks: &mut JoinSet<String>, guard: &mut dyn SandboxGuard) -> String {
    let broken = tokio::select! {
        biased;
        broken = tasks.join_next() => broken,
        how = guard.wait() => {
            // The last frames that the guest sent are still in the stream.
            let timeout = link.clock().sleep_until(link.clock().deadline(END_REASON_TIMEOUT));
            tokio::select! {
                _ = tasks.join_next() => {}
                () = timeout => {}
            }
            return format!("the guest ended ({how})");
        }
    };
    let broken = match broken {
        Some(Ok(reason)) => reason,
        Some(Err(error)) => format!("a task of its stream failed: {error}"),
        None => "its stream has no tasks".to_owned(),
    };
    let timeout = link.clock().sleep_until(link.clock().deadline(END_REASON_TIMEOUT));
    tokio::select! {
        how = guard.wait() => format!("{broken}; the guest ended ({how})"),
        () = timeout => broken,
    }
}

async fn read(
    link: Arc<SharedMux>,
    mut reader: Box<dyn AsyncRead + Send + Unpin>,
    mut decoder: Decoder,
) -> String {
    let mut buffer = BytesMut::with_capacity(READ_BUFFER);
    loop {
        // First processes the bytes that followed the greeting.
        if let Err(violation) = link.receive(|| decoder.next_frame().map_err(Violation::from)) {
            let reason = violation.to_string();
            link.fail(lost(&reason));
            return reason;
        }
        buffer.clear();
        match reader.read_buf(&mut buffer).await {
            Ok(0) if decoder.is_at_boundary() => return "its stream ended".to_owned(),
            Ok(0) => return "its stream ended within a frame".to_owned(),
            Ok(_) => decoder.push(&buffer),
            Err(error) => return format!("its stream broke: {error}"),
        }
    }
}

async fn write(link: Arc<SharedMux>, mut writer: Box<dyn AsyncWrite + Send + Unpin>) -> String {
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        poll_fn(|cx| link.poll_fill(&mut buffer, cx)).await;
        let written = match writer.write_all(&buffer).await {
            Ok(()) => writer.flush().await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            return format!("its stream broke: {error}");
        }
    }
}
