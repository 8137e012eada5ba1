//! Work that blocks, where it harms nobody: the one place from which this crate starts some.
//!
//! It owns no state. Work whose future is dropped goes on to its end, which is near.

use std::any::Any;

use crate::error::{ArtifactError, PanicMessage};

/// Does what blocks on a thread that may.
///
/// # Errors
/// `Panicked` when the work did; `Cancelled` when the runtime is shut down before it begins.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ArtifactError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => ArtifactError::Panicked(PanicMessage::new(said(&*panic))),
        Err(_) => ArtifactError::Cancelled,
    })
}

/// What a panic said, where that is text.
fn said(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&'static str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it said nothing")
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::error::ArtifactErrorKind as Kind;

    #[tokio::test]
    async fn a_panic_is_told_as_one_and_not_in_the_words_of_the_host() {
        let path = "/home/host/secret";
        let formatted = blocking(move || assert!(path.is_empty(), "nothing at {path}")).await.unwrap_err();
        let literal = blocking(|| panic!("nothing")).await.map(|()| "").unwrap_err();
        let other = blocking(|| std::panic::panic_any(7)).await.map(|()| "").unwrap_err();
        for (error, said) in
            [(formatted, "nothing at /home/host/secret"), (literal, "nothing"), (other, "it said nothing")]
        {
            assert_eq!((error.kind(), error.is_retryable()), (Kind::Panicked, false));
            assert_eq!(error.source().unwrap().to_string(), said);
            assert!(error.to_string().contains("panicked") && !error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn where_the_runtime_is_shut_down_work_is_called_off() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let _entered = handle.enter();
        let error = blocking(|| ()).now_or_never().unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::Cancelled);
    }
}
