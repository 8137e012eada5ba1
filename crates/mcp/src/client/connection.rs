//! [`Connection`]: one connection to a server, from its start to its end.

use std::sync::Arc;

use conjure_base::{Clock as _, Deadline, SystemClock};
use conjure_conversation::{INPUT_ROUNDS, InputRequest, ProvidedInput};
use conjure_sandbox::{CallOptions, Command, Executor, Process, ProcessCall};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, JsonObject, ProtocolVersion,
    ServerResult,
};
use rmcp::service::{ClientCacheConfig, ClientInitializeError, RunningService};
use rmcp::transport::IntoTransport;
use rmcp::transport::streamable_http_client::{InsufficientScopeError, StreamableHttpError};
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient, ServiceError};
use secrecy::SecretString;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::change_subscriptions::listen;
use super::error::McpError;
use super::skills::{ListedSkill, SkillListing, SkillReadError, SkillReader, VerifiedSkill};
use crate::client::calls::handler::{ClientOffer, Handler};
use crate::client::calls::input::{check, questions, retry_params, with_input};
use crate::client::calls::running_calls::{CallProgress, CallStep, OpenCall};
use crate::client::calls::waiting_calls::WaitingCalls;
use crate::client::tools::listing::{Listing, list_tools};
use crate::client::transport::http_transport;
use crate::client::transport::process_transport::{Diagnosis, ProcessTransport, printable};
use crate::config::HttpServer;

/// A live connection. Dropping it ends the server's program.
pub(super) struct Connection {
    server: String,
    service: RunningService<RoleClient, Handler>,
    process: Option<Arc<dyn Process>>,
    /// Why the server's program ended.
    diagnosis: Option<Diagnosis>,
    /// Calls that wait for the user.
    waiting: WaitingCalls,
    /// The bearer token that was sent to the service.
    token: Option<SecretString>,
    /// The task that subscribes to change notifications.
    _listening: JoinSet<()>,
}

/// Supports the newest revision of the protocol and earlier ones: servers of the newest answer `server/discover`, all others get
/// `initialize`.
fn lifecycle() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    }
}

/// Supports the newest revision only. It is for a program that answered `server/discover` after the SDK had stopped waiting.
fn newest_lifecycle() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

/// The advice if a service requires authorization.
const TOKEN_ADVICE: &str =
    "give its token as a header, such as `headers = { Authorization = \"Bearer ${TOKEN}\" }`";

/// The maximum length of the scopes in an error, in characters.
const MAX_SCOPE_CHARS: usize = 200;

/// The result of a call.
pub(super) enum CalledTool {
    Complete(CallToolResult),
    /// The server has questions to the user.
    InputRequired(InputRequest),
}

/// Why the connection failed.
enum StartError {
    Late,
    NeedsScopes { advice: String },
    Protocol { reason: String, needs_authorization: bool },
}

async fn connect<T, E, A>(
    transport: T,
    lifecycle: ClientLifecycleMode,
    deadline: Deadline,
    handler: Handler,
) -> Result<RunningService<RoleClient, Handler>, StartError>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let service = tokio::select! {
        biased;
        service = handler.serve_with_lifecycle(transport, lifecycle) => {
            service.map_err(|error| {
                let cause = start_cause(&error);
                match missing_scopes(cause) {
                    Some(advice) => StartError::NeedsScopes { advice },
                    None => StartError::Protocol {
                        needs_authorization: error.is_authorization_required() || is_unauthorized(cause),
                        reason: printable(&causes(cause)),
                    },
                }
            })
        }
        () = SystemClock.sleep_until(deadline) => Err(StartError::Late),
    };
    // The SDK's cache limits the number of responses and not their bytes. The files of a skill must also be read anew each time.
    if let Ok(service) = &service {
        service.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
    }
    service
}

/// The underlying error, which the SDK does not return as `source()`.
fn start_cause(error: &ClientInitializeError) -> &(dyn std::error::Error + 'static) {
    match error {
        ClientInitializeError::TransportError { error, .. } => &*error.error,
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => start_cause(fallback),
        other => other,
    }
}

fn needs_authorization(server: &str) -> McpError {
    McpError::NeedsAuthorization { server: server.to_owned(), advice: TOKEN_ADVICE.to_owned() }
}

/// Whether a service answered 401 without the header `WWW-Authenticate`. The SDK reports this as text or as an error of its HTTP client.
fn is_unauthorized(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(StreamableHttpError::UnexpectedServerResponse(text)) =
            error.downcast_ref::<StreamableHttpError<reqwest::Error>>()
        {
            return text.starts_with("HTTP 401");
        }
        let status = error.downcast_ref::<reqwest::Error>().and_then(reqwest::Error::status);
        if status == Some(reqwest::StatusCode::UNAUTHORIZED) {
            return true;
        }
        next = error.source();
    }
    false
}

/// The advice if a service accepts the token but the token lacks scopes. `None` for any other error.
fn missing_scopes(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(missing) = error.downcast_ref::<InsufficientScopeError>() {
            let named = missing.get_required_scope().map(|scopes| {
                let scopes = printable(&conjure_base::text::truncate(scopes, MAX_SCOPE_CHARS));
                format!(": it wants `{scopes}`")
            });
            let named = named.unwrap_or_default();
            return Some(format!(
                "sign in again and add scopes (`--scope`), or give it another token{named}"
            ));
        }
        next = error.source();
    }
    None
}

/// An error with its innermost cause, which usually says the most.
pub(super) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let (outer, inner) = (error.to_string(), last.to_string());
    if outer.contains(&inner) { outer } else { format!("{outer}: {inner}") }
}

impl Connection {
    /// Starts a program, and connects to its standard input and output. Notifies `changed` when its tools change.
    pub(super) async fn stdio(
        server: &str,
        command: Command,
        executor: &dyn Executor,
        deadline: Deadline,
        changed: &Arc<Notify>,
        offer: ClientOffer,
    ) -> Result<Self, McpError> {
        let not_started = |reason: String| McpError::NotStarted { server: server.to_owned(), reason };
        let options = CallOptions { deadline, cancel: CancellationToken::new() };
        let started = executor.start(command, options.clone()).await;
        let process: Arc<dyn Process> = Arc::from(started.map_err(|error| not_started(error.to_string()))?);
        let call = process.begin_call(options).await.map_err(|error| not_started(error.to_string()))?;
        let (diagnosis, handler) = (Diagnosis::default(), Handler::new(Arc::clone(changed), offer));
        let transport = ProcessTransport::new(Arc::clone(&process), diagnosis.clone());
        let mut connected = connect(transport, lifecycle(), deadline, handler.clone()).await;
        if matches!(connected, Err(StartError::Protocol { .. })) && diagnosis.speaks_newest() {
            let transport = ProcessTransport::new(Arc::clone(&process), diagnosis.clone());
            connected = connect(transport, newest_lifecycle(), deadline, handler).await;
        }
        let service = match connected {
            Ok(service) => service,
            // The diagnosis of the program says more than the protocol error.
            Err(StartError::Protocol { reason, .. } | StartError::NeedsScopes { advice: reason }) => {
                return Err(not_started(format!("{} ({reason})", diagnosis.reason())));
            }
            Err(StartError::Late) => {
                return Err(not_started(format!("it did not start in time: {}", diagnosis.reason())));
            }
        };
        drop(call);
        Ok(Self {
            server: server.to_owned(),
            _listening: listen(service.peer(), changed),
            service,
            waiting: WaitingCalls::default(),
            process: Some(process),
            diagnosis: Some(diagnosis),
            token: None,
        })
    }

    /// Connects to a service over HTTP.
    pub(super) async fn http(
        server: &str,
        http: &HttpServer,
        token: Option<SecretString>,
        deadline: Deadline,
        changed: &Arc<Notify>,
        offer: ClientOffer,
    ) -> Result<Self, McpError> {
        let not_started = |reason: String| McpError::NotStarted { server: server.to_owned(), reason };
        let transport = http_transport::transport(http, token.as_ref()).await.map_err(not_started)?;
        let handler = Handler::new(Arc::clone(changed), offer);
        match connect(transport, lifecycle(), deadline, handler).await {
            Ok(service) => Ok(Self {
                server: server.to_owned(),
                _listening: listen(service.peer(), changed),
                service,
                waiting: WaitingCalls::default(),
                process: None,
                diagnosis: None,
                token,
            }),
            Err(StartError::Protocol { needs_authorization: true, .. }) => Err(needs_authorization(server)),
            Err(StartError::NeedsScopes { advice }) => {
                Err(McpError::NeedsScopes { server: server.to_owned(), advice })
            }
            Err(StartError::Protocol { reason, .. }) => Err(not_started(reason)),
            Err(StartError::Late) => Err(not_started("it did not answer in time".to_owned())),
        }
    }

    pub(super) const fn token(&self) -> Option<&SecretString> {
        self.token.as_ref()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed()
    }

    /// Lists all tools.
    pub(super) async fn list_tools(&self, options: CallOptions) -> Result<Listing, McpError> {
        let _call = self.begin_call(options).await?;
        list_tools(self.service.peer()).await.map_err(|error| self.error(error))
    }

    /// Lists all skills. A server without the extension has none.
    pub(super) async fn list_skills(&self, options: CallOptions) -> Result<SkillListing, McpError> {
        let reader = SkillReader(self.service.peer());
        if !reader.has_skills() {
            return Ok(SkillListing::default());
        }
        let _call = self.begin_call(options).await?;
        reader.list().await.map_err(|error| self.error(error))
    }

    /// Reads and verifies the files of a skill.
    pub(super) async fn read_skill(
        &self,
        skill: &ListedSkill,
        options: CallOptions,
    ) -> Result<VerifiedSkill, McpError> {
        let _call = self.begin_call(options).await?;
        SkillReader(self.service.peer()).read(skill).await.map_err(|error| match error {
            SkillReadError::Service(error) => self.error(error),
            SkillReadError::Changed => McpError::SkillChanged { server: self.server.clone() },
            SkillReadError::Wrong(reason) => {
                McpError::WrongSkill { server: self.server.clone(), reason: printable(&reason) }
            }
        })
    }

    /// Calls a tool by the server's name for it. Dropping the future cancels the call at the server; the server itself keeps running.
    pub(super) async fn call_tool(
        &self,
        tool: &str,
        arguments: JsonObject,
        input: Option<ProvidedInput>,
        progress: &CallProgress,
        options: CallOptions,
    ) -> Result<CalledTool, McpError> {
        let process = self.begin_call(options).await?;
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let mut open = match input {
            Some(input) if WaitingCalls::is_for_waiting(&input) => {
                self.waiting.answer(input, progress).ok_or_else(|| self.no_longer_waiting())?
            }
            Some(input) => self.begin(with_input(params.clone(), input), progress).await?,
            None => self.begin(params.clone(), progress).await?,
        };
        for _ in 0..INPUT_ROUNDS {
            let answer = match open.next().await {
                CallStep::Ended(answer) => (*answer).map_err(|error| self.error(error))?,
                CallStep::Asked(question) => {
                    let asked = self.waiting.insert(&self.server, question, open, process);
                    return asked.map(CalledTool::InputRequired).map_err(|reason| self.unsupported(&reason));
                }
            };
            let asked = match answer {
                ServerResult::CallToolResult(result) => return Ok(CalledTool::Complete(result)),
                // A result without content.
                ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => {
                    return Ok(CalledTool::Complete(CallToolResult::default()));
                }
                ServerResult::InputRequiredResult(asked) => asked,
                ServerResult::CreateTaskResult(_) => {
                    return Err(self.unsupported("made a task of this call, which is not supported"));
                }
                _ => return Err(self.error(ServiceError::UnexpectedResponse)),
            };
            check(&asked).map_err(|reason| self.unsupported(&reason))?;
            let requests = asked.input_requests.clone().unwrap_or_default();
            let Some(answered) = self.service.service().respond(&requests).await else {
                let asked = questions(&self.server, asked).map_err(|reason| self.unsupported(&reason))?;
                return Ok(CalledTool::InputRequired(asked));
            };
            let responses = answered.map_err(|reason| self.unsupported(&reason))?;
            open = self.begin(retry_params(params.clone(), responses, asked.request_state), progress).await?;
        }
        Err(self.unsupported("asks again and again for the same call, which was given up"))
    }

    /// Sends a call.
    async fn begin(
        &self,
        params: CallToolRequestParams,
        progress: &CallProgress,
    ) -> Result<OpenCall, McpError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let calls = &self.service.service().calls;
        calls.begin(self.service.peer(), request, progress).await.map_err(|error| self.error(error))
    }

    fn no_longer_waiting(&self) -> McpError {
        McpError::Lost {
            server: self.server.clone(),
            reason: "it speaks an older revision of the protocol, and held its call open while a person was asked. The call ended before the answer came: the server was started anew, the session was idle for long, or too many calls waited".to_owned(),
        }
    }

    /// Keeps the sandbox of the server's program running until the call ends.
    async fn begin_call(&self, options: CallOptions) -> Result<Option<ProcessCall>, McpError> {
        match &self.process {
            None => Ok(None),
            Some(process) => process.begin_call(options).await.map(Some).map_err(|error| {
                McpError::NotStarted { server: self.server.clone(), reason: error.to_string() }
            }),
        }
    }

    fn unsupported(&self, reason: &str) -> McpError {
        McpError::Unsupported { server: self.server.clone(), reason: reason.to_owned() }
    }

    fn error(&self, error: ServiceError) -> McpError {
        let server = self.server.clone();
        if let Some(advice) = missing_scopes(&error) {
            return McpError::NeedsScopes { server, advice };
        }
        match error {
            _ if error.is_authorization_required() || is_unauthorized(&error) => needs_authorization(&server),
            ServiceError::TransportSend(_) | ServiceError::TransportClosed => {
                let reason = match &self.diagnosis {
                    Some(diagnosis) => diagnosis.reason(),
                    None => printable(&causes(&error)),
                };
                McpError::Lost { server, reason }
            }
            ServiceError::McpError(error) => McpError::Refused {
                server,
                reason: printable(&format!("{} ({})", error.message, error.code.0)),
            },
            other => McpError::Refused { server, reason: printable(&other.to_string()) },
        }
    }
}
