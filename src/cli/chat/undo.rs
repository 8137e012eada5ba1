//! `/undo`: removes the last message.
//!
//! The chat continues in a fork of the session before that message. The session itself stays, so nothing is lost.

use conjure::session::{ForkError, ForkPoint, SessionWorkspace};
use conjure::{RuntimeError, SessionId};

use crate::cli::cli_error::CliError;
use crate::cli::command_runtime::{CommandRuntime, Persistence};
use crate::cli::run::CommandSession;
use crate::cli::terminal::{Style, Terminal};

/// The removed message.
#[derive(Debug)]
pub(super) struct UndoneMessage {
    /// The session with the message.
    original: SessionId,
}

/// Continues in a fork of the session before its last message, with a copy of its workspace. If the future is dropped, the session is
/// unchanged.
pub(super) async fn undo(opened: &mut CommandSession) -> Result<UndoneMessage, CliError> {
    let (runtime, tenant, original) = (&opened.host.runtime, &opened.host.tenant, opened.session.id());
    let forked = runtime.fork(tenant, original, ForkPoint::BeforeLastMessage).await;
    let fork = forked.map_err(|error| match error {
        RuntimeError::Fork { reason: ForkError::NoMessage, .. } => {
            CliError::usage("`/undo`: there is no message to take back")
        }
        error => error.into(),
    })?;
    let dir = runtime.workspace(tenant, fork.id()).await?;
    let dir = dir.ok_or_else(|| CliError::internal("the session has no directory to work in"))?;
    opened.workspace = SessionWorkspace::at_real_path(&dir)?;
    let former = std::mem::replace(&mut opened.session, fork);
    // The sandbox of the former session is no longer needed. If this fails, it ends with the command.
    if let Err(error) = former.close().await {
        tracing::warn!(session = %original, %error, "the session before the undo was not closed");
    }
    Ok(UndoneMessage { original })
}

impl UndoneMessage {
    /// Prints what was undone, and what was not.
    pub(super) fn print(&self, host: &CommandRuntime, terminal: &Terminal) {
        terminal.note("the last message and its answer are taken back; files were not undone");
        if host.persistence == Persistence::Persistent {
            let command = host.chat_command(self.original);
            terminal.styled(Style::Dim, &format!("`{command}` has the conversation as it was"));
        }
    }
}
