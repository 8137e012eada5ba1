//! [`RunningCalls`]: the running calls of a connection, their progress, and the server's questions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use conjure_base::{CallId, lock};
use conjure_conversation::{InputAnswer, InputQuestion, ProgressSink, ToolProgress};
use futures_util::FutureExt as _;
use rmcp::model::{ClientRequest, ProgressNotificationParam, ProgressToken, RequestId, ServerResult};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle};
use rmcp::{RoleClient, ServiceError};
use tokio::sync::{Notify, mpsc, oneshot};

/// The id of a call, and the receiver of its progress.
#[derive(Debug, Clone)]
pub(in crate::client) struct CallProgress {
    pub(in crate::client) call_id: CallId,
    pub(in crate::client) sink: ProgressSink,
}

/// The running calls of a connection, by the progress tokens that the server uses for them.
#[derive(Debug, Clone, Default)]
pub(in crate::client) struct RunningCalls(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    calls: Mutex<HashMap<ProgressToken, RunningCall>>,
    /// The number of calls that this connection has begun.
    begun: AtomicU64,
    /// Locked while a call is being sent, because a question of the server may belong to that call.
    beginning: tokio::sync::Mutex<()>,
    /// Notified when a call ends or starts to wait for an answer.
    paused: Notify,
}

#[derive(Debug)]
struct RunningCall {
    request: RequestId,
    progress: CallProgress,
    questions: mpsc::Sender<OpenQuestion>,
    /// Whether the server waits for an answer to a question of this call.
    is_asking: bool,
}

/// A question of a server of an older revision. The server keeps its call open until it gets an answer.
#[derive(Debug)]
struct OpenQuestion {
    question: InputQuestion,
    answer: oneshot::Sender<InputAnswer>,
}

/// A call that has been sent. Dropping it cancels the call at the server.
pub(in crate::client) struct OpenCall {
    calls: RunningCalls,
    handle: Option<RequestHandle<RoleClient>>,
    token: ProgressToken,
    questions: mpsc::Receiver<OpenQuestion>,
    /// Sends the user's answer to the server.
    asked: Option<oneshot::Sender<InputAnswer>>,
}

/// The next step of a call.
pub(in crate::client) enum CallStep {
    Ended(Box<Result<ServerResult, ServiceError>>),
    /// The server asks the user, and keeps the call open.
    Asked(InputQuestion),
}

impl RunningCalls {
    /// Forwards a progress notification to the call that it names.
    pub(in crate::client) fn report_progress(&self, progress: ProgressNotificationParam) {
        let call = lock(&self.0.calls).get(&progress.progress_token).map(|call| call.progress.clone());
        let Some(CallProgress { call_id, sink }) = call else { return };
        let message = progress.message.unwrap_or_default();
        sink.report(ToolProgress { call_id, done: progress.progress, total: progress.total, message });
    }

    /// The number of calls that were begun on this connection.
    pub(in crate::client) fn begun(&self) -> u64 {
        self.0.begun.load(Ordering::Relaxed)
    }

    /// Waits until every running call waits for an answer, or no call runs.
    pub(in crate::client) async fn wait_paused(&self) {
        drop(self.0.beginning.lock().await);
        loop {
            let mut paused = std::pin::pin!(self.0.paused.notified());
            paused.as_mut().enable();
            if lock(&self.0.calls).values().all(|call| call.is_asking) {
                return;
            }
            paused.await;
        }
    }

    /// Asks the user a question of a running call, and waits for the answer. `about` is the call's request, if it is known. Otherwise the
    /// question belongs to the only call that runs.
    ///
    /// Returns `None` if there is no such call, or if the call ends before the answer.
    pub(in crate::client) async fn ask(
        &self,
        question: InputQuestion,
        about: Option<&RequestId>,
    ) -> Option<InputAnswer> {
        let (sender, answer) = oneshot::channel();
        {
            let _no_other = self.0.beginning.lock().await;
            let mut calls = lock(&self.0.calls);
            let is_about = |call: &RunningCall| about.is_none_or(|request| *request == call.request);
            let mut running = calls.values_mut().filter(|call| !call.is_asking && is_about(call));
            let (Some(call), None) = (running.next(), running.next()) else { return None };
            call.questions.try_send(OpenQuestion { question, answer: sender }).ok()?;
            call.is_asking = true;
        }
        self.0.paused.notify_waiters();
        answer.await.ok()
    }

    /// Sends a call. Its progress is forwarded until the returned call is dropped.
    pub(in crate::client) async fn begin(
        &self,
        peer: &Peer<RoleClient>,
        request: ClientRequest,
        progress: &CallProgress,
    ) -> Result<OpenCall, ServiceError> {
        let _one = self.0.beginning.lock().await;
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        let handle = peer.send_request_with_option(request, PeerRequestOptions::no_options()).await?;
        let token = handle.progress_token.clone();
        let (sender, questions) = mpsc::channel(1);
        let request = handle.id.clone();
        let call = RunningCall { request, progress: progress.clone(), questions: sender, is_asking: false };
        lock(&self.0.calls).insert(token.clone(), call);
        Ok(OpenCall { calls: self.clone(), handle: Some(handle), token, questions, asked: None })
    }
}

impl OpenCall {
    /// Waits for the next step of the call. After the end of the call, it returns an error. Cancel safe.
    pub(in crate::client) async fn next(&mut self) -> CallStep {
        let Some(handle) = &mut self.handle else {
            return CallStep::Ended(Box::new(Err(ServiceError::TransportClosed)));
        };
        let ended = loop {
            tokio::select! {
                biased;
                Some(OpenQuestion { question, answer }) = self.questions.recv() => {
                    if !answer.is_closed() {
                        self.asked = Some(answer);
                        return CallStep::Asked(question);
                    }
                    // The server gave the question up.
                    if let Some(call) = lock(&self.calls.0.calls).get_mut(&self.token) {
                        call.is_asking = false;
                    }
                }
                ended = &mut handle.rx => break ended,
            }
        };
        self.handle = None;
        CallStep::Ended(Box::new(ended.map_err(|_| ServiceError::TransportClosed).flatten()))
    }

    /// Answers the question. Further progress of the call goes to `progress`.
    pub(in crate::client) fn answer(&mut self, answer: InputAnswer, progress: &CallProgress) {
        if let Some(call) = lock(&self.calls.0.calls).get_mut(&self.token) {
            call.progress = progress.clone();
            call.is_asking = false;
        }
        if let Some(asked) = self.asked.take() {
            // The send fails if the server gave its question up. The call then continues without the answer.
            let _ = asked.send(answer);
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        lock(&self.calls.0.calls).remove(&self.token);
        self.calls.0.paused.notify_waiters();
        if let Some(handle) = self.handle.take() {
            // If the queue is full, the cancellation is not sent.
            let _ = handle.cancel(Some("the call was given up".to_owned())).now_or_never();
        }
    }
}
