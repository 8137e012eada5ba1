//! [`FakeServer`]: the listener and connections of a fake, and what tests ask it.

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

/// How long a running response may take when the fake stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long no connection is accepted after one could not be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running fake. Dropping it closes its connections and frees its address.
#[derive(Debug)]
pub struct FakeServer<S: FakeService> {
    address: SocketAddr,
    state: Arc<FakeState<S>>,
    /// The task of the listener, which owns those of the connections. Dropping it ends them all.
    tasks: JoinSet<()>,
}

impl<S: FakeService> FakeServer<S> {
    /// Serves at this listener.
    pub(super) fn serve(listener: TcpListener, state: FakeState<S>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let state = Arc::new(state);
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(listener, Arc::clone(&state)));
        Ok(Self { address, state, tasks })
    }

    /// `http://127.0.0.1:PORT`, without a slash at its end.
    #[must_use]
    pub fn server_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The state that the connections share.
    #[must_use]
    pub fn state(&self) -> &FakeState<S> {
        &self.state
    }

    /// The newest requests, in the order in which they were complete.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.log.all()
    }

    /// How many requests were received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.state.log.received()
    }

    /// Waits until so many requests were received.
    pub async fn until_received(&self, count: u64) {
        self.state.log.until_received(count).await;
    }

    /// Answers the next valid request with this instead of what would follow. Several are used one after the other.
    pub fn add_fault(&self, fault: impl Into<ReplyOf<S>>) {
        self.state.router.add_fault(fault.into());
    }

    /// Stops: no more requests are accepted, and running answers are cut.
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
                // A client that was gone already says nothing of the next one.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Too many open files: it stays so until one is closed, and asking again at once would take all of a processor. The
                // fake's own clock may stand still.
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
