//! Turns: what is sent, decided, answered and heard.

mod approvals;
mod listening;
mod model_change;
mod overload;
mod talking;
mod whole;
