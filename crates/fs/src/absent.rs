//! Files and directories that need not exist.

use std::fs;
use std::io;
use std::path::Path;

/// Turns "not found" into `None`.
///
/// # Errors
/// Every other error.
pub fn ignore_absent<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

/// The names in a directory that are UTF-8, in any order. Without the directory there are none.
///
/// # Errors
/// If the directory exists and cannot be read.
pub fn names_in(dir: &Path) -> io::Result<Vec<String>> {
    let entries = ignore_absent(fs::read_dir(dir))?.into_iter().flatten();
    entries.filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose()).collect()
}
