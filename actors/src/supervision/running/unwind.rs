//! Refuses to compile with `panic = "abort"`, where the first panic of a child would end the whole process. This file
//! uses nothing else of the crate, so a test can compile it alone.

#[cfg(panic = "abort")]
compile_error!("conjure-actors contains panics by unwinding: build with `panic = \"unwind\"`, the default");
