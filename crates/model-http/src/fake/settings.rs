//! [`FakeSettings`]: the settings that the fakes of all services share, and the builder methods for them.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use conjure_base::{Clock, SystemClock};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::reply_router::{ReplyRouter, ReplySource};
use super::request_log::RequestLog;
use super::server::FakeServer;
use super::service::{FakeService, FakeState, ReplyOf};

/// The default capacity of the request log.
const DEFAULT_LOG_CAPACITY: usize = 10_000;

/// The settings that the fakes of all services share. See [`builder_methods`](crate::builder_methods).
#[derive(Debug)]
pub struct FakeSettings<S: FakeService> {
    /// The source of replies.
    pub source: Option<ReplySource<S::Answer, S::Error>>,
    /// The replies to the first valid requests, before scripts and turns.
    pub faults: VecDeque<ReplyOf<S>>,
    /// The accepted keys. If empty, every key is accepted.
    pub keys: Vec<String>,
    /// The known models. If empty, every model is known.
    pub models: Vec<String>,
    /// The clock for times.
    pub clock: Arc<dyn Clock>,
    /// The number of requests that the log keeps.
    pub log_capacity: usize,
}

impl<S: FakeService> Default for FakeSettings<S> {
    fn default() -> Self {
        Self {
            source: None,
            faults: VecDeque::new(),
            keys: Vec::new(),
            models: Vec::new(),
            clock: Arc::new(SystemClock),
            log_capacity: DEFAULT_LOG_CAPACITY,
        }
    }
}

impl<S: FakeService> FakeSettings<S> {
    /// Starts the fake of this service. Needs a Tokio runtime with I/O and time.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start(self, service: S) -> io::Result<FakeServer<S>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let state = FakeState {
            service,
            router: ReplyRouter::new(self.source, self.faults, Arc::clone(&self.clock)),
            clock: self.clock,
            keys: self.keys,
            models: self.models,
            log: RequestLog::new(self.log_capacity),
            stop: CancellationToken::new(),
        };
        FakeServer::serve(listener, state)
    }
}

/// Adds the methods that every service has to the builder of a fake. The builder needs a field `settings` of type
/// [`FakeSettings`](crate::fake::FakeSettings).
#[macro_export]
macro_rules! builder_methods {
    ($builder:ident, $reply:ty) => {
        impl $builder {
            /// Plays this script.
            #[must_use]
            pub fn script(
                mut self,
                script: impl Into<std::sync::Arc<conjure_conversation::scripted::Script>>,
            ) -> Self {
                self.settings.source = Some($crate::fake::ReplySource::Script(script.into()));
                self
            }

            /// Plays these turns, one for each call of a session, as a script is played.
            #[must_use]
            pub fn turns(mut self, turns: impl IntoIterator<Item = $reply>) -> Self {
                let turns = turns.into_iter().map(Into::into).collect();
                self.settings.source = Some($crate::fake::ReplySource::Turns(turns));
                self
            }

            /// Sends these replies to the first valid requests, before scripts and turns.
            #[must_use]
            pub fn faults(mut self, faults: impl IntoIterator<Item = $reply>) -> Self {
                self.settings.faults.extend(faults.into_iter().map(Into::into));
                self
            }

            /// Accepts this key. Call it again for more keys. Without any, every key is accepted.
            #[must_use]
            pub fn key(mut self, key: impl Into<String>) -> Self {
                self.settings.keys.push(key.into());
                self
            }

            /// Adds a known model. Call it again for more models. Without any, every model is known.
            #[must_use]
            pub fn model(mut self, model: impl Into<String>) -> Self {
                self.settings.models.push(model.into());
                self
            }

            /// Sets the clock for times.
            #[must_use]
            pub fn clock(mut self, clock: std::sync::Arc<dyn conjure_base::Clock>) -> Self {
                self.settings.clock = clock;
                self
            }

            /// Sets how many requests the log keeps; 10,000 by default.
            #[must_use]
            pub const fn keep(mut self, requests: usize) -> Self {
                self.settings.log_capacity = requests;
                self
            }
        }
    };
}
