//! The mode of a stored file.

use rustix::fs::Mode;

/// Whether a content is executable. The mode belongs to the file, so each mode of a content is a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileMode {
    /// Mode 0444.
    Plain,
    /// Mode 0555.
    Executable,
}

impl FileMode {
    pub(crate) const ALL: [Self; 2] = [Self::Plain, Self::Executable];

    /// The store's directory for files of this mode.
    pub(crate) const fn dir_name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Executable => "executable",
        }
    }

    pub(crate) const fn permissions(self) -> Mode {
        match self {
            Self::Plain => Mode::from_raw_mode(0o444),
            Self::Executable => Mode::from_raw_mode(0o555),
        }
    }
}
