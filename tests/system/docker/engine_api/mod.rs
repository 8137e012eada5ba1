//! What is asked of an engine, with engines that answer as a test wants.

mod bad_engines;
mod fake;
mod gate;
