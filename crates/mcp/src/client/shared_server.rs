//! [`SharedServer`]: the state that the tools of a server share with the task that starts it.

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
use super::find_program::FindProgram;
use super::skills::{ListedSkill, VerifiedSkill};
use crate::client::calls::handler::ClientOffer;
use crate::client::calls::running_calls::CallProgress;
use crate::client::calls::sampling::Sampler;
use crate::client::sign_in::authorization::Authorize;
use crate::client::tools::listing::Listing;
use crate::config::{HttpServer, McpServerSpec, McpTransport, StdioServer};

/// After this many failed starts in a row, calls fail at once until the backoff has passed.
const MAX_WAITED_STARTS: u32 = 3;

/// The state that the tools of a server share with the task that starts it.
pub(super) struct SharedServer {
    pub(super) spec: McpServerSpec,
    /// The sandbox of the server's program.
    pub(super) executor: Option<Arc<dyn Executor>>,
    pub(super) manifest: Option<PathBuf>,
    /// The secrets of the session, which the server may repeat.
    pub(super) redactor: OnceLock<Redactor>,
    /// The network of the server's sandbox.
    pub(super) sandbox_network: OnceLock<SandboxNetwork>,
    /// Supplies the bearer token.
    pub(super) authorization: Option<Arc<dyn Authorize>>,
    /// Finds the server's program if the configuration does not name it.
    pub(super) program: Option<Arc<dyn FindProgram>>,
    /// Directories that the server may use, in addition to the workspace of its sandbox.
    pub(super) roots: OnceLock<Vec<PathBuf>>,
    /// Sends the server's requests to the session's model.
    pub(super) sampler: OnceLock<Arc<dyn Sampler>>,
    pub(super) state: watch::Sender<State>,
    pub(super) wanted: Notify,
    /// Notified when the server's tools change.
    pub(super) changed: Arc<Notify>,
}

/// The current state of a server.
#[derive(Clone, Default)]
pub(super) struct State {
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) listing: Option<Arc<Listing>>,
    /// The number of starts that have ended, whether they succeeded or failed.
    pub(super) starts: u64,
    pub(super) is_starting: bool,
    pub(super) failure: Option<StartFailure>,
    /// The last token that the service refused.
    pub(super) refused: Option<SecretString>,
}

/// Why the last start failed.
#[derive(Clone)]
pub(super) struct StartFailure {
    pub(super) error: McpError,
    /// The number of failed starts in a row.
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

    /// The number of connections that the sandbox's network has refused.
    pub(super) fn refusals(&self) -> u64 {
        self.sandbox_network.get().map_or(0, SandboxNetwork::refusal_count)
    }

    /// Describes the connections that the sandbox's network refused after the first `count` ones. The text is for users and the model.
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

    /// Starts the server in the background if its tools are not known.
    pub(super) fn prepare(&self) {
        if self.listing().is_none() {
            self.wanted.notify_one();
        }
    }

    /// The tools, if they are known.
    pub(super) fn listing(&self) -> Option<Arc<Listing>> {
        self.state.borrow().listing.clone()
    }

    /// Waits until the tools are known or a start has failed.
    pub(super) async fn wait_listed(&self) -> Result<Arc<Listing>, McpError> {
        if let Some(listing) = self.listing() {
            return Ok(listing);
        }
        self.connection().await?;
        let mut states = self.state.subscribe();
        let known = states.wait_for(|state| state.listing.is_some() || state.failure.is_some()).await;
        // This cannot fail, because `self` owns the sender.
        let state = known.map(|state| state.clone()).unwrap_or_default();
        match (state.listing, state.failure) {
            (Some(listing), _) => Ok(listing),
            (None, Some(failure)) => Err(failure.error),
            (None, None) => Err(self.not_started("it has ended")),
        }
    }

    /// Calls a tool. Starts the server first if it does not run.
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
            // The service refused the call before running it. The token may have expired.
            Err(McpError::NeedsAuthorization { .. }) => {
                self.drop_refused(&connection);
                self.connection().await?.call_tool(tool, arguments, input, progress, options).await
            }
            result => result,
        }
        .map_err(|error| self.with_advice(error))
    }

    /// Reads the files of a skill. Starts the server first if it does not run.
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
        read.map_err(|error| self.with_advice(error))
    }

    /// Drops a connection whose token the service refused, so that the next connection requests another token.
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

    /// Replaces the advice in an authorization error with the advice of the token's source.
    fn with_advice(&self, error: McpError) -> McpError {
        match (&self.authorization, error) {
            (Some(authorization), McpError::NeedsAuthorization { server, .. }) => {
                McpError::NeedsAuthorization { server, advice: authorization.advice() }
            }
            (_, error) => error,
        }
    }

    /// Returns the live connection. If there is none, requests a start and waits for it.
    async fn connection(&self) -> Result<Arc<Connection>, McpError> {
        let mut states = self.state.subscribe();
        let before = {
            let state = states.borrow_and_update();
            if let Some(connection) = state.live() {
                return Ok(connection);
            }
            if let Some(failure) = state.failure.as_ref().filter(|failure| failure.count >= MAX_WAITED_STARTS)
            {
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

    /// The reason why the tools are not known, if a start has failed.
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
                // The start-up network stays open until the program's first answer.
                let _startup = self.sandbox_network.get().map(SandboxNetwork::begin_startup);
                let offer = self.offer(Some(&**executor));
                Connection::stdio(name, command, &**executor, deadline, &self.changed, offer).await
            }
            (McpTransport::Stdio(_), None) => Err(self.not_started("there is no sandbox for its program")),
            (McpTransport::Http(http), _) => self.connect_http(http, deadline).await,
        }
    }

    /// The client's offer to the server. Only a program gets roots.
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

    /// The command that starts the server's program.
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

    /// Connects to a service. A token that the service refuses is renewed once.
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
                    Err(self.not_started("no token was available in time"))
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
        connected.map_err(|error| self.with_advice(error))
    }
}

impl std::fmt::Debug for SharedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedServer").field("spec", &self.spec).finish_non_exhaustive()
    }
}
