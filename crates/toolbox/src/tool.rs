//! The contract of an embedder's tools: [`Tool`], [`ToolContext`] and [`ToolOutput`].

use std::future::Future;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use conjure_base::{CallId, Deadline, SessionId, TenantId};
use conjure_conversation::{
    CallConcurrency, CallTraits, InputRequest, PermissionPolicy, ProgressSink, ProvidedInput, ResultContent,
    ToolDefinition, ToolEnding,
};
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A tool of the embedder. It runs in the embedder's process, not in the sandbox.
///
/// The future of a call may be dropped at any await: at its deadline, or when the turn is cancelled and it does not return soon. Everything
/// that it started must end with it.
pub trait Tool: Send + Sync {
    /// The definition for the model. It must not change.
    fn definition(&self) -> ToolDefinition;

    /// How its calls may be scheduled. By default a call is a barrier, and is not repeated after a crash.
    fn traits(&self) -> CallTraits {
        CallTraits { concurrency: CallConcurrency::Exclusive, idempotent: false }
    }

    /// The input fields that are paths of files to read: strings, or arrays of strings. None by default.
    ///
    /// A value that is a reference (`file://sales`, `skill://csv-helper/assets/a.csv`, `https://…`) is replaced by the path of a read-only
    /// file that exists while the call runs. Its name and extension are arbitrary. If a reference cannot be resolved, the result is an
    /// error and the tool is not called.
    fn path_inputs(&self) -> &[&str] {
        &[]
    }

    /// Whether a person must decide on each of its calls. By default, no.
    fn permission(&self) -> PermissionPolicy {
        PermissionPolicy::default()
    }

    /// The reason why a person must decide on each single call of a tool whose [`Tool::permission`] is to ask. With a reason, no
    /// earlier grant covers the call.
    ///
    /// The default, `None`, is for a tool whose later calls a person can grant all at once.
    fn approval_reason(&self, input: &Value) -> Option<String> {
        let _ = input;
        None
    }

    /// The timeout of a call, if it differs from the toolbox's timeout.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Runs one call. `input` is an object. The tool must check its fields, because the model may have written anything.
    fn call(&self, input: Value, context: ToolContext) -> BoxFuture<'_, ToolOutput>;
}

/// The tenant and session of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerIdentity {
    /// The tenant. The call must not reveal other tenants' data.
    pub tenant: TenantId,
    /// The session.
    pub session: SessionId,
}

/// The context of a call.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// The caller; `None` if the toolbox belongs to no session.
    pub caller: Option<CallerIdentity>,
    /// The call's id.
    pub call_id: CallId,
    /// The deadline: the tool's timeout or the end of the turn, whichever is earlier.
    pub deadline: Deadline,
    /// Cancelled with the turn, and when the call is abandoned.
    pub cancel: CancellationToken,
    /// The answers to the questions that ended the call's previous run; `None` in its first run.
    pub provided_input: Option<ProvidedInput>,
    /// The sink for the tool's progress reports. Clients see them while the call runs. They are not recorded.
    pub progress: ProgressSink,
}

/// The status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ToolStatus {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It did not run, because its tool is unknown or its input is invalid.
    Rejected,
    /// It timed out.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// Its sandbox was lost while it ran; its effects are unknown.
    Lost,
}

impl ToolStatus {
    /// The name for logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }

    /// The ending that the result records.
    pub(crate) const fn ending(self) -> ToolEnding {
        match self {
            Self::Succeeded | Self::Failed => ToolEnding::Returned,
            Self::Rejected => ToolEnding::Rejected,
            Self::TimedOut => ToolEnding::TimedOut,
            Self::Cancelled => ToolEnding::Cancelled,
            Self::Lost => ToolEnding::Lost,
        }
    }
}

/// The output of a tool, before redaction and truncation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// The content for the model. Empty content is reported as such.
    pub content: Vec<ResultContent>,
    /// The status; everything except [`ToolStatus::Succeeded`] is an error result.
    pub status: ToolStatus,
    /// Questions to a person. They end this run of the call, instead of a result ([`ToolOutput::input_required`]).
    pub input_request: Option<Box<InputRequest>>,
}

impl ToolOutput {
    /// A successful output with this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::succeeded(vec![ResultContent::Text { text: text.into() }])
    }

    /// A failed output. `reason` tells the model what is wrong and how to mend it.
    pub fn error(reason: impl Into<String>) -> Self {
        Self::with_status(ToolStatus::Failed, reason)
    }

    /// A successful output with an image of these bytes. `media_type` is `image/png`, `image/jpeg`, `image/gif` or
    /// `image/webp`.
    pub fn image(media_type: impl Into<String>, bytes: &[u8]) -> Self {
        let image = ResultContent::Image { media_type: media_type.into(), data: BASE64.encode(bytes) };
        Self::succeeded(vec![image])
    }

    /// A successful output with a document of these bytes, for a model that reads it. `media_type` is `application/pdf`.
    pub fn document(media_type: impl Into<String>, bytes: &[u8]) -> Self {
        let document = ResultContent::Document { media_type: media_type.into(), data: BASE64.encode(bytes) };
        Self::succeeded(vec![document])
    }

    /// Ends this run of the call with questions to a person. After the person has answered, also after a restart, the tool is
    /// called again. That call has the same input, and the answers in [`ToolContext::provided_input`].
    #[must_use]
    pub fn input_required(request: InputRequest) -> Self {
        Self { input_request: Some(Box::new(request)), ..Self::succeeded(Vec::new()) }
    }

    const fn succeeded(content: Vec<ResultContent>) -> Self {
        Self { content, status: ToolStatus::Succeeded, input_request: None }
    }

    pub(crate) fn with_status(status: ToolStatus, text: impl Into<String>) -> Self {
        Self { status, ..Self::text(text) }
    }
}

/// `Ok` becomes a successful output, `Err` a failed one.
impl<T: Into<String>, E: std::fmt::Display> From<Result<T, E>> for ToolOutput {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(text) => Self::text(text),
            Err(error) => Self::error(error.to_string()),
        }
    }
}

/// Creates a tool from a function.
///
/// ```
/// use conjure_conversation::{CallConcurrency, CallTraits, ToolDefinition};
/// use conjure_toolbox::{ToolOutput, tool_fn};
///
/// let definition = ToolDefinition {
///     name: "current_user".to_owned(),
///     description: "The name of the user.".to_owned(),
///     input_schema: serde_json::json!({"type": "object", "properties": {}}),
/// };
/// let traits = CallTraits { concurrency: CallConcurrency::Shared, idempotent: true };
/// let tool = tool_fn(definition, traits, |_input, _context| async { ToolOutput::text("Ada") });
/// # let _ = tool;
/// ```
pub fn tool_fn<F, R>(definition: ToolDefinition, traits: CallTraits, function: F) -> impl Tool
where
    F: Fn(Value, ToolContext) -> R + Send + Sync,
    R: Future<Output = ToolOutput> + Send + 'static,
{
    ToolFn { definition, traits, function }
}

struct ToolFn<F> {
    definition: ToolDefinition,
    traits: CallTraits,
    function: F,
}

impl<F, R> Tool for ToolFn<F>
where
    F: Fn(Value, ToolContext) -> R + Send + Sync,
    R: Future<Output = ToolOutput> + Send + 'static,
{
    fn definition(&self) -> ToolDefinition {
        self.definition.clone()
    }

    fn traits(&self) -> CallTraits {
        self.traits
    }

    fn call(&self, input: Value, context: ToolContext) -> BoxFuture<'_, ToolOutput> {
        Box::pin((self.function)(input, context))
    }
}
