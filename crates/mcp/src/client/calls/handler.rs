//! [`Handler`]: handles the notifications and requests of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_conversation::InputAnswer;
use rmcp::model::{
    ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    FormElicitationCapability, Implementation, InputRequest, InputRequests, InputResponses,
    ProgressNotificationParam, UrlElicitationCapability,
};
#[expect(deprecated, reason = "older servers use them")]
use rmcp::model::{
    CreateMessageRequestParams, CreateMessageResult, ListRootsResult, Root, RootsCapabilities,
    SamplingCapability,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use tokio::sync::{Notify, Semaphore};

use super::input::question;
use super::running_calls::RunningCalls;
use super::sampling::{Sampler, sample};

/// What the client offers to a server, apart from questions to the user.
#[derive(Debug, Clone, Default)]
pub(in crate::client) struct ClientOffer {
    /// The directories that the server may use ("roots"), as `file` URLs. If this is empty, the client does not declare roots.
    pub(in crate::client) roots: Vec<String>,
    /// Sends the server's requests to the session's model. `None`: sampling is not available.
    pub(in crate::client) sampler: Option<Arc<dyn Sampler>>,
    /// Whether several sessions use the server. A request over standard streams does not say which call it belongs to, so a shared server
    /// cannot ask the user that way.
    pub(in crate::client) is_shared: bool,
}

/// The maximum number of model requests per tool call, on average over the connection.
const SAMPLES_PER_CALL: u64 = 20;

/// Handles the notifications and requests of a server:
///
/// - It notifies `changed` when the server's tools change.
/// - It forwards the progress of calls.
/// - It answers the server's requests.
///
/// Servers of the newest revision send their requests in the result of a call ([`Handler::respond`]). Older servers send requests while the
/// call runs.
#[derive(Debug, Clone)]
pub(in crate::client) struct Handler {
    changed: Arc<Notify>,
    offer: ClientOffer,
    pub(in crate::client) calls: RunningCalls,
    /// Permits one model request at a time.
    sampling: Arc<Semaphore>,
    /// The number of model requests so far.
    sampled: Arc<AtomicU64>,
}

#[expect(deprecated, reason = "older servers use roots and sampling")]
impl Handler {
    /// Creates a handler that notifies `changed` when the server's tools change.
    pub(in crate::client) fn new(changed: Arc<Notify>, offer: ClientOffer) -> Self {
        let (sampling, sampled) = (Arc::new(Semaphore::new(1)), Arc::default());
        Self { changed, offer, calls: RunningCalls::default(), sampling, sampled }
    }

    fn roots(&self) -> ListRootsResult {
        ListRootsResult::new(self.offer.roots.iter().map(Root::new).collect())
    }

    async fn sample(&self, params: CreateMessageRequestParams) -> Result<CreateMessageResult, String> {
        let Some(sampler) = &self.offer.sampler else {
            return Err(
                "may not ask the session's model: `sampling` is not set in its configuration".to_owned()
            );
        };
        let _one = self.sampling.acquire().await.map_err(|error| error.to_string())?;
        let most = SAMPLES_PER_CALL.saturating_mul(self.calls.begun());
        if self.sampled.fetch_add(1, Ordering::Relaxed) >= most {
            return Err(format!("asks the session's model more than {SAMPLES_PER_CALL} times for a call"));
        }
        let answer = sample(&**sampler, params).await;
        answer.map_err(|reason| format!("asked the session's model and got no answer: {reason}"))
    }

    /// Answers these requests without the user. Returns `None` if one of them is a question to the user.
    pub(in crate::client) async fn respond(
        &self,
        requests: &InputRequests,
    ) -> Option<Result<InputResponses, String>> {
        if requests.values().any(|request| matches!(request, InputRequest::Elicitation(_))) {
            return None;
        }
        Some(self.answers(requests).await)
    }

    async fn answers(&self, requests: &InputRequests) -> Result<InputResponses, String> {
        let mut answers = InputResponses::new();
        for (id, request) in requests {
            let answer = match request {
                InputRequest::CreateMessage(request) => {
                    serde_json::to_value(self.sample(request.params.clone()).await?)
                }
                InputRequest::ListRoots(_) if !self.offer.roots.is_empty() => {
                    serde_json::to_value(self.roots())
                }
                _ => return Err("asks for what this client does not offer".to_owned()),
            };
            answers.insert(id.clone(), answer.map_err(|error| error.to_string())?);
        }
        Ok(answers)
    }
}

#[expect(deprecated, reason = "older servers use roots and sampling")]
impl ClientHandler for Handler {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.calls.report_progress(progress);
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(self.roots())
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let refused = |reason: String| ErrorData::invalid_request(format!("this server {reason}"), None);
        tokio::select! {
            biased;
            () = self.calls.wait_paused() => {
                Err(refused("asks the model while no call of it runs".to_owned()))
            }
            () = context.ct.cancelled() => Err(refused("gave its question up".to_owned())),
            answer = self.sample(params) => answer.map_err(refused),
        }
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let question = question(params)
            .map_err(|reason| ErrorData::invalid_params(format!("this server {reason}"), None))?;
        // Over HTTP, the server sends a question in the response stream of its call.
        let about = match context.extensions.get::<InboundStreamOrigin>() {
            Some(InboundStreamOrigin::OutboundRequest(request)) => Some(request),
            Some(InboundStreamOrigin::Unassociated) | None => None,
        };
        if about.is_none() && self.offer.is_shared {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        }
        let answer = tokio::select! {
            biased;
            answer = self.calls.ask(question, about) => answer,
            () = context.ct.cancelled() => Some(InputAnswer::Cancel),
        };
        Ok(match answer {
            Some(InputAnswer::Accept { content: Some(content) }) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(content)
            }
            Some(InputAnswer::Accept { content: None }) => ElicitResult::new(ElicitationAction::Accept),
            Some(InputAnswer::Cancel) => ElicitResult::new(ElicitationAction::Cancel),
            // If it is not clear which call the question belongs to, it is declined.
            Some(InputAnswer::Decline) | None => ElicitResult::new(ElicitationAction::Decline),
        })
    }

    fn get_info(&self) -> ClientConfig {
        let mut config = ClientConfig::default();
        config.capabilities.elicitation = Some(
            ElicitationCapability::new()
                .with_form(FormElicitationCapability::new())
                .with_url(UrlElicitationCapability::new()),
        );
        config.capabilities.roots = (!self.offer.roots.is_empty()).then(RootsCapabilities::default);
        config.capabilities.sampling = self.offer.sampler.as_ref().map(|_| SamplingCapability::default());
        config.client_info = Implementation::new("conjure", env!("CARGO_PKG_VERSION"));
        config
    }
}
