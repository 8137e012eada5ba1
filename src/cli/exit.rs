//! The exit codes: one table, which scripts rely on.

use std::process::ExitCode;

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Done,
    /// The model, or something of our own, failed; for `validate`: a skill is not valid.
    Failed,
    /// The command line, the configuration or an input cannot be used.
    Usage,
    /// A limit was reached: model calls, tokens, context, pauses, cost, time.
    Limit,
    /// The model refused.
    Refused,
    /// A denial ended the run.
    Denied,
    /// A tool call waits for a person, and nobody was there to decide.
    Waits,
    /// SIGINT.
    Interrupted,
    /// SIGTERM.
    Terminated,
}

impl Exit {
    /// Its code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Limit => 3,
            Self::Refused => 4,
            Self::Denied => 5,
            Self::Waits => 6,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
