//! What servers tell of calls that run, and the requests that they tell it of.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{CallId, Clock as _, Deadline, SystemClock, lock};
use conjure_conversation::{ProgressSink, ToolProgress};
use futures_util::FutureExt as _;
use rmcp::model::{ClientRequest, ProgressNotificationParam, ProgressToken, ServerResult};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle};
use rmcp::{RoleClient, ServiceError};

/// The pause between two reports of one call. What a server tells in between is left out.
const PAUSE: Duration = Duration::from_secs(1);

/// A call, and where its progress is told.
#[derive(Debug, Clone)]
pub(super) struct CallProgress {
    pub(super) call_id: CallId,
    pub(super) sink: ProgressSink,
}

/// The calls of a connection that run, by the tokens that the server names them with.
#[derive(Debug, Clone, Default)]
pub(super) struct RunningCalls(Arc<Mutex<HashMap<ProgressToken, Running>>>);

#[derive(Debug)]
struct Running {
    progress: CallProgress,
    /// No report before that.
    next_at: Deadline,
}

/// A request under way. Dropping it cancels it at the server.
struct OpenRequest<'r> {
    calls: &'r RunningCalls,
    handle: Option<RequestHandle<RoleClient>>,
    token: ProgressToken,
}

impl RunningCalls {
    /// Hands on what the server tells.
    pub(super) fn tell(&self, told: ProgressNotificationParam) {
        let mut calls = lock(&self.0);
        let Some(running) = calls.get_mut(&told.progress_token) else { return };
        if !SystemClock.remaining(running.next_at).is_zero() {
            return;
        }
        running.next_at = SystemClock.deadline(PAUSE);
        let CallProgress { call_id, sink } = running.progress.clone();
        drop(calls);
        let message = told.message.unwrap_or_default();
        sink.report(ToolProgress { call_id, done: told.progress, total: told.total, message });
    }

    /// Sends a request, and tells of its progress until it is answered.
    pub(super) async fn request(
        &self,
        peer: &Peer<RoleClient>,
        request: ClientRequest,
        progress: &CallProgress,
    ) -> Result<ServerResult, ServiceError> {
        let handle = peer.send_request_with_option(request, PeerRequestOptions::no_options()).await?;
        let token = handle.progress_token.clone();
        let running = Running { progress: progress.clone(), next_at: SystemClock.deadline(Duration::ZERO) };
        lock(&self.0).insert(token.clone(), running);
        let mut open = OpenRequest { calls: self, handle: Some(handle), token };
        let Some(handle) = &mut open.handle else { return Err(ServiceError::TransportClosed) };
        let answer = (&mut handle.rx).await;
        open.handle = None;
        answer.map_err(|_| ServiceError::TransportClosed)?
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        lock(&self.calls.0).remove(&self.token);
        if let Some(handle) = self.handle.take() {
            // It is queued at once, if the connection has room; else the connection hardly lives.
            let _ = handle.cancel(Some("the call was given up".to_owned())).now_or_never();
        }
    }
}
