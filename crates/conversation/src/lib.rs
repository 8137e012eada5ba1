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

mod block;
mod message;
mod native;
mod stop_reason;
mod tool;

pub mod pairing;

mod agent_toolset;
mod artifact;
mod call_answer;
mod command;
mod event;
mod hosted;
mod input_request;
mod limits;
mod pinned_skill;
mod profile_change;
mod queue;
mod session_file;
mod session_profile;
mod session_state;
mod session_view;

mod apply;
mod compaction;
mod machine;

mod composer;
mod event_log;
mod fork;
mod model;
mod summary;
mod tool_progress;
mod tool_runner;
mod tool_server;

mod conversation;
mod driver;
mod inbox;
mod rejected_block;
mod response_helpers;
mod run_loop;
mod server_tools;
mod session_event;
mod session_overview;
mod tool_batch;

#[cfg(feature = "scripted")]
pub mod scripted;

pub use agent_toolset::{AgentToolset, PermissionPolicy, ToolsetTool};
pub use apply::apply;
pub use artifact::{
    ARTIFACT_LIMIT, Artifact, ArtifactContent, ArtifactName, ArtifactNameError, ArtifactSource,
    ContentTypeOrigin, FetchedArtifact, UploadedArtifact,
};
pub use block::{Block, BlockError, BlockKind};
pub use command::{ArtifactChange, Command, CommandKind, InterruptCause, Rejection, StartedCall};
pub use compaction::{CompactionError, CompactionPolicy};
pub use composer::{Composer, PromptPrefix};
pub use conversation::{Conversation, ConversationObserver, SubmitError};
pub use driver::{DriveError, PreCallHook, TurnOptions, TurnOutcome, TurnServices, run_turn};
pub use event::{CallOutcome, Decision, EVENT_FORMAT, Event, EventKind, ResultFrom, TurnStop};
pub use event_log::{EventLog, EventLogError, MemoryEventLog};
pub use fork::{ForkError, ForkPoint, fork_events};
pub use hosted::{HostedFiles, HostedSkill, HostedSource, HostedSupport, LATEST};
pub use inbox::{InboxMessage, InboxMessageKind, Receipt};
pub use input_request::{
    INPUT_ROUNDS, InputAnswer, InputAnswers, InputForm, InputQuestion, InputRequest, ProvidedInput,
};
pub use limits::{Limit, Limits};
pub use machine::{Step, decide, next};
pub use message::{Message, Role};
pub use model::{
    ApiErrorKind, Model, ModelError, ModelErrorKind, ModelEvent, ModelStream, Request, Response, SideEffects,
    Usage, model_fn,
};
pub use native::{ModelApi, NativeContent, NativeItem, Origin};
pub use pairing::PairingError;
pub use pinned_skill::PinnedSkill;
pub use profile_change::ProfileChange;
pub use queue::{QUEUE_LIMIT, QueueId, QueuedInput};
pub use response_helpers::{
    ParseError, conversation_complete, extract_tool_uses, format_tool_results, format_tool_results_message,
    parse_response,
};
pub use run_loop::{LoopError, LoopOptions, LoopOutcome, run_loop};
pub use session_event::{
    EvaluatedPermission, EventId, EventIdError, EventProjection, RequiredAction, RequiredNeed,
    SESSION_EVENT_SCHEMA, SessionEvent, SessionEventKind, SessionStopReason, merge_events,
};
pub use session_file::{Completeness, FILE_LIMIT, FileChange, FileSource, SessionFile};
pub use session_overview::{OverviewStatus, SessionOverview, TextHead};
pub use session_profile::{SecretNames, SessionProfile, SkillActivation, SkillDelivery};
pub use session_state::{
    ActionNeed, Approval, CallStatus, FinishedTurn, OpenCall, PendingAction, RunningTurn, SessionState,
};
pub use session_view::{Grant, GrantScope, SessionView};
pub use stop_reason::{AfterResponse, StopReason};
pub use summary::{Compaction, ModelSummarizer, SUMMARY_PROMPT, Summarizer, Summary};
pub use tool::{INVALID_JSON, ResultContent, ToolCall, ToolDefinition, ToolEnding, ToolResult};
pub use tool_batch::{CANCEL_GRACE, execute_tool_calls};
pub use tool_progress::{ProgressSink, ToolProgress};
pub use tool_runner::{
    Authorization, AwaitedResult, CallConcurrency, CallContext, CallTraits, ToolRunOutcome, ToolRunner,
};
pub use tool_server::{RemoteToolServer, ToolRule, ToolServerFailure, tool_servers_note};
