//! Errors of script files. An error while a script is used is a
//! [`ModelError`](crate::ModelError) of kind [`Script`](crate::ModelErrorKind::Script).

use std::io;
use std::path::PathBuf;

/// A script that cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The file cannot be opened or read.
    #[error("cannot read the script `{}`: {source}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The path is a directory, a device or a pipe.
    #[error("the script `{}` is not a regular file; name a `.yaml`, `.yml` or `.json` file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file name has no known extension.
    #[error("the script `{}` must end in `.yaml`, `.yml` or `.json`, so that its format is known", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// The script is too large.
    #[error(
        "the script `{script}` is larger than {limit} bytes; split it, or write it as JSON, which may be larger than YAML"
    )]
    TooLarge {
        /// The script.
        script: String,
        /// The limit of its format, in bytes.
        limit: usize,
    },
    /// The file is not UTF-8.
    #[error("the script `{script}` is not UTF-8: byte {offset} is wrong; save it as UTF-8")]
    NotUtf8 {
        /// The script.
        script: String,
        /// The offset of the first invalid byte, from 0.
        offset: usize,
    },
    /// The format version is not supported.
    #[error("the script `{script}` has version {found}, and this program reads version 1; {remedy}")]
    Version {
        /// The script.
        script: String,
        /// Its version.
        found: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// The text does not follow the format.
    #[error("the script `{script}` is wrong: {reason}")]
    Invalid {
        /// The script.
        script: String,
        /// The error, with the turn, the field, the line and the column as far as they are known.
        reason: String,
    },
}
