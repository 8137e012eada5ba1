//! [`HttpClient`]: calls of one model service under one key.
//!
//! Dropping a call closes its connection and releases its rate limiter permit. Nothing is stored. The caller must record whether the call
//! was sent.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use conjure_base::{Clock, Jitter, SystemClock};
use conjure_conversation::{ModelError, ModelEvent, ModelStream, Response};
use futures_util::{StreamExt as _, stream};
use reqwest::Url;

use crate::calls::client_state::ClientState;
use crate::calls::http_call::HttpCall;
use crate::calls::model_call::ModelCall;
use crate::calls::wire::Wire;
use crate::config::{HttpConfig, HttpConfigError};
use crate::connection::limiter::Limiter;
use crate::connection::transport::Transport;

/// The client of one service and key. All calls share its rate limiter, connections and prices. Cheap to clone.
#[derive(Clone)]
pub struct HttpClient(Arc<ClientState>);

impl HttpClient {
    /// Creates a client with the system clock. Needs a Tokio runtime.
    ///
    /// # Errors
    /// [`HttpConfigError`].
    pub fn new(config: &HttpConfig) -> Result<Self, HttpConfigError> {
        Self::with_clock(config, Arc::new(SystemClock))
    }

    /// Creates a client with this clock. It times the waits and reads the dates in `retry-after`.
    ///
    /// # Errors
    /// [`HttpConfigError`].
    pub fn with_clock(config: &HttpConfig, clock: Arc<dyn Clock>) -> Result<Self, HttpConfigError> {
        Ok(Self(Arc::new(ClientState::new(config, clock)?)))
    }

    /// The URL of an endpoint: the base URL, these path segments (percent-encoded), and the configured query.
    #[must_use]
    pub fn url<'s>(&self, segments: impl IntoIterator<Item = &'s str>) -> Url {
        self.0.transport.url(segments)
    }

    /// The service's host.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.transport.host()
    }

    /// The service's name in an [`Origin`](conjure_conversation::Origin): its host, with the port if it is not the default one.
    #[must_use]
    pub fn service(&self) -> String {
        self.0.transport.service()
    }

    /// The names of models that responded and have no known price: sorted, at most 16. Their responses count as free. The service says
    /// which model responded, and that may not be the requested one.
    #[must_use]
    pub fn models_without_price(&self) -> Vec<String> {
        self.0.lock_models_without_price().iter().cloned().collect()
    }

    /// The HTTP transport, for requests that are not model calls.
    #[must_use]
    pub fn transport(&self) -> &Transport {
        &self.0.transport
    }

    /// The rate limiter of the key.
    #[must_use]
    pub fn limiter(&self) -> &Arc<Limiter> {
        &self.0.limiter
    }

    /// The random numbers for jitter.
    #[must_use]
    pub fn jitter(&self) -> &Jitter {
        &self.0.jitter
    }

    /// The number of retries of a call.
    #[must_use]
    pub fn retries(&self) -> u32 {
        self.0.retries
    }

    /// Starts a streamed call and returns its events. Nothing happens before the stream is polled; at the first poll, `make` writes the
    /// call. The stream ends after [`ModelEvent::Finished`] or an error.
    pub fn stream<W, F>(&self, wire: Arc<W>, make: F) -> ModelStream
    where
        W: Wire,
        F: FnOnce() -> HttpCall + Send + 'static,
    {
        let begin: Box<Begin<W>> = {
            let client = Arc::clone(&self.0);
            Box::new(move || ModelCall::new(client, wire, make()))
        };
        let state = Running { stage: Stage::New(begin), ready: VecDeque::new() };
        let events = stream::unfold(state, |mut running| async move {
            let item = running.next().await?;
            Some((item, running))
        });
        Box::pin(events.fuse())
    }
}

/// Makes the call at the first poll.
type Begin<W> = dyn FnOnce() -> ModelCall<W> + Send;

/// A streamed call that waits for its next poll.
struct Running<W: Wire> {
    stage: Stage<W>,
    ready: VecDeque<ModelEvent>,
}

enum Stage<W: Wire> {
    New(Box<Begin<W>>),
    Calling(Box<ModelCall<W>>),
    /// The result. It is returned after the events that are ready.
    Ended(Result<Box<Response>, ModelError>),
    Over,
}

impl<W: Wire> Running<W> {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let ended = match &mut self.stage {
                Stage::Calling(call) => match call.next(&mut self.ready).await {
                    Ok(None) => continue,
                    Ok(Some(response)) => Ok(Box::new(response)),
                    Err(error) => Err(error),
                },
                Stage::New(_) => match std::mem::replace(&mut self.stage, Stage::Over) {
                    Stage::New(begin) => {
                        self.stage = Stage::Calling(Box::new(begin()));
                        continue;
                    }
                    _ => return None,
                },
                Stage::Ended(_) => match std::mem::replace(&mut self.stage, Stage::Over) {
                    Stage::Ended(result) => return Some(result.map(ModelEvent::Finished)),
                    _ => return None,
                },
                Stage::Over => return None,
            };
            self.stage = Stage::Ended(ended);
        }
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("service", &self.service()).finish_non_exhaustive()
    }
}
