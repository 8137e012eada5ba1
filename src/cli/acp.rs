//! `conjure acp`: serves sessions to an editor over standard input and output, until the editor closes them.

use std::sync::Arc;

use conjure::{Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, Settings, SystemClock};
use conjure_acp::{EditorModes, EditorOptions};
use tokio_util::sync::CancellationToken;

use crate::cli::args::AcpArgs;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::{CLEANUP_TIMEOUT, with_data_dir};
use crate::cli::run::{SCRIPT, executor_of, read_script};
use crate::cli::signals::Signals;
use crate::cli::terminal::Terminal;

/// Serves until the editor closes standard input, or a signal ends it. Standard output carries only the protocol.
pub(crate) async fn acp(
    args: AcpArgs,
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
        mcp: args.mcp.iter().map(|server| (server.name.to_string(), server.clone())).collect(),
        ..Settings::default()
    })?;
    let modes = EditorModes::default();
    let mcp_servers = config.mcp_servers().keys().cloned().collect();
    let mut options = RuntimeOptions::from(config).for_user(environment).approver(modes.clone());
    let mut model = args.model.clone();
    if let Some(script) = &args.script {
        options = options.model(SCRIPT, read_script(script)?.by_history());
        model = Some(SCRIPT.to_owned());
    }
    let runtime = Runtime::spawn(options).await?;
    let tenant = args.data_args.tenant.clone();
    let editor = EditorOptions { runtime: runtime.clone(), tenant, modes, model, mcp_servers };
    let stopping = CancellationToken::new();
    let streams = (tokio::io::stdin(), tokio::io::stdout());
    let served = tokio::select! {
        served = conjure_acp::serve(editor, streams, stopping.clone()) => {
            served.map(|()| ExitStatus::Success).map_err(CliError::internal)
        }
        exit = signals.next() => Ok(exit),
    };
    stopping.cancel();
    runtime.shutdown(SystemClock.deadline(CLEANUP_TIMEOUT)).await?;
    served
}
