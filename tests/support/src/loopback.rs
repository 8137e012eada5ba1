//! [`Loopback`]: a listener that serves connections for as long as a test holds it.
#![expect(clippy::unwrap_used, reason = "a test that cannot listen has failed")]

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A listener on loopback. Dropping it ends the listener and all its connections.
#[derive(Debug)]
pub struct Loopback {
    /// The address on which it listens.
    pub address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Loopback {
    /// Listens on a free port, and passes each connection to `serve` in the order in which they are accepted.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn start<F>(mut serve: impl FnMut(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream));
            }
        });
        Self { address, _tasks: tasks }
    }
}
