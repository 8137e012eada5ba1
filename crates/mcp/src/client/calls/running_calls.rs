//! [`RunningCalls`]: the calls of a connection that run, what the server tells of them meanwhile, and what it asks.

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

/// A call, and where its progress is told.
#[derive(Debug, Clone)]
pub(in crate::client) struct CallProgress {
    pub(in crate::client) call_id: CallId,
    pub(in crate::client) sink: ProgressSink,
}

/// The calls of a connection that run, by the tokens that the server names them with.
#[derive(Debug, Clone, Default)]
pub(in crate::client) struct RunningCalls(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    calls: Mutex<HashMap<ProgressToken, RunningCall>>,
    /// How many calls were begun.
    begun: AtomicU64,
    /// A call is being sent. What the server asks meanwhile may be about it.
    beginning: tokio::sync::Mutex<()>,
    /// A call has ended, or waits for an answer.
    paused: Notify,
}

#[derive(Debug)]
struct RunningCall {
    request: RequestId,
    progress: CallProgress,
    questions: mpsc::Sender<OpenQuestion>,
    /// The server waits for the answer to a question of this call.
    is_asking: bool,
}

/// A question of a server of an older revision, which holds its call open until it is answered.
#[derive(Debug)]
struct OpenQuestion {
    question: InputQuestion,
    answer: oneshot::Sender<InputAnswer>,
}

/// A call under way. Dropping it cancels it at the server.
pub(in crate::client) struct OpenCall {
    calls: RunningCalls,
    handle: Option<RequestHandle<RoleClient>>,
    token: ProgressToken,
    questions: mpsc::Receiver<OpenQuestion>,
    /// Where the server waits for an answer.
    asked: Option<oneshot::Sender<InputAnswer>>,
}

/// What comes next of a call.
pub(in crate::client) enum CallStep {
    Ended(Box<Result<ServerResult, ServiceError>>),
    /// The server asks a person, and holds the call open.
    Asked(InputQuestion),
}

impl RunningCalls {
    /// Hands on what the server tells.
    pub(in crate::client) fn tell(&self, told: ProgressNotificationParam) {
        let call = lock(&self.0.calls).get(&told.progress_token).map(|call| call.progress.clone());
        let Some(CallProgress { call_id, sink }) = call else { return };
        let message = told.message.unwrap_or_default();
        sink.report(ToolProgress { call_id, done: told.progress, total: told.total, message });
    }

    /// How many calls were begun on this connection.
    pub(in crate::client) fn begun(&self) -> u64 {
        self.0.begun.load(Ordering::Relaxed)
    }

    /// Waits until no call runs but those that wait for an answer.
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

    /// Asks a person in the middle of a call, and waits for the answer. `about` is the call's request where that is known; else it is the only
    /// call that runs. `None` if there is no such call, or if it has ended meanwhile.
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

    /// Sends a call. Its progress is told until it is dropped.
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
    /// Waits for what comes next. After the end of the call nothing does. Cancel safe.
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
                    // The server has given it up.
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

    /// Answers the question, and tells the further progress there.
    pub(in crate::client) fn answer(&mut self, answer: InputAnswer, progress: &CallProgress) {
        if let Some(call) = lock(&self.calls.0.calls).get_mut(&self.token) {
            call.progress = progress.clone();
            call.is_asking = false;
        }
        if let Some(asked) = self.asked.take() {
            // The server may have given its question up; then the call goes on.
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
