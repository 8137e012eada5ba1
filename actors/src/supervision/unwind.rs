//! Refuses a build whose panics abort: a supervisor that takes the whole process with the first panic of a child
//! supervises nothing. It names nothing else of this crate, so that a test can compile it by itself.

#[cfg(panic = "abort")]
compile_error!("conjure-actors contains panics by unwinding: build with `panic = \"unwind\"`, the default");
