//! Runs blocking work on Tokio's blocking threads; a panic becomes an error.
//!
//! Work whose future is dropped still runs to its end.

use std::any::Any;

use crate::error::{ArtifactError, PanicMessage};

/// Runs blocking work.
///
/// # Errors
/// `Panicked` when the work did; `Cancelled` when the runtime is shut down before it begins.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ArtifactError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => ArtifactError::Panicked(PanicMessage::new(panic_message(&*panic))),
        Err(_) => ArtifactError::Cancelled,
    })
}

/// The message of a panic, if it is text.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&'static str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::error::ArtifactErrorKind as Kind;

    #[tokio::test]
    async fn a_panic_is_an_error_that_hides_its_message() {
        let path = "/home/host/secret";
        let formatted =
            run_blocking(move || assert!(path.is_empty(), "nothing at {path}")).await.unwrap_err();
        let literal = run_blocking(|| panic!("nothing")).await.map(|()| "").unwrap_err();
        let other = run_blocking(|| std::panic::panic_any(7)).await.map(|()| "").unwrap_err();
        for (error, said) in
            [(formatted, "nothing at /home/host/secret"), (literal, "nothing"), (other, "no message")]
        {
            assert_eq!((error.kind(), error.is_retryable()), (Kind::Panicked, false));
            assert_eq!(error.source().unwrap().to_string(), said);
            assert!(error.to_string().contains("panicked") && !error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn work_is_cancelled_when_the_runtime_is_shut_down() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let _entered = handle.enter();
        let error = run_blocking(|| ()).now_or_never().unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::Cancelled);
    }
}
