//! [`OpenRequest`]: a request from its start to the last byte of its answer.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, Response, header};
use conjure_mcp::server::ServedClient;
use futures_util::StreamExt as _;

use super::clients::{ClientId, McpClients};
use crate::access::Caller;

/// A request of a known client. The client counts as in use until this is dropped.
pub(crate) struct OpenRequest {
    clients: Arc<McpClients>,
    id: ClientId,
    pub(crate) client: ServedClient,
}

impl OpenRequest {
    /// Begins a request of this caller. `None` if the client does not exist.
    pub(crate) fn begin(clients: &Arc<McpClients>, caller: &Caller, session: Option<&str>) -> Option<Self> {
        let id = McpClients::id(caller, session);
        let client = clients.begin_request(&id)?;
        Some(Self { clients: Arc::clone(clients), id, client })
    }

    /// Attaches this request to its answer. An event stream keeps the client in use, and ends at the latest when `end` completes.
    pub(crate) fn attach<B>(
        self,
        answer: Response<B>,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        if !is_event_stream(answer.headers()) {
            return answer.map(Body::new);
        }
        answer.map(|body| {
            let records = Body::new(body).into_data_stream().take_until(Box::pin(end));
            Body::from_stream(records.map(move |record| {
                let _in_use = &self;
                record
            }))
        })
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.clients.end_request(&self.id);
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}
