//! Turns under the driver: tool calls, limits, cancellation, and results from outside.

mod cancellation;
mod driver;
mod external_answers;
mod limits;
mod tools;
