//! Reads and writes in chunks, and converts I/O errors.

use std::io::{self, Read, Write};

use conjure_guest::protocol::GuestError;

use crate::error;

/// The size of reads and writes.
pub(super) const CHUNK_LEN: usize = 64 * 1024;

/// Converts an I/O error on `path`.
pub(super) fn io_failure(error: &io::Error, path: &str, doing: &str) -> GuestError {
    match rustix::io::Errno::from_io_error(error) {
        Some(errno) => error::file_error(errno, path, doing),
        None => error::io(format!("cannot {doing} `{path}`: {error}")),
    }
}

/// Copies at most `limit` bytes, and returns how many.
pub(super) fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    limit: u64,
    path: &str,
    doing: &str,
) -> Result<u64, GuestError> {
    let mut chunk = vec![0; CHUNK_LEN];
    let mut passed = 0;
    while passed < limit {
        let write_budget = usize::try_from(limit - passed).unwrap_or(CHUNK_LEN).min(CHUNK_LEN);
        let Some(buffer) = chunk.get_mut(..write_budget) else { break };
        let length = match from.read(buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(io_failure(&error, path, doing)),
        };
        to.write_all(buffer.get(..length).unwrap_or_default())
            .map_err(|error| io_failure(&error, path, doing))?;
        passed += length as u64;
    }
    Ok(passed)
}
