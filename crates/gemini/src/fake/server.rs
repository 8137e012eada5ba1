//! [`FakeGemini`]: the fake's listener and connections, and its API for tests.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_conversation::scripted::Script;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::answer_writer::GivenIds;
use super::reply::Reply;
use super::reply_router::{ReplyRouter, ReplySource};
use super::request_log::{RecordedRequest, RequestLog};
use super::service::FakeState;

/// The default capacity of the request log.
const DEFAULT_LOG_CAPACITY: usize = 10_000;

/// How long a running response may take when the fake stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long no connection is taken after one could not be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running fake. Dropping it closes its connections and frees its address.
#[derive(Debug)]
pub struct FakeGemini {
    address: SocketAddr,
    shared: Arc<FakeState>,
    /// The task of the listener, which owns those of the connections. Dropping it ends them all.
    tasks: JoinSet<()>,
}

/// Builds a [`FakeGemini`]. Created by [`FakeGemini::builder`].
#[derive(Debug)]
pub struct FakeGeminiBuilder {
    keys: Vec<String>,
    models: Vec<String>,
    ids: GivenIds,
    default_source: Option<ReplySource>,
    sources_by_model: HashMap<String, ReplySource>,
    faults: VecDeque<Reply>,
    clock: Arc<dyn Clock>,
    port: u16,
    log_capacity: usize,
}

impl FakeGemini {
    /// A fake for any key and model, with nothing to say.
    #[must_use]
    pub fn builder() -> FakeGeminiBuilder {
        FakeGeminiBuilder {
            keys: Vec::new(),
            models: Vec::new(),
            ids: GivenIds::None,
            default_source: None,
            sources_by_model: HashMap::new(),
            faults: VecDeque::new(),
            clock: Arc::new(SystemClock),
            port: 0,
            log_capacity: DEFAULT_LOG_CAPACITY,
        }
    }

    /// The base URL for a client of this crate: `http://127.0.0.1:PORT/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.server_url())
    }

    /// The address without the version of the API: `http://127.0.0.1:PORT`. It serves `/v1` and `/v1beta` alike.
    #[must_use]
    pub fn server_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The newest requests, in the order in which they were complete.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner).all()
    }

    /// How many requests were received.
    #[must_use]
    pub fn received(&self) -> u64 {
        *self.shared.received.borrow()
    }

    /// Waits until so many requests were received.
    pub async fn until_received(&self, count: u64) {
        // It cannot fail: the sender lives as long as `self`.
        let _ = self.shared.received.subscribe().wait_for(|received| *received >= count).await;
    }

    /// Answers the next good request, whoever sends it, with this instead of what would follow. Several are taken one after the other.
    pub fn add_fault(&self, fault: Reply) {
        self.shared.router.add_fault(fault);
    }

    /// Stops: no more requests are taken, answers that are still being paced out are cut.
    pub async fn stop(mut self) {
        self.shared.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

impl FakeGeminiBuilder {
    /// Plays this script to every model that has no source of its own.
    #[must_use]
    pub fn script(mut self, script: impl Into<Arc<Script>>) -> Self {
        self.default_source = Some(ReplySource::Script(script.into()));
        self
    }

    /// Plays this script to the requests for this model.
    #[must_use]
    pub fn script_for(mut self, model: impl Into<String>, script: impl Into<Arc<Script>>) -> Self {
        self.sources_by_model.insert(model.into(), ReplySource::Script(script.into()));
        self
    }

    /// Plays these turns, each session's calls in turn, as a script is played.
    #[must_use]
    pub fn turns(mut self, turns: impl IntoIterator<Item = Reply>) -> Self {
        self.default_source = Some(ReplySource::Turns(turns.into_iter().collect()));
        self
    }

    /// Answers the first good requests with these, in the order in which they come, before anything is played.
    #[must_use]
    pub fn faults(mut self, faults: impl IntoIterator<Item = Reply>) -> Self {
        self.faults.extend(faults);
        self
    }

    /// Accepts this key, and no others but those that are added the same way. Without any, every key is accepted.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// Knows this model, and no others but those that are named the same way. Without any, every model is known.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.models.push(model.into());
        self
    }

    /// Gives ids to calls: those of the script. The service often gives none, which is the default.
    #[must_use]
    pub const fn with_call_ids(mut self) -> Self {
        self.ids = GivenIds::OfScript;
        self
    }

    /// Tells the time and delays by this clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Listens at this port of loopback; at a free one where this is not said.
    #[must_use]
    pub const fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Keeps so many requests; 10,000 where this is not said.
    #[must_use]
    pub const fn keep(mut self, requests: usize) -> Self {
        self.log_capacity = requests;
        self
    }

    /// Starts it. Within a Tokio runtime whose I/O and time are enabled.
    ///
    /// # Errors
    /// When the port is not free.
    pub async fn start(self) -> io::Result<FakeGemini> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(FakeState {
            keys: self.keys,
            models: self.models,
            ids: self.ids,
            router: ReplyRouter::new(self.default_source, self.sources_by_model, self.faults),
            clock: self.clock,
            log: Mutex::new(RequestLog::new(self.log_capacity)),
            received: watch::Sender::new(0),
            stop: CancellationToken::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(listener, Arc::clone(&shared)));
        Ok(FakeGemini { address, shared, tasks })
    }
}

async fn listen(listener: TcpListener, shared: Arc<FakeState>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, Arc::clone(&shared)));
                }
                // A client that was gone already says nothing of the next one.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Too many open files: it stays so until something is closed, and asking again at once would take all of
                // a processor. The fake's own clock may stand still.
                Err(_) => tokio::select! {
                    () = shared.stop.cancelled() => break,
                    () = SystemClock.sleep_until(SystemClock.deadline(ACCEPT_PAUSE)) => {}
                },
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn serve(stream: TcpStream, shared: Arc<FakeState>) {
    // Pieces are to be pieces. Where it cannot be set, they are joined, no more.
    let _ = stream.set_nodelay(true);
    let (stop, clock) = (shared.stop.clone(), Arc::clone(&shared.clock));
    let service = service_fn(move |request| Arc::clone(&shared).answer(request));
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
