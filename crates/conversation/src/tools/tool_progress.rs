//! The progress of a running call, as its tool reports it. It is a preview: it is not recorded, and some of it may be lost.

use std::fmt;
use std::sync::Arc;

use conjure_base::CallId;

/// The progress of a running call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProgress {
    /// The call.
    pub call_id: CallId,
    /// The completed amount, in the tool's own unit.
    pub done: f64,
    /// The total amount, in the same unit; `None` if it is not known.
    pub total: Option<f64>,
    /// A short message of the tool; may be empty. It comes from the tool, so it is not trusted.
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

/// Formats a number with few digits.
fn number(value: f64) -> String {
    if value.abs() < 1e15 { value.to_string() } else { format!("{value:e}") }
}

/// Receives the progress reports of a tool. The default discards them.
#[derive(Clone, Default)]
pub struct ProgressSink(Option<Arc<dyn Fn(ToolProgress) + Send + Sync>>);

impl ProgressSink {
    /// A sink that passes each report to a function, which must not block.
    #[must_use]
    pub fn new(report: impl Fn(ToolProgress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(report)))
    }

    /// Reports the progress of the call.
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
