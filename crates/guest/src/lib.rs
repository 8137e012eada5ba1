//! The program in every sandbox, and the protocol between it and the host.
//!
//! The library contains only the protocol. It depends only on serde, so the host can use it alone. The program
//! (`src/main.rs`, feature `program`, Linux) is built into `conjure-sandbox`.

pub mod protocol;
