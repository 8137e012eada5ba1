//! [`FakeServer`]: the listener and connections of a fake, and the methods that tests call.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::request_log::RecordedRequest;
use super::service::{FakeService, FakeState, ReplyOf};

/// The maximum time that a running response may take when the fake stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the listener pauses after it failed to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running fake. Dropping it closes its connections and frees its address.
#[derive(Debug)]
pub struct FakeServer<S: FakeService> {
    address: SocketAddr,
    state: Arc<FakeState<S>>,
    /// The listener's task, which owns the tasks of the connections. Dropping it ends them all.
    tasks: JoinSet<()>,
}

impl<S: FakeService> FakeServer<S> {
    /// Starts to serve at this listener.
    pub(super) fn serve(listener: TcpListener, state: FakeState<S>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let state = Arc::new(state);
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(listener, Arc::clone(&state)));
        Ok(Self { address, state, tasks })
    }

    /// `http://127.0.0.1:PORT`, without a trailing slash.
    #[must_use]
    pub fn server_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The state that the connections share.
    #[must_use]
    pub fn state(&self) -> &FakeState<S> {
        &self.state
    }

    /// The newest requests, in the order in which they became complete.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.log.all()
    }

    /// The number of received requests.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.state.log.received()
    }

    /// Waits until at least `count` requests were received.
    pub async fn until_received(&self, count: u64) {
        self.state.log.until_received(count).await;
    }

    /// Sends this reply to the next valid request, before scripts and turns. Several faults are used one after the other.
    pub fn add_fault(&self, fault: impl Into<ReplyOf<S>>) {
        self.state.router.add_fault(fault.into());
    }

    /// Stops the fake: it accepts no more requests and cuts running responses.
    pub async fn stop(mut self) {
        self.state.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn listen<S: FakeService>(listener: TcpListener, state: Arc<FakeState<S>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = state.stop.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, Arc::clone(&state)));
                }
                // The client has left already. The listener can accept the next one.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Too many files are open. That lasts until one is closed, and retrying at once would use a whole processor. The pause does
                // not use the fake's own clock, because a test may stop it.
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

async fn serve<S: FakeService>(stream: TcpStream, state: Arc<FakeState<S>>) {
    // Without this option, chunks may be joined. That is harmless.
    let _ = stream.set_nodelay(true);
    let (stop, clock) = (state.stop.clone(), Arc::clone(&state.clock));
    let service = service_fn(move |request| Arc::clone(&state).answer(request));
    let mut connection = pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    // An error means that the connection broke. Some replies break it on purpose.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // A client that does not read would keep the connection open for ever.
            tokio::select! {
                _ = connection => {}
                () = clock.sleep_until(clock.deadline(SHUTDOWN_TIMEOUT)) => {}
            }
        }
    }
}
