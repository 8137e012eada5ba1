//! [`Handler`]: what a server tells and asks this client by itself.

use std::sync::Arc;

use conjure_conversation::InputAnswer;
use futures_util::future::join_all;
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
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use tokio::sync::{Notify, Semaphore};

use super::input::question;
use super::running_calls::RunningCalls;
use super::sampling::{Sampler, sample};

/// What a server may ask this client, beside a person.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientOffer {
    /// The directories that the server may work in ("roots"), as `file` URLs. Empty: the client says nothing of directories.
    pub(super) roots: Vec<String>,
    /// Who asks the session's model for the server. `None`: nobody.
    pub(super) sampler: Option<Arc<dyn Sampler>>,
}

/// What the client does by itself: it notes that the server's tools have changed, hands on the progress of calls, and answers what the server
/// asks. Servers of the newest revision ask by the answer of a call ([`Handler::respond`]), older ones by requests while the call runs.
#[derive(Debug, Clone)]
pub(super) struct Handler {
    changed: Arc<Notify>,
    offer: ClientOffer,
    pub(super) calls: RunningCalls,
    /// The model is asked once at a time.
    sampling: Arc<Semaphore>,
}

#[expect(deprecated, reason = "older servers use roots and sampling")]
impl Handler {
    /// Tells `changed` when the server's tools change.
    pub(super) fn new(changed: Arc<Notify>, offer: ClientOffer) -> Self {
        Self { changed, offer, calls: RunningCalls::default(), sampling: Arc::new(Semaphore::new(1)) }
    }

    fn roots(&self) -> ListRootsResult {
        ListRootsResult::new(self.offer.roots.iter().map(Root::new).collect())
    }

    async fn sample(&self, params: CreateMessageRequestParams) -> Result<CreateMessageResult, String> {
        let Some(sampler) = &self.offer.sampler else {
            return Err(
                "asks the session's model, which its configuration does not permit (`sampling`)".to_owned()
            );
        };
        let _one = self.sampling.acquire().await.map_err(|error| error.to_string())?;
        sample(&**sampler, params)
            .await
            .map_err(|reason| format!("asked the session's model in vain: {reason}"))
    }

    /// The answers to questions that need no person; `None` if one of them does.
    pub(super) async fn respond(&self, requests: &InputRequests) -> Option<Result<InputResponses, String>> {
        if requests.values().any(|request| matches!(request, InputRequest::Elicitation(_))) {
            return None;
        }
        let answers = requests.iter().map(async |(id, request)| {
            let answer = match request {
                InputRequest::CreateMessage(request) => {
                    let answer = self.sample(request.params.clone()).await?;
                    serde_json::to_value(answer)
                }
                InputRequest::ListRoots(_) if !self.offer.roots.is_empty() => {
                    serde_json::to_value(self.roots())
                }
                _ => return Err("asks for what this client does not offer".to_owned()),
            };
            answer.map(|answer| (id.clone(), answer)).map_err(|error| error.to_string())
        });
        Some(join_all(answers).await.into_iter().collect())
    }
}

#[expect(deprecated, reason = "older servers use roots and sampling")]
impl ClientHandler for Handler {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_progress(&self, told: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.calls.tell(told);
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(self.roots())
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        if !self.calls.is_any() {
            return Err(ErrorData::invalid_request("the model is asked only while a call runs", None));
        }
        tokio::select! {
            biased;
            answer = self.sample(params) => answer.map_err(|reason| {
                ErrorData::invalid_request(format!("this server {reason}"), None)
            }),
            () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
        }
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let question = question(params)
            .map_err(|reason| ErrorData::invalid_params(format!("this server {reason}"), None))?;
        let answer = tokio::select! {
            biased;
            answer = self.calls.ask(question) => answer,
            () = context.ct.cancelled() => Some(InputAnswer::Cancel),
        };
        Ok(match answer {
            Some(InputAnswer::Accept { content: Some(content) }) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(content)
            }
            Some(InputAnswer::Accept { content: None }) => ElicitResult::new(ElicitationAction::Accept),
            Some(InputAnswer::Cancel) => ElicitResult::new(ElicitationAction::Cancel),
            // Nobody is asked where it is not clear by which call.
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
