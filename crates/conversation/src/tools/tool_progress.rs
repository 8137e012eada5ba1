//! How far a running call is, as its tool tells it. A preview: it is not recorded, and some of it may be lost.

use std::fmt;
use std::sync::Arc;

use conjure_base::CallId;

/// How far a running call is.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProgress {
    /// The call.
    pub call_id: CallId,
    /// What is done, in the tool's own unit.
    pub done: f64,
    /// What there is to do, in the same unit; `None` if it is not known.
    pub total: Option<f64>,
    /// What the tool says, in a few words; may be empty. They are the tool's words, and not to be trusted.
    pub message: String,
}

impl fmt::Display for ToolProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", number(self.done))?;
        if let Some(total) = self.total {
            write!(f, " of {}", number(total))?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

/// A number in few digits.
fn number(value: f64) -> String {
    if value.abs() < 1e15 { value.to_string() } else { format!("{value:e}") }
}

/// Where a tool tells how far a call is. The default tells nobody.
#[derive(Clone, Default)]
pub struct ProgressSink(Option<Arc<dyn Fn(ToolProgress) + Send + Sync>>);

impl ProgressSink {
    /// A sink that hands everything to a function, which must not block.
    #[must_use]
    pub fn new(report: impl Fn(ToolProgress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(report)))
    }

    /// Tells how far the call is.
    pub fn report(&self, progress: ToolProgress) {
        if let Some(report) = &self.0 {
            report(progress);
        }
    }
}

impl fmt::Debug for ProgressSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProgressSink").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_short_text() {
        let progress = |done, total, message: &str| ToolProgress {
            call_id: CallId::new("toolu_1"),
            done,
            total,
            message: message.to_owned(),
        };
        assert_eq!(progress(3.0, Some(10.0), "copying").to_string(), "3 of 10: copying");
        assert_eq!(progress(0.5, None, "").to_string(), "0.5");
        assert_eq!(
            progress(f64::MAX, Some(f64::NAN), "").to_string().len(),
            "1.7976931348623157e308 of NaN".len()
        );
    }
}
