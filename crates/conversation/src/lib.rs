//! A conversation with tools as a pure state machine, and the driver that runs it.
//!
//! The state machine ([`decide`], [`apply`], [`next`]) has no clock, no randomness and no I/O: all of these arrive as values.
//! The traits [`Model`], [`Composer`], [`ToolRunner`] and [`EventLog`] are the ports that the driver ([`run_turn`]) calls.
//!
//! ```
//! use conjure_base::Timestamp;
//! use conjure_conversation::{Block, Command, CommandKind, Limits, SessionState, Step, apply, decide, next};
//!
//! let mut state = SessionState::default();
//! let input = vec![Block::text("Which region grew fastest?")];
//! let kind = CommandKind::StartTurn { input, limits: Limits::default() };
//! for event in decide(&state, Command { at: Timestamp::default(), kind })? {
//!     // Here an event log records the event; applying every recorded event rebuilds the state.
//!     apply(&mut state, &event);
//! }
//! assert_eq!(next(&state), Step::CallModel);
//! assert_eq!(state.messages().len(), 1);
//! # Ok::<(), conjure_conversation::Rejection>(())
//! ```

mod compaction;
mod content;
mod events;
mod machine;
mod session;
mod state;
mod tools;

mod composer;
mod model;
mod summary;

mod driver;
mod session_event;

#[cfg(feature = "scripted")]
pub mod scripted;

pub use compaction::{CompactionError, CompactionPolicy};
pub use composer::{Composer, PromptPrefix};
pub use content::block::{Block, BlockError, BlockKind};
pub use content::message::{Message, Role};
pub use content::native::{ModelApi, NativeContent, NativeItem, Origin};
pub use content::pairing;
pub use content::pairing::PairingError;
pub use content::response_helpers::{
    ParseError, conversation_complete, extract_tool_uses, format_tool_results, format_tool_results_message,
    parse_response,
};
pub use content::stop_reason::{AfterResponse, StopReason};
pub use driver::batch_cancellation::CANCEL_GRACE;
pub use driver::conversation::{Conversation, ConversationObserver, SubmitError};
pub use driver::inbox::{InboxMessage, InboxMessageKind, Receipt};
pub use driver::run_loop::{LoopError, LoopOptions, LoopOutcome, run_loop};
pub use driver::tool_batch::execute_tool_calls;
pub use driver::{DriveError, PreCallHook, TurnOptions, TurnOutcome, TurnServices, run_turn};
pub use events::call_outcome::{CallOutcome, Decision, ResultFrom};
pub use events::event::{EVENT_FORMAT, Event, EventKind};
pub use events::event_log::{EventLog, EventLogError, MemoryEventLog};
pub use events::fork::{ForkError, ForkPoint, fork_events};
pub use events::turn_stop::TurnStop;
pub use machine::command::{Command, CommandKind, InterruptCause, Rejection, StartedCall};
pub use machine::{Step, decide, next};
pub use model::{
    ApiErrorKind, Model, ModelError, ModelErrorKind, ModelEvent, ModelStream, Request, Response, SideEffects,
    Usage, model_fn,
};
pub use session::artifact::{
    ARTIFACT_LIMIT, Artifact, ArtifactContent, ArtifactName, ArtifactNameError, ArtifactSource,
    ContentTypeOrigin, FetchedArtifact, UploadedArtifact,
};
pub use session::grant::{Grant, GrantScope};
pub use session::hosted::{HostedFiles, HostedSkill, HostedSource, HostedSupport, LATEST};
pub use session::pinned_skill::PinnedSkill;
pub use session::profile_change::ProfileChange;
pub use session::queue::{QUEUE_LIMIT, QueueId, QueuedInput};
pub use session::session_file::{Completeness, FILE_LIMIT, FileChange, FileSource, SessionFile};
pub use session::session_overview::{OverviewStatus, SessionOverview, TextHead};
pub use session::session_profile::{SecretNames, SessionProfile, SkillActivation, SkillDelivery};
pub use session::session_view::SessionView;
pub use session_event::{
    EvaluatedPermission, EventId, EventIdError, EventProjection, RequiredAction, RequiredNeed,
    SESSION_EVENT_SCHEMA, SessionEvent, SessionEventKind, SessionStopReason, merge_events,
};
pub use state::apply::apply;
pub use state::limits::{Limit, Limits};
pub use state::open_call::{ActionNeed, Approval, CallStatus, OpenCall, PendingAction};
pub use state::running_turn::{FinishedTurn, RunningTurn};
pub use state::session_state::SessionState;
pub use summary::{Compaction, ModelSummarizer, SUMMARY_PROMPT, Summarizer, Summary};
pub use tools::agent_toolset::{AgentToolset, PermissionPolicy, ToolsetTool};
pub use tools::input_request::{
    INPUT_ROUNDS, InputAnswer, InputAnswers, InputForm, InputQuestion, InputRequest, ProvidedInput,
};
pub use tools::tool::{INVALID_JSON, ResultContent, ToolCall, ToolDefinition, ToolEnding, ToolResult};
pub use tools::tool_progress::{ProgressSink, ToolProgress};
pub use tools::tool_runner::{
    Authorization, AwaitedResult, CallConcurrency, CallContext, CallTraits, ToolRunOutcome, ToolRunner,
};
pub use tools::tool_server::{RemoteToolServer, ToolRule, ToolServerFailure, tool_servers_note};
