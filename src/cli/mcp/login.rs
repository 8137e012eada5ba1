//! `conjure mcp login` and `conjure mcp logout`: a user signs in at an MCP server. Sessions of the tenant then use the tokens.

use std::sync::Arc;

use conjure::config::McpTransport;
use conjure::{Config, ProcessEnv, RuntimeOptions};
use conjure_mcp::{Login, LoginOptions};

use crate::cli::args::{DataArgs, McpLoginArgs, McpLogoutArgs};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::{CommandRuntime, create_data_dir, with_data_dir};
use crate::cli::signals::Signals;
use crate::cli::terminal::{Terminal, printable};

/// Signs in.
pub(crate) async fn login(
    args: McpLoginArgs,
    config: Config,
    environment: ProcessEnv,
    terminal: Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    let (args, config, environment, terminal) = (&args, &config, &environment, &terminal);
    let url = address(&args.server, config)?;
    let client_secret = match &args.client_secret_env {
        None => None,
        Some(name) => Some(ProcessEnv::var(name).ok_or_else(|| {
            CliError::usage(format!("the variable `{}` is not set", printable(name)))
                .with_hint("it must hold the secret of the client")
        })?),
    };
    let options = LoginOptions {
        client_id: args.client_id.clone(),
        client_secret: client_secret.map(Into::into),
        scopes: args.scopes.clone(),
        former_scopes: Vec::new(),
        port: args.port,
    };
    let failed = |error: conjure_mcp::LoginError| {
        CliError::internal(format!("sign-in failed at `{}`: {error}", printable(&args.server)))
    };
    let mut signals = Signals::catch()?;
    let runtime = runtime(&args.data_args, config, environment).await?;
    let signing_in = async {
        let former_scopes = match options.scopes.is_empty() {
            true => Vec::new(),
            false => {
                runtime.runtime.login_scopes(&args.data_args.tenant, &url).await.unwrap_or_else(|error| {
                    terminal.warning(&format!("the scopes of the former sign-in are not asked for: {error}"));
                    Vec::new()
                })
            }
        };
        let options = LoginOptions { former_scopes, ..options };
        let login = Login::start(&url, options).await.map_err(failed)?;
        terminal.note("open this address in a browser of this machine, and sign in:");
        terminal.output(login.authorization_url());
        let tokens = login.finish().await.map_err(failed)?;
        let stored = runtime.runtime.store_login(&args.data_args.tenant, &url, tokens).await;
        stored.map_err(|error| CliError::internal(error.to_string()))
    };
    let done = tokio::select! {
        done = signing_in => done.map(|()| ExitStatus::Success),
        exit = signals.next() => Ok(exit),
    };
    let exit = runtime.shut_down_after(done).await?;
    if exit == ExitStatus::Success {
        terminal.note(&format!("signed in at `{}`", printable(&args.server)));
    }
    Ok(exit)
}

/// Deletes a sign-in.
pub(crate) async fn logout(
    args: McpLogoutArgs,
    config: Config,
    environment: ProcessEnv,
    terminal: Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    let (args, config, environment, terminal) = (&args, &config, &environment, &terminal);
    let url = address(&args.server, config)?;
    let runtime = runtime(&args.data_args, config, environment).await?;
    let removed = runtime.runtime.remove_login(&args.data_args.tenant, &url).await;
    let removed = removed.map_err(|error| CliError::internal(error.to_string()));
    if runtime.shut_down_after(removed).await? {
        terminal.note(&format!("signed out of `{}`", printable(&args.server)));
        return Ok(ExitStatus::Success);
    }
    terminal.warning(&format!("not signed in at `{}`", printable(&args.server)));
    Ok(ExitStatus::Failed)
}

/// The URL of a server that is given by its name in the configuration, or directly.
fn address(server: &str, config: &Config) -> Result<String, CliError> {
    if server.contains("://") {
        return Ok(server.to_owned());
    }
    let shown = printable(server);
    match config.mcp_servers().get(server).map(|server| &server.transport) {
        Some(McpTransport::Http(http)) => Ok(http.url.clone()),
        Some(McpTransport::Stdio(_)) => Err(CliError::usage(format!(
            "the MCP server `{shown}` is a program, and a program needs no sign-in"
        ))
        .with_hint("give it its token as a variable: `env` in its table of the configuration")),
        None => {
            let known = config.mcp_servers().keys().map(|name| format!("`{name}`")).collect::<Vec<_>>();
            let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
            Err(CliError::usage(format!(
                "no MCP server `{shown}` is configured; the configured ones: {known}"
            ))
            .with_hint("add a table `[mcp.NAME]` with its `url`, or give the URL itself"))
        }
    }
}

async fn runtime(
    data_args: &DataArgs,
    config: &Config,
    environment: &ProcessEnv,
) -> Result<CommandRuntime, CliError> {
    let config = with_data_dir(data_args, config)?;
    // The user may sign in before the first session exists.
    create_data_dir(&config)?;
    let options = |config| RuntimeOptions::from(config).for_user(environment);
    CommandRuntime::for_sessions(data_args, options, &config, environment).await
}
