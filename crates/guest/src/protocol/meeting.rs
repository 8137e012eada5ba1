//! Another stream than the standard ones: a socket of the host's.
//!
//! Started as `conjure-guest connect PATH`, the guest connects to the socket at that path before anything else, and speaks on
//! that stream. Where it cannot connect, which some runtimes and security modules forbid, it says [`NOT_MET`] on its standard
//! output and speaks on the standard streams, as it does without an argument. So the host knows which of the two it is
//! before it says a word.

/// The first argument of a guest that is to connect; the second is the socket's path.
pub const CONNECT: &str = "connect";

/// What a guest says first that could not connect; its frames follow. One that could says nothing there.
pub const NOT_MET: u8 = 0xff;
