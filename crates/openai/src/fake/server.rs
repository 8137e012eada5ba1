//! [`FakeOpenAi`]: the fake's listener and connections, and its API for tests.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock, SystemClock, lock};
use conjure_conversation::scripted::Script;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::reply::Reply;
use super::reply_router::{ReplyRouter, ReplySource};
use super::service::{FakeState, RecordedRequest};

/// The default number of recorded requests.
const DEFAULT_LOG_CAPACITY: usize = 10_000;
/// How long a running response may take when the fake stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long no connection is accepted after one could not be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running fake. Dropping it closes its connections and frees its address.
#[derive(Debug)]
pub struct FakeOpenAi {
    address: SocketAddr,
    state: Arc<FakeState>,
    /// The task of the listener, which owns those of the connections. Dropping it ends them all.
    tasks: JoinSet<()>,
}

/// Builds a [`FakeOpenAi`]. Created by [`FakeOpenAi::builder`].
#[derive(Debug)]
pub struct FakeOpenAiBuilder {
    keys: Vec<String>,
    models: Vec<String>,
    source: Option<ReplySource>,
    faults: VecDeque<Reply>,
    clock: Arc<dyn Clock>,
    port: u16,
    log_capacity: usize,
}

impl FakeOpenAi {
    /// A fake for any key and model, with nothing to say.
    #[must_use]
    pub fn builder() -> FakeOpenAiBuilder {
        FakeOpenAiBuilder {
            keys: Vec::new(),
            models: Vec::new(),
            source: None,
            faults: VecDeque::new(),
            clock: Arc::new(SystemClock),
            port: 0,
            log_capacity: DEFAULT_LOG_CAPACITY,
        }
    }

    /// The base URL for clients: `http://127.0.0.1:PORT/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The newest requests, in the order in which they were complete.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.state.log).iter().map(|(_, request)| request.clone()).collect()
    }

    /// How many requests were received.
    #[must_use]
    pub fn received(&self) -> u64 {
        *self.state.received.borrow()
    }

    /// Waits until so many requests were received.
    pub async fn until_received(&self, count: u64) {
        // It cannot fail: the sender lives as long as `self`.
        let _ = self.state.received.subscribe().wait_for(|received| *received >= count).await;
    }

    /// Answers the next valid request with this instead of what would follow. Several are used one after the other.
    pub fn add_fault(&self, fault: Reply) {
        self.state.router.add_fault(fault);
    }

    /// Stops: no more requests are accepted, and running answers are cut.
    pub async fn stop(mut self) {
        self.state.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

impl FakeOpenAiBuilder {
    /// Plays this script.
    #[must_use]
    pub fn script(mut self, script: impl Into<Arc<Script>>) -> Self {
        self.source = Some(ReplySource::Script(script.into()));
        self
    }

    /// Plays these turns, each session's calls in turn, as a script is played.
    #[must_use]
    pub fn turns(mut self, turns: impl IntoIterator<Item = Reply>) -> Self {
        self.source = Some(ReplySource::Turns(turns.into_iter().collect()));
        self
    }

    /// Answers the first valid requests with these, before anything is played.
    #[must_use]
    pub fn faults(mut self, faults: impl IntoIterator<Item = Reply>) -> Self {
        self.faults.extend(faults);
        self
    }

    /// Accepts this key, and no others but those that are added in the same way. Without any, every request is accepted.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// Knows this model, and no others but those that are added in the same way. Without any, every model is known.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.models.push(model.into());
        self
    }

    /// Tells the time and delays by this clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Listens at this port of loopback; at a free one by default.
    #[must_use]
    pub const fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Keeps so many requests; 10,000 by default.
    #[must_use]
    pub const fn keep(mut self, requests: usize) -> Self {
        self.log_capacity = requests;
        self
    }

    /// Starts it. Needs a Tokio runtime with I/O and time.
    ///
    /// # Errors
    /// When the port is not free.
    pub async fn start(self) -> io::Result<FakeOpenAi> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(FakeState {
            keys: self.keys,
            models: self.models,
            router: ReplyRouter::new(self.source, self.faults),
            clock: self.clock,
            log: Mutex::default(),
            log_capacity: self.log_capacity,
            received: watch::Sender::new(0),
            stop: CancellationToken::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(listener, Arc::clone(&state)));
        Ok(FakeOpenAi { address, state, tasks })
    }
}

async fn listen(listener: TcpListener, state: Arc<FakeState>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = state.stop.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, Arc::clone(&state)));
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Too many open files: it stays so until one is closed. The fake's own clock may stand still.
                Err(_) => tokio::select! {
                    () = state.stop.cancelled() => break,
                    () = SystemClock.sleep_until(SystemClock.deadline(ACCEPT_PAUSE)) => {}
                },
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn serve(stream: TcpStream, state: Arc<FakeState>) {
    // Without it, chunks are joined, no more.
    let _ = stream.set_nodelay(true);
    let (stop, clock) = (state.stop.clone(), Arc::clone(&state.clock));
    let service = service_fn(move |request| Arc::clone(&state).answer(request));
    let mut connection = pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    // An error is a connection that broke, which is what some replies are for.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // A client that does not read would keep it for ever.
            tokio::select! {
                _ = connection => {}
                () = clock.sleep_until(clock.deadline(SHUTDOWN_TIMEOUT)) => {}
            }
        }
    }
}
