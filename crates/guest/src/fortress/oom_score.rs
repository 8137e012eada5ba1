//! Who dies first when memory runs out: commands, and the guest last.
//!
//! The score is inherited by children, and only a process itself can set it; a shim cannot, being closed to debuggers
//! as the guest is. So the guest raises its own for the moment in which it forks. State: the handle of its score.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// How much commands are preferred as victims: by half of the memory that there is.
const RAISED: i32 = 500;

/// The score of this process.
#[derive(Debug)]
pub(crate) struct OomScore {
    /// `None` where it cannot be set, or is high enough already.
    file: Option<File>,
    resting: i32,
}

impl OomScore {
    /// Must be opened before this process is closed to debuggers.
    pub(crate) fn open() -> Self {
        let path = "/proc/self/oom_score_adj";
        let resting =
            std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let file = File::options().write(true).open(path).ok().filter(|_| resting < RAISED);
        Self { file, resting }
    }

    /// Runs `fork`, whose child is preferred as a victim.
    pub(crate) fn raised<T>(&self, fork: impl FnOnce() -> T) -> T {
        self.set(RAISED);
        let forked = fork();
        self.set(self.resting);
        forked
    }

    fn set(&self, score: i32) {
        if let Some(file) = &self.file {
            // Lowering it to what it was needs no privilege.
            let _ = file.write_at(score.to_string().as_bytes(), 0);
        }
    }
}
