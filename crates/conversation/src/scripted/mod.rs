//! A model whose words come from a file, and the recorder that writes such files.
//!
//! Demonstrations, tests and benchmarks need a model that costs nothing and says the same thing each time. A
//! *script* is a list of turns, each one model call: what the model says, how it stops, what goes wrong, and
//! what it expects to have been sent. The tools it calls are real; so that its words can be true of their real
//! results, texts and tool inputs may *quote* what was sent (`{{result:last | match:'total: (\d+)'}}`).
//!
//! - [`Script`] is the parsed file: immutable, bounded in size, checked when it is loaded.
//! - [`ScriptedModel`] answers with it. Its only state is the position in the script, in memory; a program that
//!   revives a session after a crash gives it again with [`ScriptedModel::starting_at`].
//! - [`Recorder`] wraps any model and writes down its answers as a script, after each call, atomically.
//!
//! The format is described for its writers in `fixtures/scripts/README.md`.

mod error;
mod expect;
mod load;
mod model;
mod pieces;
mod quote;
mod recorder;
mod recording_file;
mod redacted;
mod sent;
mod template;
#[cfg(test)]
mod tests;
mod turn;

pub use error::ScriptError;
pub use load::{MAX_TURNS, Script, ScriptFormat};
pub use model::ScriptedModel;
pub use recorder::{RecordError, Recorder};
pub use sent::request_digest;
