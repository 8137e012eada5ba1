//! Runs blocking work on Tokio's blocking threads. A panic becomes an error.

use std::any::Any;

use tokio::sync::oneshot;

/// Why blocking work has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockingError {
    /// The work panicked, with this message. It may contain secrets, so it is not part of the error's text.
    #[error("the work panicked")]
    Panicked(String),
    /// The runtime was shut down before the work began.
    #[error("the runtime was shut down")]
    Cancelled,
}

/// Runs blocking work. Work whose future is dropped still runs to its end.
///
/// # Errors
/// See [`BlockingError`].
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BlockingError> {
    // The thread gets the work as one type, whatever it is: Tokio's code for a task is then compiled once, not for each caller.
    let (sender, receiver) = oneshot::channel();
    let work: Box<dyn FnOnce() + Send> = Box::new(move || drop(sender.send(work())));
    match tokio::task::spawn_blocking(work).await {
        Ok(()) => receiver.await.map_err(|_| BlockingError::Cancelled),
        Err(error) => Err(match error.try_into_panic() {
            Ok(panic) => BlockingError::Panicked(panic_message(&*panic).to_owned()),
            Err(_) => BlockingError::Cancelled,
        }),
    }
}

/// The message of a panic, if it is text.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&'static str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_with_its_message() {
        let name = "file";
        let formatted = run_blocking(move || assert!(name.is_empty(), "no {name}")).await;
        let literal = run_blocking(|| -> () { panic!("nothing") }).await;
        let other = run_blocking(|| -> () { std::panic::panic_any(7) }).await;
        for (result, message) in [(formatted, "no file"), (literal, "nothing"), (other, "no message")] {
            assert_eq!(result, Err(BlockingError::Panicked(message.to_owned())));
        }
    }

    #[test]
    fn work_is_cancelled_when_the_runtime_is_shut_down() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let _entered = handle.enter();
        assert_eq!(run_blocking(|| ()).now_or_never(), Some(Err(BlockingError::Cancelled)));
    }
}
