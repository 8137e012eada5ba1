//! Guests that connect to a socket of the host.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use conjure_guest::protocol::{
    CONNECT_ARG, CONNECT_FAILED, Decoder, Frame, FrameKind, Hello, Welcome, encode_into,
};

use crate::client::TIMEOUT;

#[expect(clippy::disallowed_methods, reason = "this is the program under test")]
fn guest(socket: &std::path::Path) -> Command {
    let mut guest = Command::new(env!("CARGO_BIN_EXE_conjure-guest"));
    guest.arg(CONNECT_ARG).arg(socket).stdin(Stdio::piped()).stdout(Stdio::piped());
    guest
}

fn send_hello(mut to: impl Write) {
    let hello = Hello { workdir: "/".to_owned(), ..Hello::default() };
    let mut bytes = Vec::new();
    encode_into(&mut bytes, FrameKind::Hello, 0, &serde_json::to_vec(&hello).expect("JSON")).expect("short");
    to.write_all(&bytes).expect("the guest listens");
}

fn next_frame(mut from: impl Read) -> Frame {
    let mut decoder = Decoder::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(frame) = decoder.next_frame().expect("a frame") {
            return frame;
        }
        let length = from.read(&mut buffer).expect("the guest speaks");
        assert!(length > 0, "the guest ended");
        decoder.push(&buffer[..length]);
    }
}

#[test]
fn the_guest_uses_the_socket_and_ends_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let mut guest = guest(&path).spawn().expect("the guest starts");
    let (mut host, _) = listener.accept().expect("it connects");
    host.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    send_hello(&host);
    let welcome: Welcome = next_frame(&host).json().expect("a welcome");
    assert_eq!(welcome.pid, guest.id());
    let _input = guest.stdin.take();
    // The guest no longer uses the pipes: it ends with the socket, although standard input is open.
    let mut rest = Vec::new();
    guest.stdout.take().expect("a pipe").read_to_end(&mut rest).expect("its end");
    assert_eq!(rest, b"");
    host.shutdown(std::net::Shutdown::Write).expect("it is open");
    assert!(guest.wait().expect("it ends").success());
    assert_eq!(host.read(&mut [0]).expect("it was closed"), 0);
}

#[test]
fn a_failed_connection_is_reported_and_standard_streams_are_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let too_long = "x".repeat(200);
    for name in ["nothing", too_long.as_str()] {
        let mut guest = guest(&dir.path().join(name)).spawn().expect("the guest starts");
        let mut stdout = guest.stdout.take().expect("a pipe");
        let mut said = [0];
        stdout.read_exact(&mut said).expect("it says so");
        assert_eq!(said, [CONNECT_FAILED]);
        let stdin = guest.stdin.take().expect("a pipe");
        send_hello(&stdin);
        assert_eq!(next_frame(&mut stdout).kind, FrameKind::Welcome);
        drop(stdin);
        assert!(guest.wait().expect("it ends").success());
    }
}
