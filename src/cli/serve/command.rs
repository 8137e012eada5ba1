//! `conjure serve`: starts a runtime and a server on it, and shuts both down in order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use conjure::config::ExecutorKind;
use conjure::server::{Metrics, ServeError, Server, ServerOptions};
use conjure::{Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, Settings, SystemClock};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::reload::{LoadedSettings, Reloader};
use super::systemd::{Notifier, socket_of_stdin};
use crate::cli::args::{ListenAt, ServeArgs};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::{CLEANUP_TIMEOUT, with_data_dir};
use crate::cli::doctor;
use crate::cli::run::{SCRIPT, executor_of, read_script};
use crate::cli::signals::Signals;
use crate::cli::terminal::Terminal;

/// Serves until a signal ends it.
pub(crate) async fn serve(
    args: ServeArgs,
    config_file: Option<PathBuf>,
    config: Config,
    environment: ProcessEnv,
    terminal: Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    let (args, config, environment, terminal) = (Arc::new(args), &config, &environment, &terminal);
    let mut signals = Signals::catch()?;
    let hangups = signal(SignalKind::hangup())
        .map_err(|error| CliError::internal(format!("signals cannot be caught: {error}")))?;
    let executor = executor_of(args.sandbox.as_ref(), environment, terminal).await?;
    let config =
        with_data_dir(&args.data_args, config)?.with(Settings { executor, ..Settings::default() })?;
    check_jail(&config, environment).await?;
    let LoadedSettings { serve, certificate } = LoadedSettings::new(&args, &config)?;
    let mut options = RuntimeOptions::from(config).for_user(environment).resume_unfinished();
    if let Some(script) = &args.script {
        options = options.model(SCRIPT, read_script(script)?.by_history());
    }
    let (address, socket) = match args.listen {
        ListenAt::Address(address) => (address, None),
        ListenAt::StandardInput => socket().map(|(address, socket)| (address, Some(socket)))?,
    };
    // The recorder must exist before any metric is counted.
    let metrics = Metrics::install().map_err(CliError::internal)?;
    let runtime = Runtime::spawn(options).await?;
    let mut server = ServerOptions::new(address, args.data_args.tenant.clone()).serve(serve).metrics(metrics);
    if let Some(certificate) = certificate {
        server = server.tls(certificate);
    }
    let server = match socket {
        Some(socket) => Server::with_listener(socket, server, runtime.clone()).await,
        None => Server::bind(server, runtime.clone()).await,
    };
    let exit = match server {
        Ok(server) => {
            if !server.needs_keys() {
                terminal.note("no key is needed, so programs of this machine alone are answered");
                terminal.note("`conjure keys create NAME` makes a key; then every client needs one");
            }
            terminal.output(&format!("listening on {}", server.url()));
            let notifier = Notifier::new(environment);
            notifier.ready();
            let environment = environment.clone();
            let reloader = Reloader { args, config: config_file, environment, server: server.handle() };
            let mut exit = ExitStatus::Success;
            let stop = async {
                tokio::select! {
                    signal = signals.next() => exit = signal,
                    () = reloader.reload_on_signal(hangups, &notifier, terminal) => {}
                }
                notifier.stopping();
            };
            server.serve(stop).await;
            Ok(exit)
        }
        Err(error) => {
            let failure = CliError::usage(error.to_string());
            Err(match error {
                ServeError::Listen { .. } => failure.with_hint("`--listen ADDR` names another address"),
                _ => failure,
            })
        }
    };
    let ended = runtime.shutdown(SystemClock.deadline(CLEANUP_TIMEOUT)).await;
    let exit = exit?;
    ended?;
    Ok(exit)
}

/// If tools run in jails, creates a jail now. So an unsuitable machine is reported at the start and not at the first tool call.
async fn check_jail(config: &Config, environment: &ProcessEnv) -> Result<(), CliError> {
    if config.executor() != ExecutorKind::Jail {
        return Ok(());
    }
    match doctor::start(environment, ExecutorKind::Jail).await {
        Ok(workbench) => {
            workbench.cleanup().await;
            Ok(())
        }
        Err(reason) => Err(CliError::usage(format!("no jail can be made for tools: {reason}")).with_hint(
            "`conjure doctor` says what this machine lacks; `--sandbox docker` runs tools in containers, `--sandbox local` without isolation",
        )),
    }
}

/// The socket that is the standard input, and its address.
fn socket() -> Result<(SocketAddr, TcpListener), CliError> {
    let socket = socket_of_stdin().and_then(TcpListener::from_std);
    let socket = socket.and_then(|socket| Ok((socket.local_addr()?, socket)));
    socket.map_err(|error| {
        CliError::usage(format!("the standard input is no socket that listens: {error}"))
            .in_option("--listen -")
            .with_hint("systemd gives one by `StandardInput=socket` and a unit `conjure.socket`; `--listen ADDR` names an address")
    })
}
