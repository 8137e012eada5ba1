//! [`ServerTool`]: one tool of a server in a session.

use std::sync::Arc;
use std::time::Duration;

use conjure_conversation::{CallConcurrency, CallTraits, PermissionPolicy, ResultContent, ToolDefinition};
use conjure_sandbox::{CallOptions, Executor};
use conjure_toolbox::{Tool, ToolContext, ToolOutput, ToolStatus};
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::listing::ListedTool;
use super::result::{ResultFiles, to_output};
use crate::client::calls::running_calls::CallProgress;
use crate::client::connection::CalledTool;
use crate::client::error::McpError;
use crate::client::shared_server::SharedServer;

/// One tool of a server in a session.
pub(in crate::client) struct ServerTool {
    pub(in crate::client) server: Arc<SharedServer>,
    pub(in crate::client) tool: ListedTool,
    /// The session's name for the tool.
    pub(in crate::client) name: String,
    /// The sandbox of the session's tools, which stores large results.
    pub(in crate::client) files: Option<Arc<dyn Executor>>,
}

impl Tool for ServerTool {
    fn definition(&self) -> ToolDefinition {
        self.tool.definition(&self.name, self.server.spec.name.as_str())
    }

    fn traits(&self) -> CallTraits {
        let is_shared = self.server.spec.parallel_calls || self.tool.only_reads;
        let concurrency = if is_shared { CallConcurrency::Shared } else { CallConcurrency::Exclusive };
        // The server's hints are not trusted, so a call is never repeated.
        CallTraits { concurrency, idempotent: false }
    }

    fn permission(&self) -> PermissionPolicy {
        self.server.spec.permission_of(&self.tool.name)
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.server.spec.tool_timeout)
    }

    fn call(&self, input: Value, context: ToolContext) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            let Value::Object(arguments) = input else {
                return ToolOutput::error("the input must be an object");
            };
            let options = CallOptions { deadline: context.deadline, cancel: context.cancel.clone() };
            let progress = CallProgress { call_id: context.call_id.clone(), sink: context.progress };
            let (tool, input) = (&self.tool.name, context.provided_input);
            let refusals = self.server.refusals();
            let called = tokio::select! {
                biased;
                called = self.server.call_tool(tool, arguments, input, &progress, options.clone()) => called,
                () = context.cancel.cancelled() => return status(ToolStatus::Cancelled, "the call was cancelled; the server may still carry it out"),
            };
            let mut output = match called {
                Ok(CalledTool::InputRequired(request)) => ToolOutput::input_required(request),
                Ok(CalledTool::Complete(result)) => {
                    let files = self.files.as_deref().map(|executor| ResultFiles {
                        executor,
                        stem: format!("{}-{}", self.name, context.call_id.as_str()),
                        options,
                    });
                    to_output(result, self.tool.output_schema.as_ref(), files).await
                }
                Err(error @ McpError::Lost { .. }) => status(ToolStatus::Lost, &error.to_string()),
                Err(error) => status(ToolStatus::Failed, &error.to_string()),
            };
            // The server seldom knows that its sandbox refused a connection, so the client adds that.
            if let Some(refused) = self.server.refused_since(refusals) {
                output.content.push(ResultContent::Text { text: format!("[{refused}]") });
            }
            output
        })
    }
}

fn status(status: ToolStatus, text: &str) -> ToolOutput {
    ToolOutput { status, ..ToolOutput::text(text) }
}
