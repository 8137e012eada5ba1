//! A model that answers from a script file, and the recorder that writes such files.
//!
//! Demonstrations, tests and benchmarks need a model that is free and deterministic. A *script* is a list of turns, one for each model
//! call: the content, the stop reason, errors, and what the request must contain. The tools that it calls are real. So texts and tool
//! inputs may have *expressions* that quote the request (`{{result:last | match:'total: (\d+)'}}`).
//!
//! - [`Script`] is the parsed file: immutable, bounded in size, and checked when it is loaded.
//! - [`ScriptedModel`] answers from it. Its only state is the position in the script, in memory. A program that revives a session after a
//!   crash sets the position with [`ScriptedModel::starting_at`].
//! - [`Recorder`] wraps any model and writes its responses to a script, after each call, atomically.
//!
//! `fixtures/scripts/README.md` describes the format.

mod error;
mod expectation;
mod expression;
mod model;
mod recorder;
mod recording_file;
mod redaction;
mod request_view;
mod script;
mod script_turn;
mod template;
#[cfg(test)]
mod tests;

pub use error::ScriptError;
pub use model::ScriptedModel;
pub use recorder::{RecordError, Recorder};
pub use request_view::request_digest;
pub use script::{MAX_TURNS, Script, ScriptFormat};
