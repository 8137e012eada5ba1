//! The parts that the fakes of all services share: the server, the request log, the replies, and the choice of a reply.
//!
//! The fake of one service implements [`FakeService`]: it checks requests and writes answers ([`WireAnswer`]) and errors ([`WireError`]).
//! It has its own reply type around [`FakeReply`], and a builder around [`FakeSettings`].
//!
//! **Choosing the turn.** The fake derives the position in a script from the request's history, not from a counter. So a client that
//! repeats a request, loses a response, or restarts gets the turn that fits its history. Any number of sessions can play one script at
//! once.
//!
//! - The fake records which turn follows which position. For an unknown history it counts the answers.
//! - A failed turn (an error, a cut) leaves no trace in a history, so the fake records it as played. The next request from the same
//!   position gets the turn after it.
//!
//! All state is in memory and ends with the fake.

mod paced_body;
mod request_log;

mod reply;
mod reply_methods;
mod reply_router;

mod server;
mod service;
mod settings;

pub use paced_body::BodyPacing;
pub use reply::{Ending, FakeReply, ReplyBody, WireAnswer, WireError, response_of, split};
pub use reply_router::{HistoryPosition, ReplyRouter, ReplySource};
pub use request_log::RecordedRequest;
pub use server::FakeServer;
pub use service::{AnswerContext, FakeService, FakeState, ReceivedRequest, ReplyOf};
pub use settings::FakeSettings;
