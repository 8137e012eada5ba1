//! A conversation with tools as a pure machine, and the one driver over it.
//!
//! The machine (`decide`, `apply`, `next`) knows no clock, no randomness and no I/O: all arrive as values.
//! The traits [`Model`], [`Composer`], [`ToolRunner`] and [`Ledger`] are its rim; the driver connects them.

mod compose;
mod content;
mod ledger;
mod message;
mod model;
mod runner;
mod stop;
mod tool;
mod usage;

pub use compose::{Composer, Composition};
pub use content::{Block, BlockError, BlockKind};
pub use ledger::{Ledger, LedgerError};
pub use message::{Message, Role};
pub use model::{
    ApiErrorKind, Model, ModelError, ModelErrorKind, ModelEvent, ModelStream, Request, Response, model_fn,
};
pub use runner::{Access, Authorization, CallContext, CallTraits, ToolRunner};
pub use stop::{AfterAnswer, StopReason};
pub use tool::{ResultContent, ToolCall, ToolDefinition, ToolResult};
pub use usage::Usage;
