//! `conjure mcp serve`: serves the program at the other end of standard input and output, until it hangs up.

use std::sync::Arc;

use conjure::model::ScriptedModel;
use conjure::session::ContextOptions;
use conjure::{Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, Settings, SystemClock};
use conjure_mcp::server::AgentRunner;
use tokio_util::sync::CancellationToken;

use super::agent::SessionAgents;
use super::sandbox_tools::SandboxTools;
use crate::cli::args::McpServeArgs;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::{CLEANUP_TIMEOUT, with_data_dir};
use crate::cli::run::{SCRIPT, executor_of};
use crate::cli::signals::Signals;
use crate::cli::skills::load_configured;
use crate::cli::terminal::Terminal;

/// Serves until the client hangs up, or a signal ends it. Standard output carries the protocol alone.
pub(crate) async fn serve(
    args: McpServeArgs,
    config: Config,
    environment: ProcessEnv,
    terminal: Arc<Terminal>,
) -> ExitStatus {
    match run(&args, &config, &environment, &terminal).await {
        Ok(exit) => exit,
        Err(error) => {
            terminal.error(&error);
            error.exit
        }
    }
}

async fn run(
    args: &McpServeArgs,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    let mut signals = Signals::catch()?;
    let executor = match &args.sandbox {
        Some(kind) => Some(executor_of(kind, environment, terminal).await?),
        None => None,
    };
    let config = with_data_dir(&args.data_args, config)?.with(Settings {
        executor,
        network: args.network.clone(),
        skill_paths: (!args.skills.is_empty()).then(|| args.skills.clone()),
        ..Settings::default()
    })?;
    let skills = load_configured(&config, terminal)?;
    let options = ContextOptions { workspace: args.workspace.clone(), ..ContextOptions::default() };
    let tools = Arc::new(SandboxTools::open(skills.clone(), config.clone(), options).await?);
    let agents = match args.model.is_some() || args.script.is_some() {
        true => Some(agents(args, config, environment).await?),
        false => None,
    };
    let stopping = CancellationToken::new();
    let agent = agents.clone().map(|agents| agents as Arc<dyn AgentRunner>);
    let streams = (tokio::io::stdin(), tokio::io::stdout());
    let serving =
        conjure_mcp::server::serve(skills, Arc::clone(&tools) as _, agent, streams, stopping.clone());
    let served = tokio::select! {
        served = serving => served.map(|()| ExitStatus::Success).map_err(CliError::internal),
        exit = signals.next() => {
            stopping.cancel();
            Ok(exit)
        }
    };
    tools.close().await;
    if let Some(agents) = agents {
        agents.runtime.shutdown(SystemClock.deadline(CLEANUP_TIMEOUT)).await?;
    }
    served
}

/// The runtime of `run_agent`.
async fn agents(
    args: &McpServeArgs,
    config: Config,
    environment: &ProcessEnv,
) -> Result<Arc<SessionAgents>, CliError> {
    let mut options = RuntimeOptions::from(config.clone()).for_user(environment);
    let mut model = args.model.clone();
    if let Some(script) = &args.script {
        let scripted =
            ScriptedModel::from_file(script).map_err(|error| CliError::usage(error.to_string()))?;
        options = options.model(SCRIPT, scripted.by_history());
        model = Some(SCRIPT.to_owned());
    }
    let runtime = Runtime::spawn(options).await?;
    let tenant = args.data_args.tenant.clone();
    Ok(Arc::new(SessionAgents { runtime, tenant, model, config }))
}
