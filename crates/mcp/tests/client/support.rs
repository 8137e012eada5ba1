//! A session's tools over servers that are Python programs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, Redactor, SystemClock};
use conjure_conversation::{
    Authorization, CallContext, SessionView, ToolCall, ToolDefinition, ToolRunner as _, execute_tool_calls,
    tool_servers_note,
};
use conjure_mcp::{
    McpServer, McpServerName, McpServerSpec, McpServers, McpTransport, Sampler, ServerPlace, ServerState,
    StdioServer,
};
use conjure_sandbox::{DataDir, ExecutionContext, Executor, Local, OwnedWorkspace, Sandbox};
use conjure_toolbox::Toolbox;
use serde_json::Value;

/// How long a server may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is the test's program with these arguments.
pub(crate) fn spec(name: &str, args: &[&str]) -> McpServerSpec {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/client/server.py");
    let args = std::iter::once(program.to_str().unwrap()).chain(args.iter().copied());
    let transport = McpTransport::Stdio(StdioServer {
        command: "python3".to_owned(),
        args: args.map(str::to_owned).collect(),
        env: [].into(),
        place: ServerPlace::Sandbox,
        network: None,
    });
    McpServerSpec {
        required: true,
        startup_timeout: PATIENCE,
        ..McpServerSpec::new(McpServerName::new(name).unwrap(), transport)
    }
}

/// The tools of a session, and its sandbox.
pub(crate) struct Session {
    pub(crate) toolbox: Toolbox,
    pub(crate) servers: Arc<McpServers>,
    pub(crate) executor: Arc<dyn Executor>,
    workspace: OwnedWorkspace,
}

impl Session {
    pub(crate) async fn start(specs: impl IntoIterator<Item = McpServerSpec>) -> Self {
        Self::try_start(specs).await.unwrap()
    }

    pub(crate) async fn try_start(specs: impl IntoIterator<Item = McpServerSpec>) -> Result<Self, String> {
        Self::open(specs, None, None).await
    }

    /// The same, whose servers may ask this model.
    pub(crate) async fn with_sampler(
        specs: impl IntoIterator<Item = McpServerSpec>,
        sampler: Arc<dyn Sampler>,
    ) -> Self {
        Self::open(specs, None, Some(sampler)).await.unwrap()
    }

    pub(crate) async fn with_manifests(specs: impl IntoIterator<Item = McpServerSpec>, dir: &Path) -> Self {
        Self::open(specs, Some(dir), None).await.unwrap()
    }

    async fn open(
        specs: impl IntoIterator<Item = McpServerSpec>,
        manifests: Option<&Path>,
        sampler: Option<Arc<dyn Sampler>>,
    ) -> Result<Self, String> {
        let data = DataDir::temporary().unwrap();
        let workspace = data.workspace().unwrap();
        let context = ExecutionContext::new(workspace.path());
        let host = ["PATH", "HOME"].into_iter().filter_map(|name| {
            #[expect(clippy::disallowed_methods, reason = "the programs of this machine")]
            let value = std::env::var_os(name)?;
            Some((name.into(), value))
        });
        let local = Local::without_isolation(host);
        let clock = Arc::new(SystemClock);
        let sandbox = Sandbox::open(&local, &context, clock, SystemClock.deadline(PATIENCE)).await.unwrap();
        let executor: Arc<dyn Executor> = Arc::new(sandbox);
        let specs: Vec<McpServerSpec> = specs.into_iter().collect();
        let waited_for: Vec<String> =
            specs.iter().filter(|spec| spec.required).map(|spec| spec.name.to_string()).collect();
        let servers = specs.into_iter().map(|spec| {
            let manifest = manifests.map(|dir| dir.join(format!("{}.json", spec.name)));
            let server = McpServer::new(spec, Some(Arc::clone(&executor)), manifest);
            let server = match &sampler {
                Some(sampler) => server.with_sampler(Arc::clone(sampler)),
                None => server,
            };
            server.into()
        });
        let servers =
            Arc::new(McpServers::new(servers.collect(), Some(Arc::clone(&executor)), &Redactor::default()));
        servers.wait_required().await;
        let mut required = servers.failures();
        required.retain(|failure| waited_for.contains(&failure.server));
        if !required.is_empty() {
            return Err(tool_servers_note(&required));
        }
        let toolbox = Toolbox::builder().with_tool_source(Arc::clone(&servers) as _).build().unwrap();
        Ok(Self { toolbox, servers, executor, workspace })
    }

    pub(crate) fn workspace(&self) -> &Path {
        self.workspace.path()
    }

    pub(crate) fn tool_names(&self) -> Vec<String> {
        self.toolbox.current_definitions().iter().map(|tool| tool.name.clone()).collect()
    }

    pub(crate) fn definition(&self, name: &str) -> ToolDefinition {
        self.toolbox.current_definitions().iter().find(|tool| tool.name == name).unwrap().clone()
    }

    /// The text of a result, or of an error.
    pub(crate) async fn call(&self, tool: &str, input: Value) -> Result<String, String> {
        let calls = [ToolCall::new("toolu_1", tool, &input)];
        let results = execute_tool_calls(&self.toolbox, &calls, CallContext::default()).await;
        if results[0].is_error { Err(results[0].text()) } else { Ok(results[0].text()) }
    }

    /// Whether a person decides on a call of this tool.
    pub(crate) async fn asks(&self, tool: &str) -> bool {
        let call = ToolCall::new("toolu_1", tool, &Value::Object(serde_json::Map::new()));
        matches!(self.toolbox.authorize(&call, &SessionView::default()).await, Authorization::Ask { .. })
    }

    /// Waits until the tools fit.
    pub(crate) async fn until(&self, fit: impl Fn(&[String]) -> bool) {
        wait(|| fit(&self.tool_names())).await;
    }

    /// Waits until the first server's state fits.
    pub(crate) async fn until_state(&self, fit: impl Fn(&ServerState) -> bool) {
        wait(|| fit(&self.servers.report()[0].state)).await;
    }
}

/// Waits until something is so.
pub(crate) async fn wait(fit: impl Fn() -> bool) {
    let deadline = SystemClock.deadline(PATIENCE);
    while !fit() {
        assert!(!SystemClock.remaining(deadline).is_zero(), "it did not come about");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
