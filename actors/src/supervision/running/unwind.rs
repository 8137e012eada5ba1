//! Refuses to compile if panics abort: then the first panic of a child would end the whole process. It uses nothing
//! else of this crate, so a test can compile it alone.

#[cfg(panic = "abort")]
compile_error!("conjure-actors contains panics by unwinding: build with `panic = \"unwind\"`, the default");
