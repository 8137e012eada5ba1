//! [`FindProgram`]: who knows what a server's sandbox starts, where its configuration does not say it.

use std::fmt;

use futures_util::future::BoxFuture;

/// Knows the program of a server, such as that of an image.
pub trait FindProgram: fmt::Debug + Send + Sync {
    /// The program. It is asked at each start of the server.
    ///
    /// # Errors
    /// Why there is none, as text.
    fn find(&self) -> BoxFuture<'_, Result<ServerProgram, String>>;
}

/// A program that is a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerProgram {
    /// The program and its arguments, as its sandbox has them.
    pub argv: Vec<String>,
    /// The directory in which it starts; `None`: the workspace.
    pub workdir: Option<String>,
}
