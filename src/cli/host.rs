//! The runtime that a command works with: its data folder, its tenant, and its end.
//!
//! State: what the runtime has. Without a data folder that can be used, or with `--ephemeral`, nothing of a session outlives
//! the command, but for files that it produced.

use std::path::PathBuf;
use std::time::Duration;

use conjure::{
    CallId, Clock as _, Config, Environment, ExpectedOutput, JournalErrorKind, PoolSettings, Runtime,
    RuntimeError, RuntimeOptions, SessionId, Settings, SystemClock, TenantId,
};
use tempfile::TempDir;

use crate::cli::failure::{ANOTHER_FOLDER, Failure};
use crate::cli::session_args::{LOCAL, Place};
use crate::cli::terminal::{Terminal, printable};

/// A sandbox that has not ended by then is left to end by itself.
pub(crate) const CLEANUP_PATIENCE: Duration = Duration::from_secs(10);

/// How a session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// In the data folder.
    Kept,
    /// Not beyond this command.
    Ephemeral,
}

/// A runtime, and whose sessions the command is about.
pub(crate) struct Host {
    pub(crate) runtime: Runtime,
    pub(crate) tenant: TenantId,
    pub(crate) keeping: Keeping,
    /// The options that name the same sessions again.
    named: String,
    /// Behind the runtime, which works in it.
    temporary: Option<TempDir>,
}

impl Host {
    /// For a command that opens a session. Where the usual data folder cannot be used, a temporary one does, and nothing is
    /// kept, which is said; one that was named is the one that is meant.
    pub(crate) async fn for_run(
        place: &Place,
        keeping: Keeping,
        options: impl Fn(Config) -> RuntimeOptions,
        config: &Config,
        environment: &Environment,
        terminal: &Terminal,
    ) -> Result<Self, Failure> {
        let unusable = match (config.data(), environment.data_folder()) {
            (None, None) => "neither `XDG_DATA_HOME` nor `HOME` is set".to_owned(),
            (named, usual) => {
                let folder = named.map(std::path::Path::to_owned).or(usual).unwrap_or_default();
                let options = alone(options(config.clone())).data(folder);
                let options = if keeping == Keeping::Kept { options } else { options.ephemeral() };
                match Runtime::spawn(options).await {
                    Ok(runtime) => return Ok(Self::of(runtime, place, keeping, None)),
                    Err(error) if named.is_none() && is_unusable(&error) => error.to_string(),
                    Err(error) => return Err(refused(error)),
                }
            }
        };
        let lost = if keeping == Keeping::Kept { "the session is not kept, and " } else { "" };
        terminal.warning(&format!(
            "{lost}a temporary folder is used for data (`CONJURE_DATA` names another): {unusable}"
        ));
        let folder = temporary()?;
        let data = Some(folder.path().to_owned());
        let config = config.with(Settings { data, ..Settings::default() })?;
        let runtime = Runtime::spawn(alone(options(config)).ephemeral()).await.map_err(refused)?;
        Ok(Self::of(runtime, place, Keeping::Ephemeral, Some(folder)))
    }

    /// For a command that is about sessions which are there.
    pub(crate) async fn for_sessions(
        place: &Place,
        options: impl Fn(Config) -> RuntimeOptions,
        config: &Config,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let usual = environment.data_folder();
        let Some(folder) = config.data().map(std::path::Path::to_owned).or(usual) else {
            return Err(Failure::usage("no data folder is known: neither `XDG_DATA_HOME` nor `HOME` is set")
                .hint("`--data DIR` names one, as does `CONJURE_DATA`"));
        };
        // Nothing is made where nothing is: the folder is misspelt, or there never was a session.
        if config.data().is_some() && !folder.exists() {
            let told = format!("the data folder `{}` is not there", printable(&folder.to_string_lossy()));
            return Err(Failure::usage(told)
                .hint("`--data DIR` names the one that the sessions are in, as does `CONJURE_DATA`"));
        }
        // Their skills are with them.
        let config = config.with(Settings { skill_paths: Some(Vec::new()), ..Settings::default() })?;
        let runtime = Runtime::spawn(alone(options(config)).data(folder)).await?;
        Ok(Self::of(runtime, place, Keeping::Kept, None))
    }

    fn of(runtime: Runtime, place: &Place, keeping: Keeping, temporary: Option<TempDir>) -> Self {
        let mut named = String::new();
        if let Some(data) = &place.data {
            named.push_str(&format!(" --data {}", shell_word(&data.to_string_lossy())));
        }
        if place.tenant.as_str() != LOCAL {
            named.push_str(&format!(" --tenant {}", place.tenant));
        }
        Self { runtime, tenant: place.tenant.clone(), keeping, named, temporary }
    }

    /// What the skills of a session say that they make, beside what is there; nothing where that cannot be told.
    pub(crate) async fn outputs(&self, session: SessionId, terminal: &Terminal) -> Vec<ExpectedOutput> {
        self.runtime.outputs(&self.tenant, session).await.unwrap_or_else(|error| {
            terminal.warning(&format!("what the skills say that they make was not looked at: {error}"));
            Vec::new()
        })
    }

    /// Lets the workspace of a session stay that is not kept. Returns where it is; none where it stays with the session.
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

    /// The command that goes on with this session.
    pub(crate) fn resuming(&self, session: SessionId) -> String {
        format!("conjure sessions resume{} {session}", self.named)
    }

    /// How to decide on this call of it.
    pub(crate) fn how_to_decide(&self, session: SessionId, call: &CallId) -> String {
        let call = shell_word(call.as_str());
        let deciding = format!("conjure sessions decide{} {session} {call}", self.named);
        format!("`{deciding} --allow` runs it and goes on, `--deny` in its place goes on without")
    }

    /// Ends it: what runs in sandboxes, and the journal last. Whether all of it ended in time.
    pub(crate) async fn end(&self) -> Result<(), RuntimeError> {
        self.runtime.shutdown(SystemClock.deadline(CLEANUP_PATIENCE)).await
    }
}

/// A word of a command line that may be copied into a shell, whoever chose it.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", printable(text).replace('\'', "'\\''"))
    }
}

/// The configuration with the data folder that the command line names.
pub(crate) fn configured(place: &Place, config: &Config) -> Result<Config, Failure> {
    Ok(config.with(Settings { data: place.data.clone(), ..Settings::default() })?)
}

/// Whether a data folder cannot be written, so that another one may do.
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

fn refused(error: RuntimeError) -> Failure {
    let failure = Failure::from(error);
    match &failure.hint {
        Some(hint) if hint != ANOTHER_FOLDER => failure,
        _ => {
            failure.hint("`--data DIR` names another data folder; `--ephemeral` keeps nothing of the session")
        }
    }
}

/// A data folder that goes with the command.
fn temporary() -> Result<TempDir, Failure> {
    let around = std::env::temp_dir();
    tempfile::Builder::new().prefix("conjure-").tempdir_in(&around).map_err(|error| {
        Failure::usage(format!(
            "no folder can be made in the temporary folder `{}` (TMPDIR names another): {error}",
            around.display()
        ))
    })
}

/// A command has one session at most: nobody is there for what is made before it is needed.
fn alone(options: RuntimeOptions) -> RuntimeOptions {
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
