//! What the server offers: the tools of one sandbox, and agents that answer a prompt.

use std::pin::Pin;
use std::sync::Arc;

use conjure_conversation::{ToolCall, ToolDefinition, ToolResult};
use tokio_util::sync::CancellationToken;

/// The result of calls, when it is there.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>>;

/// The answer of an agent, or why there is none.
pub type AgentFuture<'a> = Pin<Box<dyn Future<Output = Result<String, String>> + Send + 'a>>;

/// Told what an agent does, in a few words.
pub type ProgressFn = Arc<dyn Fn(String) + Send + Sync>;

/// The tools of one sandbox. Each client has one of its own.
pub trait ToolHost: Send + Sync + 'static {
    /// Their definitions. They do not change.
    fn definitions(&self) -> Arc<[ToolDefinition]>;

    /// Runs calls in one sandbox, one after the other until one fails. The result is that of the last one that ran. Dropping the future ends
    /// what the calls started.
    fn call<'a>(&'a self, calls: &'a [ToolCall]) -> ToolFuture<'a>;
}

/// Runs whole conversations.
pub trait AgentRunner: Send + Sync + 'static {
    /// Answers this prompt in a conversation of its own. Dropping the future, or the token, ends it.
    fn run<'a>(&'a self, prompt: String, progress: ProgressFn, cancel: CancellationToken) -> AgentFuture<'a>;
}
