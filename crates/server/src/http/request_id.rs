//! The id of a request.

use std::fmt;

use conjure_base::SessionId;

/// The id of a request: in the header `request-id`, in error bodies and in the audit line.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(String);

impl RequestId {
    /// A new one from the machine's entropy.
    pub(crate) fn random() -> Self {
        // Without entropy, requests cannot be told apart by their ids, and are answered all the same.
        let random = SessionId::random().map_or_else(|_| String::new(), |id| id.to_string());
        let (_, digits) = random.rsplit_once('_').unwrap_or_default();
        Self(format!("req_{digits}"))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
