//! What a session has and shows, and how it changes between turns.

mod artifacts;
mod events;
mod fork;
mod model_change;
mod view;
