//! `conjure mcp serve`: serves an MCP client over standard input and output, until the client closes them.

use std::sync::Arc;
use std::time::Duration;

use conjure::session::ContextOptions;
use conjure::{
    Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, Settings, Skill, SystemClock, Workbench,
};
use conjure_mcp::server::{AgentRunner, ServedClient};
use conjure_runtime::{SandboxTools, SessionAgents};
use futures_util::TryFutureExt as _;
use tokio_util::sync::CancellationToken;

use crate::cli::args::McpServeArgs;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::{CLEANUP_TIMEOUT, with_data_dir};
use crate::cli::run::{SCRIPT, executor_of, read_script};
use crate::cli::signals::Signals;
use crate::cli::skills::load_configured;
use crate::cli::terminal::Terminal;

/// Serves until the client closes standard input, or a signal ends it. Standard output carries only the protocol.
pub(crate) async fn serve(
    args: McpServeArgs,
    config: Config,
    environment: ProcessEnv,
    terminal: Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    let (args, config, environment, terminal) = (&args, &config, &environment, &terminal);
    let mut signals = Signals::catch()?;
    let executor = executor_of(args.sandbox.as_ref(), environment, terminal).await?;
    let config = with_data_dir(&args.data_args, config)?.with(Settings {
        executor,
        network: args.network.clone(),
        skill_paths: (!args.skills.is_empty()).then(|| args.skills.clone()),
        ..Settings::default()
    })?;
    let skills = load_configured(&config, terminal)?;
    let options = ContextOptions { workspace: args.workspace.clone(), ..ContextOptions::default() };
    let tools = Arc::new(sandbox_tools(&skills, &config, options).await?);
    let agents = match args.model.is_some() || args.script.is_some() {
        true => Some(agents(args, config, environment).await?),
        false => None,
    };
    let (runtime, agent) = agents.unzip();
    let stopping = CancellationToken::new();
    let agent = agent.map(|agent| Arc::new(agent) as Arc<dyn AgentRunner>);
    let client = ServedClient::new(skills, Arc::clone(&tools) as _, agent);
    let streams = (tokio::io::stdin(), tokio::io::stdout());
    let serving = conjure_mcp::server::serve(client, streams, stopping.clone());
    let served = tokio::select! {
        served = serving => served.map(|()| ExitStatus::Success).map_err(CliError::internal),
        exit = signals.next() => {
            stopping.cancel();
            Ok(exit)
        }
    };
    tools.close().await;
    if let Some(runtime) = runtime {
        runtime.shutdown(SystemClock.deadline(CLEANUP_TIMEOUT)).await?;
    }
    served
}

/// The tools of the client's sandbox, which exists until the client disconnects.
async fn sandbox_tools(
    skills: &[Arc<Skill>],
    config: &Config,
    options: ContextOptions,
) -> Result<SandboxTools, CliError> {
    // The sandbox is opened now, so that a machine without sandboxes is reported before the first request.
    let first = Workbench::open(skills.iter().cloned(), config, options.clone()).await?;
    let (skills, config) = (skills.to_vec(), config.clone());
    let open = move || {
        let (skills, config, options) = (skills.clone(), config.clone(), options.clone());
        let opened = async move { Workbench::open(skills, &config, options).await };
        Box::pin(opened.map_err(|error| error.to_string())) as _
    };
    Ok(SandboxTools::new(first.definitions(), Duration::MAX, Box::new(open)).with_sandbox(first))
}

/// Creates the runtime of `run_agent`, and its agents.
async fn agents(
    args: &McpServeArgs,
    config: Config,
    environment: &ProcessEnv,
) -> Result<(Runtime, SessionAgents), CliError> {
    let mut options = RuntimeOptions::from(config.clone()).for_user(environment);
    let mut model = args.model.clone();
    if let Some(script) = &args.script {
        options = options.model(SCRIPT, read_script(script)?.by_history());
        model = Some(SCRIPT.to_owned());
    }
    let runtime = Runtime::spawn(options).await?;
    let tenant = args.data_args.tenant.clone();
    let agents = SessionAgents::new(runtime.clone(), tenant, model).mcp_servers(config.mcp_servers().keys());
    Ok((runtime, agents))
}
