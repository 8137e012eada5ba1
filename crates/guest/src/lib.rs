//! The program inside every sandbox, and the protocol that it speaks with its host.
//!
//! The library is the protocol; it depends on nothing but serde, so that the host's side can use it alone.
//! The program (`src/main.rs`, feature `program`, Linux) is built into `conjure-sandbox`.

pub mod protocol;
