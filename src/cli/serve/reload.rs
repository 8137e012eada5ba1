//! The server's settings, which are loaded at the start and again at each SIGHUP.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use conjure::server::{ServeSettings, ServerHandle, TlsCertificate};
use conjure::{Config, ProcessEnv, Settings};
use tokio::signal::unix::Signal;

use super::systemd::Notifier;
use crate::cli::args::ServeArgs;
use crate::cli::cli_error::CliError;
use crate::cli::run::SCRIPT;
use crate::cli::terminal::Terminal;

/// The settings that a running server can replace.
pub(super) struct LoadedSettings {
    pub(super) serve: ServeSettings,
    pub(super) certificate: Option<TlsCertificate>,
}

impl LoadedSettings {
    /// The settings of the configuration, overridden by the options. Reads the certificate files.
    pub(super) fn new(args: &ServeArgs, config: &Config) -> Result<Self, CliError> {
        let mut serve = config.serve();
        let certificate = certificate(args, &serve)?;
        if args.script.is_some() {
            serve.models = BTreeMap::from([("*".to_owned(), SCRIPT.to_owned())]);
        }
        Ok(Self { serve, certificate })
    }
}

/// Reloads the configuration.
#[derive(Clone)]
pub(super) struct Reloader {
    pub(super) args: Arc<ServeArgs>,
    /// The file of the option `--config`.
    pub(super) config: Option<PathBuf>,
    pub(super) environment: ProcessEnv,
    pub(super) server: ServerHandle,
}

impl Reloader {
    /// Reloads the configuration at each signal. It never returns. If the configuration cannot be used, prints the error and changes
    /// nothing.
    pub(super) async fn reload_on_signal(
        &self,
        mut hangups: Signal,
        notifier: &Notifier,
        terminal: &Terminal,
    ) {
        while hangups.recv().await.is_some() {
            notifier.reloading();
            match self.reload().await {
                Ok(()) => terminal.note("the certificate, the models and the skills were loaded again"),
                Err(error) => {
                    terminal.error(&error.with_hint("the server continues with its old configuration"));
                }
            }
            notifier.ready();
        }
        // No more signals can arrive.
        std::future::pending().await
    }

    async fn reload(&self) -> Result<(), CliError> {
        let reloader = self.clone();
        let loaded = tokio::task::spawn_blocking(move || reloader.load()).await;
        let LoadedSettings { serve, certificate } =
            loaded.map_err(|error| CliError::internal(error.to_string()))??;
        self.server.reload(serve, certificate).await.map_err(|error| CliError::usage(error.to_string()))
    }

    fn load(&self) -> Result<LoadedSettings, CliError> {
        let file = self.config.clone().or_else(|| Config::default_file(&self.environment));
        let config = Config::from_layers(Settings::default(), &self.environment, file.as_deref())?;
        LoadedSettings::new(&self.args, &config)
    }
}

/// The certificate of the options, or otherwise of the configuration.
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
