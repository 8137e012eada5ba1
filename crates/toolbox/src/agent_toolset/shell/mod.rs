//! One shell for a session, whose state stays between calls.

mod driver;
mod inbox;
mod live_shell;
mod session;

pub(super) use session::{ShellContext, ShellRequest, ShellSession};
