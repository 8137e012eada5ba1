//! [`FindProgram`]: finds the program of a server whose configuration does not name it.

use std::fmt;

use futures_util::future::BoxFuture;

/// Finds the program of a server, such as the entrypoint of an image.
pub trait FindProgram: fmt::Debug + Send + Sync {
    /// Returns the program. It is called at each start of the server.
    ///
    /// # Errors
    /// The reason why there is no program, as text.
    fn find(&self) -> BoxFuture<'_, Result<ServerProgram, String>>;
}

/// The program of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerProgram {
    /// The program and its arguments, with paths in the sandbox.
    pub argv: Vec<String>,
    /// The working directory. `None`: the workspace.
    pub workdir: Option<String>,
}
