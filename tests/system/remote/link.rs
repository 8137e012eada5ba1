//! A TCP port of this machine that forwards to an engine and can be disconnected.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;

use conjure_sandbox::EngineAddress;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The treatment of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    /// All are closed, new ones at once.
    Cut,
    Over,
}

/// A port that passes on every connection to a socket, on a thread and a runtime of its own.
pub(crate) struct Link {
    address: SocketAddr,
    state: watch::Sender<State>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    pub(crate) fn to(socket: &'static str) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (state, watched) = watch::channel(State::Up);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime
                .block_on(async { serve(TcpListener::from_std(listener).unwrap(), socket, watched).await });
        });
        Self { address, state, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> EngineAddress {
        EngineAddress::Tcp(self.address.to_string())
    }

    /// Closes all connections, and refuses new ones.
    pub(crate) fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    pub(crate) fn reconnect(&self) {
        self.state.send_replace(State::Up);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.send_replace(State::Over);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the link failed");
    }
}

async fn serve(listener: TcpListener, socket: &'static str, mut state: watch::Receiver<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.unwrap();
                if *state.borrow() == State::Up {
                    connections.spawn(pass(stream, socket));
                }
            }
            Some(_) = connections.join_next() => {}
            changed = state.changed() => {
                changed.unwrap();
                match *state.borrow_and_update() {
                    State::Up => {}
                    State::Cut => connections.abort_all(),
                    State::Over => return,
                }
            }
        }
    }
}

async fn pass(mut stream: TcpStream, socket: &str) {
    stream.set_nodelay(true).unwrap();
    let Ok(mut engine) = UnixStream::connect(socket).await else { return };
    // How one of them ended, the other is told by its end.
    let _ = copy_bidirectional(&mut stream, &mut engine).await;
}
