//! The runtime that a command uses: its data directory, its tenant, and its shutdown.
//!
//! State: the state of the runtime. Without a usable data directory, or with `--ephemeral`, only the files that a session produced outlive
//! the command.

use std::path::PathBuf;
use std::time::Duration;

use conjure::artifact::ExpectedOutput;
use conjure::config::PoolSettings;
use conjure::journal::JournalErrorKind;
use conjure::tool::CallId;
use conjure::{
    Clock as _, Config, ProcessEnv, Runtime, RuntimeError, RuntimeOptions, SessionId, Settings, SystemClock,
    TenantId,
};
use tempfile::TempDir;

use crate::cli::args::{DataArgs, LOCAL_TENANT};
use crate::cli::cli_error::{CliError, OTHER_DATA_DIR_HINT};
use crate::cli::terminal::{Terminal, printable};

/// The timeout of the shutdown. Sandboxes that have not ended by then end by themselves.
pub(crate) const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// In the data directory.
    Persistent,
    /// Until the command ends.
    Ephemeral,
}

/// A runtime, and the tenant whose sessions the command uses.
pub(crate) struct CommandRuntime {
    pub(crate) runtime: Runtime,
    pub(crate) tenant: TenantId,
    pub(crate) persistence: Persistence,
    /// The options that select the same sessions in another command.
    selection_options: String,
    /// Dropped after the runtime, which uses it.
    temporary: Option<TempDir>,
}

impl CommandRuntime {
    /// A runtime for a command that opens a session. If the default data directory cannot be used, it prints a warning, uses a temporary
    /// one, and keeps nothing. A data directory that the user named must be usable.
    pub(crate) async fn for_run(
        data_args: &DataArgs,
        persistence: Persistence,
        options: impl Fn(Config) -> RuntimeOptions,
        config: &Config,
        environment: &ProcessEnv,
        terminal: &Terminal,
    ) -> Result<Self, CliError> {
        let unusable = match (config.data(), environment.data_dir()) {
            (None, None) => "neither `XDG_DATA_HOME` nor `HOME` is set".to_owned(),
            (named, usual) => {
                let dir = named.map(std::path::Path::to_owned).or(usual).unwrap_or_default();
                let options = without_pools(options(config.clone())).data(dir);
                let options =
                    if persistence == Persistence::Persistent { options } else { options.ephemeral() };
                match Runtime::spawn(options).await {
                    Ok(runtime) => return Ok(Self::new(runtime, data_args, persistence, None)),
                    Err(error) if named.is_none() && is_unusable(&error) => error.to_string(),
                    Err(error) => return Err(spawn_error(error)),
                }
            }
        };
        let lost = if persistence == Persistence::Persistent { "the session is not kept, and " } else { "" };
        terminal.warning(&format!(
            "{lost}a temporary directory is used for data (`CONJURE_DATA` names another): {unusable}"
        ));
        let dir = temporary_data_dir()?;
        let data = Some(dir.path().to_owned());
        let config = config.with(Settings { data, ..Settings::default() })?;
        let runtime =
            Runtime::spawn(without_pools(options(config)).ephemeral()).await.map_err(spawn_error)?;
        Ok(Self::new(runtime, data_args, Persistence::Ephemeral, Some(dir)))
    }

    /// A runtime for a command about existing sessions.
    pub(crate) async fn for_sessions(
        data_args: &DataArgs,
        options: impl Fn(Config) -> RuntimeOptions,
        config: &Config,
        environment: &ProcessEnv,
    ) -> Result<Self, CliError> {
        let usual = environment.data_dir();
        let Some(dir) = config.data().map(std::path::Path::to_owned).or(usual) else {
            return Err(CliError::usage(
                "no data directory is known: neither `XDG_DATA_HOME` nor `HOME` is set",
            )
            .with_hint("`--data DIR` names one, as does `CONJURE_DATA`"));
        };
        // A missing directory is not created: its name may be wrong, or there never was a session.
        if config.data().is_some() && !dir.exists() {
            let told = format!("the data directory `{}` is not there", printable(&dir.to_string_lossy()));
            return Err(CliError::usage(told)
                .with_hint("`--data DIR` names the one that the sessions are in, as does `CONJURE_DATA`"));
        }
        // Sessions have their skills pinned, so the configured skills are not loaded.
        let config = config.with(Settings { skill_paths: Some(Vec::new()), ..Settings::default() })?;
        let runtime = Runtime::spawn(without_pools(options(config)).data(dir)).await?;
        Ok(Self::new(runtime, data_args, Persistence::Persistent, None))
    }

    fn new(
        runtime: Runtime,
        data_args: &DataArgs,
        persistence: Persistence,
        temporary: Option<TempDir>,
    ) -> Self {
        let mut selection_options = String::new();
        if let Some(data) = &data_args.data {
            selection_options.push_str(&format!(" --data {}", shell_word(&data.to_string_lossy())));
        }
        if data_args.tenant.as_str() != LOCAL_TENANT {
            selection_options.push_str(&format!(" --tenant {}", data_args.tenant));
        }
        Self { runtime, tenant: data_args.tenant.clone(), persistence, selection_options, temporary }
    }

    /// The outputs that the skills of a session declare. Prints a warning and returns none if they cannot be read.
    pub(crate) async fn outputs(&self, session: SessionId, terminal: &Terminal) -> Vec<ExpectedOutput> {
        self.runtime.outputs(&self.tenant, session).await.unwrap_or_else(|error| {
            terminal.warning(&format!("the declared outputs of the skills could not be read: {error}"));
            Vec::new()
        })
    }

    /// Keeps the workspace of a session that is not kept. Returns its path, or `None` if the session keeps it.
    pub(crate) async fn keep_workspace(
        &mut self,
        session: SessionId,
    ) -> Result<Option<PathBuf>, RuntimeError> {
        let kept = self.runtime.keep_workspace(&self.tenant, session).await?;
        if kept.is_some()
            && let Some(temporary) = self.temporary.take()
        {
            let _ = temporary.keep();
        }
        Ok(kept)
    }

    /// The command that resumes this session.
    pub(crate) fn resume_command(&self, session: SessionId) -> String {
        format!("conjure sessions resume{} {session}", self.selection_options)
    }

    /// The command that continues this session in the chat.
    pub(crate) fn chat_command(&self, session: SessionId) -> String {
        format!("conjure chat{} --resume {session}", self.selection_options)
    }

    /// A hint how to decide on this call of the session.
    pub(crate) fn decide_hint(&self, session: SessionId, call: &CallId) -> String {
        let call = shell_word(call.as_str());
        let deciding = format!("conjure sessions decide{} {session} {call}", self.selection_options);
        format!("`{deciding} --allow` runs it and continues, `--deny` in its place continues without it")
    }

    /// Shuts the runtime down: sandboxes first, the journal last. Fails if this does not finish in time.
    pub(crate) async fn shut_down(&self) -> Result<(), RuntimeError> {
        self.runtime.shutdown(SystemClock.deadline(CLEANUP_TIMEOUT)).await
    }

    /// Shuts the runtime down, and returns the result of the command. If both failed, the command's error counts.
    #[cfg(any(feature = "mcp", feature = "serve"))]
    pub(crate) async fn shut_down_after<T>(&self, done: Result<T, CliError>) -> Result<T, CliError> {
        let ended = self.shut_down().await;
        let value = done?;
        ended?;
        Ok(value)
    }
}

/// Quotes a word for a shell. This is safe for any input.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", printable(text).replace('\'', "'\\''"))
    }
}

/// The configuration with the data directory of the command line.
pub(crate) fn with_data_dir(data_args: &DataArgs, config: &Config) -> Result<Config, CliError> {
    Ok(config.with(Settings { data: data_args.data.clone(), ..Settings::default() })?)
}

/// Creates the configured data directory, for a command that may come before the first session.
#[cfg(any(feature = "mcp", feature = "serve"))]
pub(crate) fn create_data_dir(config: &Config) -> Result<(), CliError> {
    let Some(dir) = config.data() else { return Ok(()) };
    std::fs::create_dir_all(dir).map_err(|error| {
        CliError::usage(format!("the data directory `{}` cannot be made: {error}", dir.display()))
    })
}

/// Whether the data directory cannot be written, so that another one may be used.
fn is_unusable(error: &RuntimeError) -> bool {
    match error {
        RuntimeError::Data { .. } => true,
        RuntimeError::Journal(error) => {
            matches!(
                error.kind(),
                JournalErrorKind::ReadOnly | JournalErrorKind::DiskFull | JournalErrorKind::Io
            )
        }
        _ => false,
    }
}

fn spawn_error(error: RuntimeError) -> CliError {
    let failure = CliError::from(error);
    match &failure.hint {
        Some(hint) if hint != OTHER_DATA_DIR_HINT => failure,
        _ => failure.with_hint(
            "`--data DIR` names another data directory; `--ephemeral` keeps nothing of the session",
        ),
    }
}

/// A data directory that is deleted when the command ends.
fn temporary_data_dir() -> Result<TempDir, CliError> {
    let around = std::env::temp_dir();
    tempfile::Builder::new().prefix("conjure-").tempdir_in(&around).map_err(|error| {
        CliError::usage(format!(
            "no directory can be made in the temporary directory `{}` (TMPDIR names another): {error}",
            around.display()
        ))
    })
}

/// Disables the pools of warm sandboxes. A command has at most one session, so they are of no use.
fn without_pools(options: RuntimeOptions) -> RuntimeOptions {
    options.pool(PoolSettings { jail: Some(0), docker: Some(0), ..PoolSettings::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_for_a_shell_is_one_word() {
        assert_eq!(shell_word("toolu_01-a"), "toolu_01-a");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("x'; rm -rf ~ #"), r"'x'\''; rm -rf ~ #'");
        assert_eq!(shell_word(""), "''");
    }
}
