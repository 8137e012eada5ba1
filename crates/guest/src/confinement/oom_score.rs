//! The out-of-memory score: the kernel kills commands first, and the guest last.
//!
//! Children inherit the score, and only the process itself can set it. A shim cannot, because it is not dumpable,
//! like the guest. So the guest raises its own score while it forks. State: the handle of its score file.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The score of commands: they count as if they used half of the memory more.
const RAISED: i32 = 500;

/// The out-of-memory score of this process.
#[derive(Debug)]
pub(crate) struct OomScore {
    /// `None` when it cannot be set, or is high enough already.
    file: Option<File>,
    default_score: i32,
}

impl OomScore {
    /// Opens the score file. Call it before this process becomes non-dumpable.
    pub(crate) fn open() -> Self {
        let path = "/proc/self/oom_score_adj";
        let resting =
            std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let file = File::options().write(true).open(path).ok().filter(|_| resting < RAISED);
        Self { file, default_score: resting }
    }

    /// Runs `fork` with a raised score, which the child inherits.
    pub(crate) fn with_raised_score<T>(&self, fork: impl FnOnce() -> T) -> T {
        self.set(RAISED);
        let forked = fork();
        self.set(self.default_score);
        forked
    }

    fn set(&self, score: i32) {
        if let Some(file) = &self.file {
            // Restoring the former score needs no privilege.
            let _ = file.write_at(score.to_string().as_bytes(), 0);
        }
    }
}
