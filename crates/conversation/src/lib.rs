//! A conversation with tools as a pure machine, and the one driver over it.
//!
//! The machine ([`decide`], [`apply`], [`next`]) knows no clock, no randomness and no I/O: all arrive as values.
//! The traits [`Model`], [`Composer`], [`ToolRunner`] and [`Ledger`] are its rim; [`run_turn`] connects them.
//!
//! ```
//! use conjure_base::Timestamp;
//! use conjure_conversation::{Block, Command, CommandKind, Limits, State, Step, apply, decide, next};
//!
//! let mut state = State::default();
//! let input = vec![Block::text("Which region grew fastest?")];
//! let kind = CommandKind::StartTurn { input, limits: Limits::default() };
//! for event in decide(&state, Command { at: Timestamp::default(), kind })? {
//!     // Here a ledger records the event; applying every recorded event rebuilds the state.
//!     apply(&mut state, &event);
//! }
//! assert_eq!(next(&state), Step::CallModel);
//! assert_eq!(state.messages().len(), 1);
//! # Ok::<(), conjure_conversation::Rejection>(())
//! ```

mod content;
mod message;
mod stop;
mod tool;
mod usage;

pub mod pairing;

mod artifact;
mod command;
mod event;
mod files;
mod hosted;
mod limits;
mod profile;
mod queue;
mod standing;
mod state;

mod apply;
mod compaction;
mod machine;

mod compose;
mod ledger;
mod model;
mod preparation;
mod runner;
mod summary;

mod answer;
mod conversation;
mod driver;
mod inbox;
mod rejected;
mod run_loop;
mod schedule;
mod service_tools;
mod session_event;

#[cfg(feature = "scripted")]
pub mod scripted;

pub use answer::{
    ParseError, conversation_complete, extract_tool_uses, format_tool_results, format_tool_results_message,
    parse_response,
};
pub use apply::apply;
pub use artifact::{
    ARTIFACT_LIMIT, Artifact, ArtifactContent, ArtifactName, ArtifactNameError, ArtifactSource,
    ContentTypeOrigin, FetchedArtifact, UploadedArtifact,
};
pub use command::{ArtifactChange, Command, CommandKind, InterruptCause, Rejection, StartedCall};
pub use compaction::{CompactionError, CompactionPolicy};
pub use compose::{Composer, Composition};
pub use content::{Block, BlockError, BlockKind};
pub use conversation::{Conversation, Observer, SubmitError};
pub use driver::{DriveError, Rim, TurnOptions, TurnOutcome, run_turn};
pub use event::{Decision, EVENT_FORMAT, Event, EventKind, ToolOutcome, TurnStop};
pub use files::{Completeness, FILE_LIMIT, FileChange, FileSource, SessionFile};
pub use hosted::{HostedFiles, HostedSkill, HostedSource, Hosting, LATEST};
pub use inbox::{Post, PostKind, Receipt};
pub use ledger::{Ledger, LedgerError, MemoryLedger};
pub use limits::{Limit, Limits};
pub use machine::{Step, decide, next};
pub use message::{Message, Role};
pub use model::{
    ApiErrorKind, CallEffects, Model, ModelError, ModelErrorKind, ModelEvent, ModelStream, Request, Response,
    model_fn,
};
pub use pairing::PairingError;
pub use preparation::Preparation;
pub use profile::{Activation, Delivery, PinnedSkill, Profile, Withheld};
pub use queue::{QUEUE_LIMIT, QueueId, QueuedInput};
pub use run_loop::{LoopError, LoopOptions, LoopOutcome, run_loop};
pub use runner::{Access, Authorization, CallContext, CallTraits, ToolRunner};
pub use schedule::{CANCEL_GRACE, execute_tool_calls};
pub use session_event::{
    SESSION_EVENT_SCHEMA, SessionEvent, SessionEventKind, SessionStopReason, session_events,
};
pub use standing::{Grant, GrantScope, Standing};
pub use state::{Approval, CallStatus, FinishedTurn, OpenCall, State, Turn};
pub use stop::{AfterAnswer, StopReason};
pub use summary::{Compaction, ModelSummarizer, SUMMARY_PROMPT, Summarizer, Summary};
pub use tool::{INVALID_JSON, ResultContent, ToolCall, ToolDefinition, ToolEnding, ToolResult};
pub use usage::Usage;
