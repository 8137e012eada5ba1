//! [`SharedServer`]: what the tools of a server and the task that starts it share.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use conjure_base::{Clock as _, Deadline, Redactor, SystemClock};
use conjure_conversation::ProvidedInput;
use conjure_sandbox::{CallOptions, Command, Executor, SandboxNetwork};
use rmcp::model::JsonObject;
use secrecy::SecretString;
use tokio::sync::{Notify, watch};

use super::connection::{CalledTool, Connection};
use super::error::McpError;
use super::program::FindProgram;
use super::skills::{ListedSkill, VerifiedSkill};
use crate::client::calls::handler::ClientOffer;
use crate::client::calls::running_calls::CallProgress;
use crate::client::calls::sampling::Sampler;
use crate::client::sign_in::authorization::Authorize;
use crate::client::tools::listing::Listing;
use crate::config::{HttpServer, McpServerSpec, McpTransport, StdioServer};

/// After so many failed starts in a row, calls no longer wait for another start.
const PATIENCE: u32 = 3;

/// What the tools of a server and the task that starts it share.
pub(super) struct SharedServer {
    pub(super) spec: McpServerSpec,
    /// The sandbox of its program.
    pub(super) executor: Option<Arc<dyn Executor>>,
    pub(super) manifest: Option<PathBuf>,
    /// The secrets of the session, which a server may repeat.
    pub(super) redactor: OnceLock<Redactor>,
    /// The network of its sandbox.
    pub(super) sandbox_network: OnceLock<SandboxNetwork>,
    /// Who knows its token.
    pub(super) authorization: Option<Arc<dyn Authorize>>,
    /// Who knows its program, where its configuration does not.
    pub(super) program: Option<Arc<dyn FindProgram>>,
    /// Directories that the server may work in, beside the workspace of its sandbox.
    pub(super) roots: OnceLock<Vec<PathBuf>>,
    /// Who asks the session's model for the server.
    pub(super) sampler: OnceLock<Arc<dyn Sampler>>,
    pub(super) state: watch::Sender<State>,
    pub(super) wanted: Notify,
    /// The server says that its tools have changed.
    pub(super) changed: Arc<Notify>,
}

/// What is known of a server.
#[derive(Clone, Default)]
pub(super) struct State {
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) listing: Option<Arc<Listing>>,
    /// Counts the starts that have ended, well or not.
    pub(super) starts: u64,
    pub(super) is_starting: bool,
    pub(super) failure: Option<StartFailure>,
    /// A token that the service did not accept.
    pub(super) refused: Option<SecretString>,
}

/// Why it does not run.
#[derive(Clone)]
pub(super) struct StartFailure {
    pub(super) error: McpError,
    /// How many starts failed in a row.
    pub(super) count: u32,
    pub(super) retry_at: Deadline,
}

impl State {
    pub(super) fn live(&self) -> Option<Arc<Connection>> {
        self.connection.as_ref().filter(|connection| !connection.is_closed()).cloned()
    }
}

impl SharedServer {
    pub(super) fn set_redactor(&self, redactor: &Redactor) {
        let _ = self.redactor.set(redactor.clone());
    }

    pub(super) fn redactor(&self) -> &Redactor {
        self.redactor.get_or_init(Redactor::default)
    }

    /// How often the network of its sandbox has refused something.
    pub(super) fn refusals(&self) -> u64 {
        self.sandbox_network.get().map_or(0, SandboxNetwork::refusal_count)
    }

    /// What the network of its sandbox has refused after the first `count` times, for people and the model.
    pub(super) fn refused_since(&self, count: u64) -> Option<String> {
        let hosts = self.sandbox_network.get()?.refusals_since(count);
        let name = &self.spec.name;
        (!hosts.is_empty()).then(|| {
            format!(
                "the network of its sandbox refused {}; `network` in the configuration of `{name}` names the hosts that it reaches",
                hosts.join(", ")
            )
        })
    }

    /// Has it started in the background, if its tools are not known.
    pub(super) fn prepare(&self) {
        if self.listing().is_none() {
            self.wanted.notify_one();
        }
    }

    /// The tools, if they are known.
    pub(super) fn listing(&self) -> Option<Arc<Listing>> {
        self.state.borrow().listing.clone()
    }

    /// Waits until the tools are known.
    pub(super) async fn wait_listed(&self) -> Result<Arc<Listing>, McpError> {
        if let Some(listing) = self.listing() {
            return Ok(listing);
        }
        self.connection().await?;
        let mut states = self.state.subscribe();
        let known = states.wait_for(|state| state.listing.is_some() || state.failure.is_some()).await;
        // The sender is here.
        let state = known.map(|state| state.clone()).unwrap_or_default();
        match (state.listing, state.failure) {
            (Some(listing), _) => Ok(listing),
            (None, Some(failure)) => Err(failure.error),
            (None, None) => Err(self.not_started("it has ended")),
        }
    }

    /// Calls a tool, after a start if it does not run.
    pub(super) async fn call_tool(
        &self,
        tool: &str,
        arguments: JsonObject,
        input: Option<ProvidedInput>,
        progress: &CallProgress,
        options: CallOptions,
    ) -> Result<CalledTool, McpError> {
        let connection = self.connection().await?;
        if self.authorization.is_none() {
            return connection.call_tool(tool, arguments, input, progress, options).await;
        }
        let called =
            connection.call_tool(tool, arguments.clone(), input.clone(), progress, options.clone()).await;
        match called {
            // Nothing was done. The token may have ended meanwhile.
            Err(McpError::NeedsAuthorization { .. }) => {
                self.drop_refused(&connection);
                self.connection().await?.call_tool(tool, arguments, input, progress, options).await
            }
            result => result,
        }
        .map_err(|error| self.advised(error))
    }

    /// Reads the files of a skill, after a start if it does not run.
    pub(super) async fn read_skill(
        &self,
        skill: &ListedSkill,
        options: CallOptions,
    ) -> Result<VerifiedSkill, McpError> {
        let connection = self.connection().await?;
        let read = match connection.read_skill(skill, options.clone()).await {
            Err(McpError::NeedsAuthorization { .. }) if self.authorization.is_some() => {
                self.drop_refused(&connection);
                self.connection().await?.read_skill(skill, options).await
            }
            read => read,
        };
        if matches!(read, Err(McpError::SkillChanged { .. })) {
            self.changed.notify_one();
        }
        read.map_err(|error| self.advised(error))
    }

    /// Forgets a connection whose token is not accepted any more, so that the next one asks for another.
    fn drop_refused(&self, refused: &Arc<Connection>) {
        self.state.send_if_modified(|state| {
            let is_current = state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, refused));
            if is_current {
                state.connection = None;
                state.refused = refused.token().cloned();
            }
            is_current
        });
    }

    /// What to do is known best by whoever knows the token.
    fn advised(&self, error: McpError) -> McpError {
        match (&self.authorization, error) {
            (Some(authorization), McpError::NeedsAuthorization { server, .. }) => {
                McpError::NeedsAuthorization { server, advice: authorization.advice() }
            }
            (_, error) => error,
        }
    }

    /// The connection. Has it started if there is none, and waits for that.
    async fn connection(&self) -> Result<Arc<Connection>, McpError> {
        let mut states = self.state.subscribe();
        let before = {
            let state = states.borrow_and_update();
            if let Some(connection) = state.live() {
                return Ok(connection);
            }
            if let Some(failure) = state.failure.as_ref().filter(|failure| failure.count >= PATIENCE) {
                let wait = SystemClock.remaining(failure.retry_at);
                if !wait.is_zero() {
                    return Err(McpError::WaitsForRetry {
                        server: self.spec.name.to_string(),
                        seconds: wait.as_secs().max(1),
                        failures: failure.count,
                        reason: failure.error.to_string(),
                    });
                }
            }
            state.starts
        };
        self.wanted.notify_one();
        let done = states.wait_for(|state| state.live().is_some() || state.starts > before).await;
        let state = done.map(|state| state.clone()).unwrap_or_default();
        match (state.live(), state.failure) {
            (Some(connection), _) => Ok(connection),
            (None, Some(failure)) => Err(failure.error),
            (None, None) => Err(self.not_started("it ended at once")),
        }
    }

    /// Why its tools are not known, if a start has failed.
    pub(super) fn failure(&self) -> Option<McpError> {
        let state = self.state.borrow();
        let failure = state.failure.as_ref().filter(|_| state.listing.is_none());
        failure.map(|failure| failure.error.clone())
    }

    pub(super) fn not_started(&self, reason: &str) -> McpError {
        McpError::NotStarted { server: self.spec.name.to_string(), reason: reason.to_owned() }
    }

    pub(super) async fn connect(&self, deadline: Deadline) -> Result<Connection, McpError> {
        let name = self.spec.name.as_str();
        match (&self.spec.transport, &self.executor) {
            (McpTransport::Stdio(program), Some(executor)) => {
                let command = self.command(program, deadline).await?;
                // Until its first answer.
                let _startup = self.sandbox_network.get().map(SandboxNetwork::begin_startup);
                let offer = self.offer(Some(&**executor));
                Connection::stdio(name, command, &**executor, deadline, &self.changed, offer).await
            }
            (McpTransport::Stdio(_), None) => Err(self.not_started("there is no sandbox for its program")),
            (McpTransport::Http(http), _) => self.connect_http(http, deadline).await,
        }
    }

    /// What the server may ask this client. Of directories only a program is told.
    fn offer(&self, executor: Option<&dyn Executor>) -> ClientOffer {
        let workspace = executor.map(|executor| executor.layout().workspace.clone());
        let further = executor.and_then(|_| self.roots.get()).into_iter().flatten().cloned();
        let url = |path: PathBuf| url::Url::from_directory_path(path).ok().map(String::from);
        ClientOffer {
            roots: workspace.into_iter().chain(further).filter_map(url).collect(),
            sampler: self.sampler.get().cloned(),
            is_shared: self.spec.shared,
        }
    }

    /// The command that starts its program.
    async fn command(&self, program: &StdioServer, deadline: Deadline) -> Result<Command, McpError> {
        let mut command = match &self.program {
            None => Command::new(std::iter::once(&program.command).chain(&program.args)),
            Some(finder) => {
                let found = tokio::select! {
                    biased;
                    found = finder.find() => found.map_err(|reason| self.not_started(&reason))?,
                    () = SystemClock.sleep_until(deadline) => {
                        return Err(self.not_started("its program was not found in time"));
                    }
                };
                Command { cwd: found.workdir, ..Command::new(found.argv) }
            }
        };
        command.env.clone_from(&program.env);
        command.merge_stderr = false;
        Ok(command)
    }

    /// Connects to a service. A token that it does not accept is renewed once.
    async fn connect_http(&self, http: &HttpServer, deadline: Deadline) -> Result<Connection, McpError> {
        let name = self.spec.name.as_str();
        let connect = |token: Option<SecretString>| {
            Connection::http(name, http, token, deadline, &self.changed, self.offer(None))
        };
        let Some(authorization) = &self.authorization else { return connect(None).await };
        let no_token = |advice: String| McpError::NeedsAuthorization { server: name.to_owned(), advice };
        let token = async |refused: Option<&SecretString>| {
            tokio::select! {
                biased;
                token = authorization.token(refused) => token.map_err(no_token),
                () = SystemClock.sleep_until(deadline) => {
                    Err(self.not_started("its token was not there in time"))
                }
            }
        };
        let refused = self.state.borrow().refused.clone();
        let first = token(refused.as_ref()).await?;
        let connected = match connect(first.clone()).await {
            Err(refused @ McpError::NeedsAuthorization { .. }) if first.is_some() => {
                match token(first.as_ref()).await? {
                    Some(token) => connect(Some(token)).await,
                    None => Err(refused),
                }
            }
            connected => connected,
        };
        connected.map_err(|error| self.advised(error))
    }
}

impl std::fmt::Debug for SharedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServer").field("spec", &self.spec).finish_non_exhaustive()
    }
}
