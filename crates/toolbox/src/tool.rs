//! Tools of the host: what one is, what its call is given, and what comes out.

use std::future::Future;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use conjure_base::{CallId, Deadline, SessionId, TenantId};
use conjure_conversation::{Access, CallTraits, ResultContent, ToolDefinition, ToolEnding};
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A tool of the host. It runs in the host's process, not in the sandbox.
///
/// The future of a call may be dropped at any await: when its time is up, or when the turn is cancelled and it
/// does not return soon. What it started must end with it.
pub trait Tool: Send + Sync {
    /// What the model is told of it. Must be the same each time.
    fn definition(&self) -> ToolDefinition;

    /// How its calls may be scheduled. By default a call is a barrier, and never run again by itself after a crash.
    fn traits(&self) -> CallTraits {
        CallTraits { access: Access::Exclusive, idempotent: false }
    }

    /// The fields of its input that are paths of files to read: each a string, or an array of strings. Where one is a reference as a
    /// whole (`file://sales`, `skill://csv-helper/assets/a.csv`, `https://…`), the call is given the path of a file on the host in its
    /// place, for reading alone and while the call runs: its name and extension say nothing. A reference that leads nowhere is an error
    /// result, and the tool is not called. None, unless this says otherwise.
    fn path_inputs(&self) -> &[&str] {
        &[]
    }

    /// Runs one call. `input` is an object; whether its fields fit the schema is for the tool to see, since the
    /// model may have written anything.
    fn call(&self, input: Value, context: ToolContext) -> BoxFuture<'_, ToolOutcome>;
}

/// For whom a call is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The tenant. What is not the tenant's is not for the call to show.
    pub tenant: TenantId,
    /// The session.
    pub session: SessionId,
}

/// What a call is given.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// For whom it is made; `None`: the toolbox belongs to no session.
    pub caller: Option<Caller>,
    /// The call's id.
    pub call_id: CallId,
    /// When it must have ended: the tool's own timeout or the end of the turn, whichever is earlier.
    pub deadline: Deadline,
    /// Cancelled when the turn is, and when the call is given up.
    pub cancel: CancellationToken,
}

/// How a call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ToolStatus {
    /// It did what it was asked.
    Succeeded,
    /// It did not.
    Failed,
    /// It was not started, since its tool is unknown or its input makes no sense.
    Rejected,
    /// Its time was up.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// Its sandbox was lost while it ran; nobody knows what it did.
    Lost,
}

impl ToolStatus {
    /// Its name in the log.
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

    /// How its result tells it to those who keep an account.
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

/// What came out of a call, before it is cut and redacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    /// What the model is shown. Empty content is told as such.
    pub content: Vec<ResultContent>,
    /// How it went; all but [`ToolStatus::Succeeded`] is an error result.
    pub status: ToolStatus,
}

impl ToolOutcome {
    /// Success, with this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ResultContent::Text { text: text.into() }], status: ToolStatus::Succeeded }
    }

    /// Failure, and why: what is wrong and how to mend it, for the model to read.
    pub fn error(reason: impl Into<String>) -> Self {
        Self::with_status(ToolStatus::Failed, reason)
    }

    /// Success, with an image of these bytes. `media_type` is `image/png`, `image/jpeg`, `image/gif` or
    /// `image/webp`.
    pub fn image(media_type: impl Into<String>, bytes: &[u8]) -> Self {
        let image = ResultContent::Image { media_type: media_type.into(), data: BASE64.encode(bytes) };
        Self { content: vec![image], status: ToolStatus::Succeeded }
    }

    pub(crate) fn with_status(status: ToolStatus, text: impl Into<String>) -> Self {
        Self { status, ..Self::text(text) }
    }
}

/// `Ok` is a success of this text, `Err` a failure of this reason.
impl<T: Into<String>, E: std::fmt::Display> From<Result<T, E>> for ToolOutcome {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(text) => Self::text(text),
            Err(error) => Self::error(error.to_string()),
        }
    }
}

/// A tool of a function.
///
/// ```
/// use conjure_conversation::{Access, CallTraits, ToolDefinition};
/// use conjure_toolbox::{ToolOutcome, tool_fn};
///
/// let definition = ToolDefinition {
///     name: "current_user".to_owned(),
///     description: "The name of the user.".to_owned(),
///     input_schema: serde_json::json!({"type": "object", "properties": {}}),
/// };
/// let traits = CallTraits { access: Access::Shared, idempotent: true };
/// let tool = tool_fn(definition, traits, |_input, _context| async { ToolOutcome::text("Ada") });
/// # let _ = tool;
/// ```
pub fn tool_fn<F, R>(definition: ToolDefinition, traits: CallTraits, function: F) -> impl Tool
where
    F: Fn(Value, ToolContext) -> R + Send + Sync,
    R: Future<Output = ToolOutcome> + Send + 'static,
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
    R: Future<Output = ToolOutcome> + Send + 'static,
{
    fn definition(&self) -> ToolDefinition {
        self.definition.clone()
    }

    fn traits(&self) -> CallTraits {
        self.traits
    }

    fn call(&self, input: Value, context: ToolContext) -> BoxFuture<'_, ToolOutcome> {
        Box::pin((self.function)(input, context))
    }
}
