//! `conjure serve`: starts a runtime and a server on it, and ends both in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure::config::ExecutorKind;
use conjure::model::ScriptedModel;
use conjure::server::{Metrics, ServeError, ServeSettings, Server, ServerOptions, TlsCertificate};
use conjure::{Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, Settings, SystemClock};

use crate::cli::args::ServeArgs;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::{CLEANUP_TIMEOUT, with_data_dir};
use crate::cli::run::{SCRIPT, executor_of};
use crate::cli::signals::Signals;
use crate::cli::terminal::Terminal;

/// Serves until a signal ends it.
pub(crate) async fn serve(
    args: ServeArgs,
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
    args: &ServeArgs,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    let mut signals = Signals::catch()?;
    let executor: Option<ExecutorKind> = match &args.sandbox {
        Some(kind) => Some(executor_of(kind, environment, terminal).await?),
        None => None,
    };
    let config =
        with_data_dir(&args.data_args, config)?.with(Settings { executor, ..Settings::default() })?;
    let mut serve = config.serve().clone();
    let certificate = certificate(args, &serve)?;
    let mut options = RuntimeOptions::from(config).for_user(environment).resume_unfinished();
    if let Some(script) = &args.script {
        let model = ScriptedModel::from_file(script).map_err(|error| {
            CliError::usage(error.to_string())
                .with_hint("`--script` names a file with the model's words, in YAML or JSON")
        })?;
        options = options.model(SCRIPT, model.by_history());
        serve.models = BTreeMap::from([("*".to_owned(), SCRIPT.to_owned())]);
    }
    // Before anything is counted.
    let metrics = Metrics::install().map_err(CliError::internal)?;
    let runtime = Runtime::spawn(options).await?;
    let mut server = ServerOptions::new(args.listen, args.tenant().clone()).serve(serve).metrics(metrics);
    if let Some(certificate) = certificate {
        server = server.tls(certificate);
    }
    let server = Server::bind(server, runtime.clone()).await;
    let exit = match server {
        Ok(server) => {
            if !server.needs_keys() {
                terminal.note("no key is needed, so programs of this machine alone are answered");
                terminal.note("`conjure keys create NAME` makes a key; then every client needs one");
            }
            terminal.output(&format!("listening on {}", server.url()));
            let mut exit = ExitStatus::Success;
            server.serve(async { exit = signals.next().await }).await;
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

/// The certificate of the options, or else of the configuration.
fn certificate(args: &ServeArgs, serve: &ServeSettings) -> Result<Option<TlsCertificate>, CliError> {
    let of_options = args.certificate.as_ref().zip(args.private_key.as_ref());
    let Some((certificate, key)) = of_options.or(serve.certificate.as_ref().zip(serve.private_key.as_ref()))
    else {
        return Ok(None);
    };
    TlsCertificate::from_files(certificate, key).map(Some).map_err(|error| {
        CliError::usage(error.to_string()).with_hint(
            "`certificate` and `private_key` of `[serve]`, or `--certificate FILE --private-key FILE`, name two files in the form PEM",
        )
    })
}
