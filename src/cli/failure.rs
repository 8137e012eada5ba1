//! Why the command could not do what was asked, in words for the user.

use conjure::{
    ApiErrorKind, ConfigError, Error, ErrorKind, JournalErrorKind, ModelError, ModelErrorKind, RuntimeError,
    SessionError,
};

use crate::cli::exit::Exit;

/// Printed as `error: …` and `hint: …` on standard error.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    /// The user's input cannot be used.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Something of our own, or of the machine, failed.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// The same failure, in this option of the command line.
    pub(crate) fn in_option(mut self, option: &str) -> Self {
        self.message = format!("`{option}`: {}", self.message);
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self { exit: Exit::Usage, message: error.to_string(), hint: error.hint() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::SkillNotFound
            | ErrorKind::InvalidFrontmatter
            | ErrorKind::InvalidSkillStructure
            | ErrorKind::FileNotFound
            | ErrorKind::PermissionDenied => Exit::Usage,
            ErrorKind::ExecutionTimeout | ErrorKind::MaxIterationsReached => Exit::Limit,
            _ if is_misconfigured(&error) => Exit::Usage,
            _ => Exit::Failed,
        };
        Self { exit, message: error.to_string(), hint: error.hint() }
    }
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        let hint = error.hint();
        let (message, exit, hint) = match error {
            RuntimeError::Session(error) => return error.into(),
            RuntimeError::Sandbox(error) => return crate::cli::run::no_sandbox(error),
            RuntimeError::NotFound { .. } => {
                (error.to_string(), Exit::Usage, Some("`conjure sessions list` lists them".to_owned()))
            }
            RuntimeError::Missing { .. } => {
                let hint = "`--env NAME` passes on the variable of this process, `--env NAME=VALUE` gives another, `--input NAME=VALUE` an input";
                (error.to_string(), Exit::Usage, Some(hint.to_owned()))
            }
            RuntimeError::Inputs { .. } => {
                let hint =
                    "`--input NAME=VALUE` gives a value; `conjure skills check` says what a skill needs";
                (error.to_string(), Exit::Usage, Some(hint.to_owned()))
            }
            RuntimeError::Journal(ref journal) => {
                let hint = hint.or_else(|| journal_hint(journal.kind()).map(str::to_owned));
                (error.to_string(), Exit::Usage, hint)
            }
            RuntimeError::Data { .. } => {
                (error.to_string(), Exit::Usage, hint.or_else(|| Some(ANOTHER_FOLDER.to_owned())))
            }
            RuntimeError::NoJournal { .. }
            | RuntimeError::Delivery
            | RuntimeError::UnknownSkills { .. }
            | RuntimeError::UnknownExecutor { .. }
            | RuntimeError::Workspace { .. }
            | RuntimeError::Client { .. } => (error.to_string(), Exit::Usage, hint),
            _ => (error.to_string(), Exit::Failed, hint),
        };
        Self { exit, message, hint }
    }
}

pub(crate) const ANOTHER_FOLDER: &str = "`--data DIR` names another data folder, as does `CONJURE_DATA`";

/// What helps, where the error itself does not say it.
const fn journal_hint(kind: JournalErrorKind) -> Option<&'static str> {
    match kind {
        JournalErrorKind::Corrupt => Some(
            "put the file back from a backup, or move its folder away: sessions begin anew then, and `sqlite3 FILE \
             .recover` may save what was in it",
        ),
        JournalErrorKind::ReadOnly | JournalErrorKind::DiskFull | JournalErrorKind::Io => {
            Some(ANOTHER_FOLDER)
        }
        _ => None,
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::TakenOver { reason } => Self::internal(format!("another process has the session: {reason}"))
                .hint("wait until it is done with it, or end it"),
            SessionError::Journal { reason } => Self::internal(format!("the session was not recorded: {reason}"))
                .hint("make room in the data folder, then `conjure sessions resume ID`; `--ephemeral` keeps nothing"),
            error => Self::internal(error.to_string()),
        }
    }
}

/// Whether the service does not know the key, or there is no such model, or no such service at the base URL.
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
impl From<conjure::ImageError> for Failure {
    fn from(error: conjure::ImageError) -> Self {
        let exit = match error.kind() {
            conjure::ImageErrorKind::BadRequest => Exit::Usage,
            conjure::ImageErrorKind::TimedOut => Exit::Limit,
            _ => Exit::Failed,
        };
        Self { exit, message: error.to_string(), hint: error.hint().map(str::to_owned) }
    }
}
