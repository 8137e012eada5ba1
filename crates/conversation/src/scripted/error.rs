//! What can be wrong with the file of a script. What goes wrong while it is played is a
//! [`ModelError`](crate::ModelError) of kind [`Script`](crate::ModelErrorKind::Script).

use std::io;
use std::path::PathBuf;

/// A script that cannot be loaded: which file, where in it, and how to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The file cannot be opened or read.
    #[error("cannot read the script `{}`: {source}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory, a device, a pipe.
    #[error("the script `{}` is not a regular file; name a `.yaml`, `.yml` or `.json` file", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// The file's name does not say what it holds.
    #[error("the script `{}` must end in `.yaml`, `.yml` or `.json`, so that its format is known", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// More text than a script may have.
    #[error(
        "the script `{script}` is larger than {limit} bytes; split it, or write it as JSON, which may be larger than YAML"
    )]
    TooLarge {
        /// The script.
        script: String,
        /// What a script of its format may have, in bytes.
        limit: usize,
    },
    /// Not text.
    #[error("the script `{script}` is not UTF-8: byte {offset} is wrong; save it as UTF-8")]
    NotUtf8 {
        /// The script.
        script: String,
        /// Where the first wrong byte lies, from 0.
        offset: usize,
    },
    /// Written for a later version of the format, or for none.
    #[error("the script `{script}` has version {found}, and this program reads version 1; {remedy}")]
    Version {
        /// The script.
        script: String,
        /// What it says.
        found: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// Its text does not follow the format.
    #[error("the script `{script}` is wrong: {reason}")]
    Invalid {
        /// The script.
        script: String,
        /// The turn, the field, line and column where they are known, and what is wrong.
        reason: String,
    },
}
