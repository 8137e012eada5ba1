//! The progress of a build.

use std::sync::Mutex;

use conjure_base::lock;

/// A progress report of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageProgress {
    /// The current step.
    Step(String),
    /// A line of a program or of the engine. It is untrusted.
    Line(String),
    /// How many bytes of the image were sent to the engine.
    Sent(u64),
}

/// Reports progress to the caller. Concurrent parts of a build share it.
pub(super) struct ProgressReporter<'l> {
    listener: Mutex<&'l mut (dyn FnMut(ImageProgress) + Send)>,
}

impl<'l> ProgressReporter<'l> {
    pub(super) fn to(listener: &'l mut (dyn FnMut(ImageProgress) + Send)) -> Self {
        Self { listener: Mutex::new(listener) }
    }

    pub(super) fn step(&self, text: impl Into<String>) {
        self.report(ImageProgress::Step(text.into()));
    }

    /// Reports a line that is not empty.
    pub(super) fn line(&self, text: &str) {
        let text = text.trim_end();
        if !text.is_empty() {
            self.report(ImageProgress::Line(text.to_owned()));
        }
    }

    pub(super) fn sent(&self, bytes: u64) {
        self.report(ImageProgress::Sent(bytes));
    }

    fn report(&self, progress: ImageProgress) {
        // A panic of the listener does not stop later reports.
        let mut listener = lock(&self.listener);
        listener(progress);
    }
}
