//! What is brought about before the model is called, by somebody besides the driver: its service is given artifacts, for one.
//!
//! It is work of the turn: the driver takes in meanwhile what is sent to the session, and the turn's limits of time end it. A crash loses
//! what was not submitted, and it is asked for anew.

use futures_util::stream::BoxStream;

use crate::command::CommandKind;
use crate::state::State;

/// Says what is to be done before a model call.
pub trait Preparation: Send + Sync {
    /// What is to be done in this state; `None` where the model may be called. The driver submits what the stream yields, in its order,
    /// and passes over what the machine refuses by then. When the stream has ended it asks again, so an implementation must not find
    /// the same things to do for ever. A stream that is dropped is broken off.
    fn begin(&self, state: &State) -> Option<BoxStream<'static, CommandKind>>;
}

/// There is nothing to do.
impl Preparation for () {
    fn begin(&self, _: &State) -> Option<BoxStream<'static, CommandKind>> {
        None
    }
}
