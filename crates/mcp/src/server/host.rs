//! The traits that an embedder implements: the tools of one sandbox, and agents that answer a prompt.

use std::pin::Pin;
use std::sync::Arc;

use conjure_conversation::{ToolCall, ToolDefinition, ToolResult};
use tokio_util::sync::CancellationToken;

/// A future of the result of calls.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>>;

/// A future of an agent's answer, or of the reason why there is none.
pub type AgentFuture<'a> = Pin<Box<dyn Future<Output = Result<String, String>> + Send + 'a>>;

/// Called with a short description of each step of an agent.
pub type ProgressFn = Arc<dyn Fn(String) + Send + Sync>;

/// The tools of one sandbox. Each client has its own.
pub trait ToolHost: Send + Sync + 'static {
    /// The definitions of the tools. They do not change.
    fn definitions(&self) -> Arc<[ToolDefinition]>;

    /// Runs calls in one sandbox, one after the other, until one fails. Returns the result of the last call that ran. Dropping the future
    /// ends the processes that the calls started.
    fn call<'a>(&'a self, calls: &'a [ToolCall]) -> ToolFuture<'a>;
}

/// Runs whole conversations.
pub trait AgentRunner: Send + Sync + 'static {
    /// Answers this prompt in a new conversation. Dropping the future or cancelling the token ends it.
    fn run<'a>(&'a self, prompt: String, progress: ProgressFn, cancel: CancellationToken) -> AgentFuture<'a>;
}
