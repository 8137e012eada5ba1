//! [`serve`]: answers the requests of one editor.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, CloseSessionRequest, CloseSessionResponse, Implementation,
    InitializeRequest, InitializeResponse, LoadSessionRequest, LoadSessionResponse, McpCapabilities,
    NewSessionRequest, NewSessionResponse, PromptCapabilities, PromptRequest, PromptResponse,
    SessionCapabilities, SessionCloseCapabilities, SessionId as EditorSessionId, SessionNotification,
    SetSessionModeRequest, SetSessionModeResponse,
};
use agent_client_protocol::{Agent, ByteStreams, Client, Error};
use conjure_actors::session::Session;
use conjure_base::{SessionId, TenantId, lock};
use conjure_runtime::{Runtime, SessionSecrets, SessionSpec};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};
use tokio_util::sync::CancellationToken;

use crate::modes::{EditorModes, Mode};
use crate::turn_follower::{TurnFollower, failed};
use crate::updates::{self, ShownText};
use crate::{mcp_servers, prompt_content};

/// The system prompt of each session.
const BASE_PROMPT: &str = "You are a helpful assistant with tools, inside the editor of a programmer. Your working directory is the programmer's \
                           project. Use the tools to find out instead of guessing, and answer briefly.";

/// The options of [`serve`].
#[derive(Clone)]
pub struct EditorOptions {
    /// The runtime. Its approver should be `modes`.
    pub runtime: Runtime,
    /// The owner of the sessions.
    pub tenant: TenantId,
    /// Decides which tool calls need the user's approval.
    pub modes: EditorModes,
    /// The name of the model. `None`: the configured model.
    pub model: Option<String>,
    /// The names of the configured MCP servers that each session gets, in addition to the editor's own.
    pub mcp_servers: Vec<String>,
}

/// Serves one editor until the editor closes the connection or `stopping` is cancelled.
///
/// # Errors
/// The reason why the connection broke, as text.
pub async fn serve<R, W>(
    options: EditorOptions,
    (input, output): (R, W),
    stopping: CancellationToken,
) -> Result<(), String>
where
    R: AsyncRead + Send + 'static,
    W: AsyncWrite + Send + 'static,
{
    let editor = Arc::new(Editor { options, sessions: Mutex::default() });
    let (opening, loading, asking, changing) =
        (editor.clone(), editor.clone(), editor.clone(), editor.clone());
    let (cancelling, closing) = (editor.clone(), editor.clone());
    let agent = Agent
        .v1()
        .name("conjure")
        .on_receive_request(
            async move |_: InitializeRequest, responder, _connection| responder.respond(initialized()),
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, connection: ConnectionTo<Client>| {
                let editor = Arc::clone(&opening);
                connection.spawn(async move { responder.respond_with_result(editor.open(request).await) })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: LoadSessionRequest, responder, connection: ConnectionTo<Client>| {
                let (editor, telling) = (Arc::clone(&loading), connection.clone());
                connection
                    .spawn(async move { responder.respond_with_result(editor.load(request, telling).await) })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, connection: ConnectionTo<Client>| {
                let (editor, telling) = (Arc::clone(&asking), connection.clone());
                // The turn begins before the task is spawned, so a cancellation that arrives next applies to this turn.
                let begun = editor.begin_turn(&request.session_id);
                connection.spawn(async move {
                    let answer = match begun {
                        Ok(opened) => opened.prompt(request, telling).await,
                        Err(error) => Err(error),
                    };
                    responder.respond_with_result(answer)
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetSessionModeRequest, responder, _connection| {
                responder.respond_with_result(changing.set_mode(&request))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CloseSessionRequest, responder, connection: ConnectionTo<Client>| {
                let editor = Arc::clone(&closing);
                connection.spawn(async move { responder.respond_with_result(editor.close(&request).await) })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: CancelNotification, _connection| {
                cancelling.cancel(&notification.session_id);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        );
    let streams = ByteStreams::new(output.compat_write(), input.compat());
    tokio::select! {
        served = agent.connect_to(streams) => served.map_err(|error| error.to_string()),
        () = stopping.cancelled() => Ok(()),
    }
}

/// The editor and its open sessions.
struct Editor {
    options: EditorOptions,
    sessions: Mutex<HashMap<String, EditorSession>>,
}

/// A session that the editor has open.
#[derive(Clone)]
struct EditorSession {
    session: Session,
    cwd: Arc<Path>,
    /// Cancels the current turn.
    cancel: CancellationToken,
}

/// The answer to `initialize`: the agent's name and capabilities. The protocol version is always the one implemented here, even if the
/// editor's version is newer.
fn initialized() -> InitializeResponse {
    let prompts = PromptCapabilities::new().image(true).embedded_context(true);
    let sessions = SessionCapabilities::new().close(SessionCloseCapabilities::new());
    let capabilities = AgentCapabilities::new()
        .load_session(true)
        .mcp_capabilities(McpCapabilities::new().http(true))
        .prompt_capabilities(prompts)
        .session_capabilities(sessions);
    InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .agent_info(Implementation::new("conjure", env!("CARGO_PKG_VERSION")))
}

/// An error about a request of the editor.
fn invalid(reason: impl Into<String>) -> Error {
    Error::invalid_params().data(Value::from(reason.into()))
}

impl Editor {
    async fn open(&self, request: NewSessionRequest) -> Result<NewSessionResponse, Error> {
        let cwd = checked_cwd(&request.cwd)?;
        let servers = mcp_servers::specs(request.mcp_servers).map_err(invalid)?;
        let options = &self.options;
        let mut spec = SessionSpec::new(options.tenant.clone())
            .base_prompt(BASE_PROMPT)
            .workspace(&*cwd)
            .mcp_servers(options.mcp_servers.iter().cloned())
            .own_mcp_servers(servers);
        if let Some(model) = &options.model {
            spec = spec.model(model);
        }
        let session = options.runtime.open(spec).await.map_err(failed)?;
        let id = session.id().to_string();
        self.insert(&id, session, cwd);
        Ok(NewSessionResponse::new(id).modes(Mode::default().state()))
    }

    /// Opens a recorded session with the editor's current MCP servers, and sends its history to the editor. A session that is open already
    /// is closed first, so that it restarts with these servers.
    async fn load(
        &self,
        request: LoadSessionRequest,
        connection: ConnectionTo<Client>,
    ) -> Result<LoadSessionResponse, Error> {
        let cwd = checked_cwd(&request.cwd)?;
        let servers = mcp_servers::specs(request.mcp_servers).map_err(invalid)?;
        let options = &self.options;
        let id: SessionId = request
            .session_id
            .0
            .parse()
            .map_err(|_| invalid(format!("there is no session `{}`", request.session_id.0)))?;
        let opened = lock(&self.sessions).remove(&*request.session_id.0);
        if let Some(opened) = opened {
            opened.close().await?;
        }
        let given = SessionSecrets::new().mcp_servers(servers);
        let session = options.runtime.session_with(&options.tenant, id, given).await.map_err(failed)?;
        // The editor cannot answer requests of an earlier connection, so a turn with pending actions ends as interrupted.
        if !session.snapshot().await.map_err(failed)?.pending_actions.is_empty() {
            session.interrupt().await.map_err(failed)?;
        }
        let page = options.runtime.events(&options.tenant, id, 0).await.map_err(failed)?;
        for event in &page {
            for update in updates::of_event(&event.kind, &cwd, None) {
                connection.send_notification(SessionNotification::new(request.session_id.clone(), update))?;
            }
        }
        self.insert(&request.session_id.0, session, cwd);
        Ok(LoadSessionResponse::new().modes(options.modes.of(id).state()))
    }

    fn set_mode(&self, request: &SetSessionModeRequest) -> Result<SetSessionModeResponse, Error> {
        let opened = self.find(&request.session_id)?;
        let wanted = &*request.mode_id.0;
        let mode = Mode::from_id(wanted)
            .ok_or_else(|| invalid(format!("there is no mode `{wanted}`; there are `ask` and `allow`")))?;
        self.options.modes.set(opened.session.id(), mode);
        Ok(SetSessionModeResponse::new())
    }

    async fn close(&self, request: &CloseSessionRequest) -> Result<CloseSessionResponse, Error> {
        let opened = self.find(&request.session_id)?;
        lock(&self.sessions).remove(&*request.session_id.0);
        opened.close().await?;
        Ok(CloseSessionResponse::new())
    }

    fn cancel(&self, id: &EditorSessionId) {
        if let Some(opened) = lock(&self.sessions).get(&*id.0) {
            opened.cancel.cancel();
        }
    }

    fn insert(&self, id: &str, session: Session, cwd: Arc<Path>) {
        let opened = EditorSession { session, cwd, cancel: CancellationToken::new() };
        lock(&self.sessions).insert(id.to_owned(), opened);
    }

    fn find(&self, id: &EditorSessionId) -> Result<EditorSession, Error> {
        let missing = || invalid(format!("the session `{}` is not open", id.0.escape_debug()));
        lock(&self.sessions).get(&*id.0).cloned().ok_or_else(missing)
    }

    /// Returns the session with a new token, which cancels only the turn that begins now.
    fn begin_turn(&self, id: &EditorSessionId) -> Result<EditorSession, Error> {
        let missing = || invalid(format!("the session `{}` is not open", id.0.escape_debug()));
        let mut sessions = lock(&self.sessions);
        let opened = sessions.get_mut(&*id.0).ok_or_else(missing)?;
        opened.cancel = CancellationToken::new();
        Ok(opened.clone())
    }
}

impl EditorSession {
    /// Ends the session's turn and passivates the session.
    async fn close(self) -> Result<(), Error> {
        self.cancel.cancel();
        self.session.interrupt().await.map_err(failed)?;
        self.session.close().await.map_err(failed)
    }

    /// Sends a prompt to the session, and follows the turn to its end.
    async fn prompt(
        self,
        request: PromptRequest,
        connection: ConnectionTo<Client>,
    ) -> Result<PromptResponse, Error> {
        let blocks = prompt_content::blocks(request.prompt, &self.cwd).map_err(invalid)?;
        let follower = TurnFollower {
            session: self.session.clone(),
            connection,
            cwd: self.cwd,
            cancel: self.cancel,
            calls: HashMap::new(),
            shown: ShownText::default(),
        };
        let turn = self.session.send(blocks).await.map_err(failed)?;
        follower.follow(turn).await.map(PromptResponse::new)
    }
}

/// The canonical path of a session's directory.
fn checked_cwd(cwd: &Path) -> Result<Arc<Path>, Error> {
    if !cwd.is_absolute() {
        return Err(invalid(format!("cwd: `{}` is not absolute", cwd.display())));
    }
    let real: PathBuf =
        cwd.canonicalize().map_err(|error| invalid(format!("cwd: `{}`: {error}", cwd.display())))?;
    Ok(real.into())
}
