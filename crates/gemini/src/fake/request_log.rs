//! The log of received requests, for tests.

use std::collections::VecDeque;

use bytes::Bytes;
use conjure_base::Timestamp;

/// A received request.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub(super) number: u64,
    pub(super) at: Timestamp,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Bytes,
    pub(super) status: Option<u16>,
}

impl RecordedRequest {
    /// Its number among all received requests, from 1.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// When its body was complete, by the fake's clock.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// `POST`.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The path, with its query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The first value of the header of this name, in lower case, if it is a text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(of, _)| of == name)?;
        std::str::from_utf8(value).ok()
    }

    /// All headers, names in lower case, in the order in which they came.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The exact bytes of the body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The status of its response; `None` before the response, or if there is none.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        self.status
    }
}

/// The newest requests, up to a capacity.
#[derive(Debug)]
pub(super) struct RequestLog {
    kept: VecDeque<RecordedRequest>,
    most: usize,
    received: u64,
}

impl RequestLog {
    pub(super) const fn new(most: usize) -> Self {
        Self { kept: VecDeque::new(), most, received: 0 }
    }

    /// Adds a request and returns its number. The oldest is dropped above the capacity.
    pub(super) fn add(&mut self, mut captured: RecordedRequest) -> u64 {
        self.received += 1;
        captured.number = self.received;
        self.kept.push_back(captured);
        while self.kept.len() > self.most {
            self.kept.pop_front();
        }
        self.received
    }

    pub(super) fn set_status(&mut self, number: u64, status: u16) {
        // Numbers are consecutive, so the first one tells where this one is.
        let first = self.kept.front().map_or(0, |captured| captured.number);
        let place = number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        if let Some(captured) = place.and_then(|place| self.kept.get_mut(place)) {
            captured.status = Some(status);
        }
    }

    pub(super) fn all(&self) -> Vec<RecordedRequest> {
        self.kept.iter().cloned().collect()
    }
}
