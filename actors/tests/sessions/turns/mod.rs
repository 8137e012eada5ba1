//! Turns: what is sent, decided, answered and heard.

mod approvals;
mod end_to_end;
mod messages;
mod model_change;
mod overload;
mod subscriptions;
