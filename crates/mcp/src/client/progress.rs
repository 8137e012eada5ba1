//! Progress of running calls, and the requests that it belongs to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use conjure_base::{CallId, lock};
use conjure_conversation::{ProgressSink, ToolProgress};
use futures_util::FutureExt as _;
use rmcp::model::{ClientRequest, ProgressNotificationParam, ProgressToken, ServerResult};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle};
use rmcp::{RoleClient, ServiceError};

/// A call, and where its progress is told.
#[derive(Debug, Clone)]
pub(super) struct CallProgress {
    pub(super) call_id: CallId,
    pub(super) sink: ProgressSink,
}

/// The calls of a connection that run, by the tokens that the server names them with.
#[derive(Debug, Clone, Default)]
pub(super) struct RunningCalls(Arc<Mutex<HashMap<ProgressToken, CallProgress>>>);

/// A request under way. Dropping it cancels it at the server.
struct OpenRequest<'r> {
    calls: &'r RunningCalls,
    handle: Option<RequestHandle<RoleClient>>,
    token: ProgressToken,
}

impl RunningCalls {
    /// Hands on what the server tells.
    pub(super) fn tell(&self, told: ProgressNotificationParam) {
        let call = lock(&self.0).get(&told.progress_token).cloned();
        let Some(CallProgress { call_id, sink }) = call else { return };
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
        lock(&self.0).insert(token.clone(), progress.clone());
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
            // If the queue is full, the cancellation is not sent.
            let _ = handle.cancel(Some("the call was given up".to_owned())).now_or_never();
        }
    }
}
