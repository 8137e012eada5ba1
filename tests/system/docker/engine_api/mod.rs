//! The engine API, with fake engines.

mod bad_engines;
mod fake_engine;
mod gate;
