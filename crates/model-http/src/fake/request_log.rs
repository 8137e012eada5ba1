//! The log of received requests, for tests.

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::Bytes;
use conjure_base::{Timestamp, lock};
use hyper::HeaderMap;
use hyper::http::request::Parts;
use tokio::sync::watch;

/// A received request.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    number: u64,
    at: Timestamp,
    method: String,
    path: String,
    headers: HeaderMap,
    body: Bytes,
    status: Option<u16>,
}

impl RecordedRequest {
    /// The number among all received requests, from 1.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// When the body was complete, by the fake's clock.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// The HTTP method, such as `POST`.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The path, with its query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The first value of a header, if it is a text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.headers.get(name)?.as_bytes()).ok()
    }

    /// All headers, names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
    }

    /// The exact bytes of the body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The status of the response; `None` before the response, or if there is none.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        self.status
    }
}

/// The newest requests, up to a capacity.
#[derive(Debug)]
pub(super) struct RequestLog {
    requests: Mutex<VecDeque<RecordedRequest>>,
    capacity: usize,
    received: watch::Sender<u64>,
}

impl RequestLog {
    pub(super) fn new(capacity: usize) -> Self {
        Self { requests: Mutex::default(), capacity, received: watch::Sender::new(0) }
    }

    /// Adds a request and returns its number. The oldest request is dropped if the log is full.
    pub(super) fn add(&self, head: &Parts, body: Bytes, at: Timestamp) -> u64 {
        let mut requests = lock(&self.requests);
        let number = *self.received.borrow() + 1;
        requests.push_back(RecordedRequest {
            number,
            at,
            method: head.method.to_string(),
            path: head.uri.to_string(),
            headers: head.headers.clone(),
            body,
            status: None,
        });
        while requests.len() > self.capacity {
            requests.pop_front();
        }
        self.received.send_replace(number);
        number
    }

    pub(super) fn set_status(&self, number: u64, status: u16) {
        let mut requests = lock(&self.requests);
        // Numbers are consecutive, so the first one determines the index of this one.
        let first = requests.front().map_or(0, RecordedRequest::number);
        let index = number.checked_sub(first).and_then(|index| usize::try_from(index).ok());
        if let Some(request) = index.and_then(|index| requests.get_mut(index)) {
            request.status = Some(status);
        }
    }

    pub(super) fn all(&self) -> Vec<RecordedRequest> {
        lock(&self.requests).iter().cloned().collect()
    }

    pub(super) fn received(&self) -> u64 {
        *self.received.borrow()
    }

    pub(super) async fn until_received(&self, count: u64) {
        // It cannot fail: the sender lives as long as `self`.
        let _ = self.received.subscribe().wait_for(|received| *received >= count).await;
    }
}
