//! The errors and the exit codes of the command.

use std::process::ExitCode;

use conjure::config::ConfigError;
use conjure::journal::JournalErrorKind;
use conjure::model::{ApiErrorKind, ModelErrorKind};
use conjure::sandbox::SandboxErrorKind;
use conjure::{Error, ErrorKind, ModelError, RuntimeError, SessionError};

/// The exit status of the command. Scripts rely on the codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Success.
    Success,
    /// The model or an internal operation failed. For `validate`: a skill is not valid.
    Failed,
    /// The command line, the configuration or an input cannot be used.
    Usage,
    /// A limit was reached: model calls, tokens, context, pauses, cost, time.
    Limit,
    /// The model refused.
    Refused,
    /// A denial ended the run.
    Denied,
    /// A tool call awaits approval, and there was no user to decide.
    AwaitingApproval,
    /// SIGINT.
    Interrupted,
    /// SIGTERM.
    Terminated,
}

impl ExitStatus {
    /// The exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Limit => 3,
            Self::Refused => 4,
            Self::Denied => 5,
            Self::AwaitingApproval => 6,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        Self::from(exit.code())
    }
}

/// An error, printed as `error: …` and `hint: …` on standard error.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit: ExitStatus,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl CliError {
    pub(crate) fn new(exit: ExitStatus, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    /// The user's input cannot be used.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitStatus::Usage, message)
    }

    /// An internal operation, or the machine, failed.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ExitStatus::Failed, message)
    }

    /// Names the option of the command line that caused the error.
    pub(crate) fn in_option(mut self, option: &str) -> Self {
        self.message = format!("`{option}`: {}", self.message);
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        Self { exit: ExitStatus::Usage, message: error.to_string(), hint: error.hint() }
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::SkillNotFound
            | ErrorKind::InvalidFrontmatter
            | ErrorKind::InvalidSkillStructure
            | ErrorKind::FileNotFound
            | ErrorKind::PermissionDenied => ExitStatus::Usage,
            ErrorKind::ExecutionTimeout | ErrorKind::MaxIterationsReached => ExitStatus::Limit,
            _ if is_misconfigured(&error) => ExitStatus::Usage,
            _ => ExitStatus::Failed,
        };
        Self { exit, message: error.to_string(), hint: error.hint() }
    }
}

impl From<RuntimeError> for CliError {
    fn from(error: RuntimeError) -> Self {
        let hint = error.hint();
        let (message, exit, hint) = match error {
            RuntimeError::Session(error) => return error.into(),
            RuntimeError::Sandbox(error) => return sandbox_error(error),
            RuntimeError::NotFound { .. } => {
                (error.to_string(), ExitStatus::Usage, Some("`conjure sessions list` lists them".to_owned()))
            }
            RuntimeError::MissingSecrets { .. } => {
                let hint = "`--env NAME` passes on the variable of this process, `--env NAME=VALUE` gives another, `--input NAME=VALUE` an input";
                (error.to_string(), ExitStatus::Usage, Some(hint.to_owned()))
            }
            RuntimeError::Inputs { .. } => {
                let hint =
                    "`--input NAME=VALUE` gives a value; `conjure skills check` says what a skill needs";
                (error.to_string(), ExitStatus::Usage, Some(hint.to_owned()))
            }
            RuntimeError::Journal(ref journal) => {
                let hint = hint.or_else(|| journal_hint(journal.kind()).map(str::to_owned));
                (error.to_string(), ExitStatus::Usage, hint)
            }
            RuntimeError::Data { .. } => {
                (error.to_string(), ExitStatus::Usage, hint.or_else(|| Some(OTHER_DATA_DIR_HINT.to_owned())))
            }
            RuntimeError::NoJournal { .. }
            | RuntimeError::Delivery
            | RuntimeError::UnknownSkills { .. }
            | RuntimeError::UnknownExecutor { .. }
            | RuntimeError::Workspace { .. }
            | RuntimeError::Client { .. } => (error.to_string(), ExitStatus::Usage, hint),
            _ => (error.to_string(), ExitStatus::Failed, hint),
        };
        Self { exit, message, hint }
    }
}

pub(crate) const OTHER_DATA_DIR_HINT: &str =
    "`--data DIR` names another data directory, as does `CONJURE_DATA`";

/// A hint, if the error itself has none.
const fn journal_hint(kind: JournalErrorKind) -> Option<&'static str> {
    match kind {
        JournalErrorKind::Corrupt => Some(
            "put the file back from a backup, or move its directory away: sessions begin anew then, and `sqlite3 FILE \
             .recover` may save what was in it",
        ),
        JournalErrorKind::ReadOnly | JournalErrorKind::DiskFull | JournalErrorKind::Io => {
            Some(OTHER_DATA_DIR_HINT)
        }
        _ => None,
    }
}

impl From<SessionError> for CliError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::TakenOver { reason } => Self::internal(format!("another process has the session: {reason}"))
                .with_hint("wait until it is done with it, or end it"),
            SessionError::Journal { reason } => Self::internal(format!("the session was not recorded: {reason}"))
                .with_hint("make room in the data directory, then `conjure sessions resume ID`; `--ephemeral` keeps nothing"),
            error => Self::internal(error.to_string()),
        }
    }
}

/// Whether the key, the model or the base URL is wrong.
const fn is_misconfigured(error: &Error) -> bool {
    matches!(
        error,
        Error::Api(ModelError {
            kind: ModelErrorKind::Api(ApiErrorKind::Authentication | ApiErrorKind::NotFound),
            ..
        })
    )
}

#[cfg(feature = "docker")]
impl From<conjure::sandbox::ImageError> for CliError {
    fn from(error: conjure::sandbox::ImageError) -> Self {
        let exit = match error.kind() {
            conjure::sandbox::ImageErrorKind::BadRequest => ExitStatus::Usage,
            conjure::sandbox::ImageErrorKind::TimedOut => ExitStatus::Limit,
            _ => ExitStatus::Failed,
        };
        Self { exit, message: error.to_string(), hint: error.hint().map(str::to_owned) }
    }
}

/// The error if there is no sandbox.
pub(crate) fn sandbox_error(error: Error) -> CliError {
    // The configuration asks for something that the sandbox does not support, so no attempt was made.
    let is_refused = match &error {
        Error::Container { source: None, .. } => true,
        Error::Container { source: Some(source), .. } => source.kind() == SandboxErrorKind::NotEnforced,
        _ => false,
    };
    let failure = CliError::from(error).with_hint("`conjure doctor` says what this machine offers");
    if is_refused { CliError { exit: ExitStatus::Usage, hint: None, ..failure } } else { failure }
}
