//! Reads whole files of the sandbox into memory, within a limit.

use conjure_sandbox::{CallOptions, Executor, SandboxError, SandboxErrorKind};
use futures_util::StreamExt as _;

use crate::text::quote;

/// The bytes of a file of at most `max` bytes.
///
/// # Errors
/// `TooLarge` when it has more, and those of [`Executor::read`].
pub(super) async fn read_whole(
    executor: &dyn Executor,
    path: &str,
    max: u64,
    options: CallOptions,
) -> Result<Vec<u8>, SandboxError> {
    let mut content = executor.read(path, options).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = content.next().await {
        bytes.extend_from_slice(&piece?);
        if bytes.len() as u64 > max {
            let message = format!("`{}` has more than {max} bytes, which is the maximum here", quote(path));
            return Err(SandboxError::new(SandboxErrorKind::TooLarge, message));
        }
    }
    Ok(bytes)
}
