//! Connections to the proxy's port, with the test as the host and as the client.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};

use conjure_guest::protocol::{
    ExecEnd, FIRST_TUNNEL, FrameKind, Hello, OutputMode, ProxySpec, Request, TUNNEL_WINDOW, TUNNELS_MAX,
};

use crate::client::{Guest, PLENTY, TIMEOUT, exec_request, wait_until};

fn connect(address: SocketAddrV4) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the guest listens");
    // A test that hangs says where.
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a socket");
    stream
}

/// The host takes the tunnel of this number. What it may send.
fn take(guest: &mut Guest, index: u32, credit: u32) -> usize {
    let frame = guest.next_of(FIRST_TUNNEL + index);
    assert_eq!(frame.kind, FrameKind::Tunnel);
    guest.grant(FIRST_TUNNEL + index, credit);
    frame.credit().expect("a credit") as usize
}

/// What the client wrote, up to its end, while credit is granted for what came.
fn heard(guest: &mut Guest, index: u32) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let frame = guest.next_of(FIRST_TUNNEL + index);
        match frame.kind {
            FrameKind::Data => {
                let (_, piece) = frame.data().expect("data");
                content.extend_from_slice(piece);
                guest.grant(FIRST_TUNNEL + index, u32::try_from(piece.len()).expect("short"));
            }
            FrameKind::Credit => {}
            FrameKind::Eof => return content,
            other => panic!("{other:?} comes too early"),
        }
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 31 + place / 251) as u8).collect()
}

#[test]
fn bytes_pass_both_ways_and_each_side_ends_on_its_own() {
    let (mut guest, address) = Guest::start_with_proxy();
    let mut client = connect(address);
    let window = take(&mut guest, 0, 1000);
    let question = pattern(3_000_000);
    let writer = {
        let mut client = client.try_clone().expect("a socket");
        let question = question.clone();
        std::thread::spawn(move || {
            client.write_all(&question).expect("taken");
            client.shutdown(Shutdown::Write).expect("a socket");
        })
    };
    assert!(heard(&mut guest, 0) == question, "what was asked is changed");
    writer.join().expect("it wrote");
    // The client ended its side, and still gets the answer.
    let answer = pattern(2_000_003);
    let mut rest = answer.as_slice();
    let mut credit = window;
    let reader = std::thread::spawn(move || {
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("it ends well");
        answer
    });
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(credit).min(64 * 1024));
        guest.send_data(FIRST_TUNNEL, piece);
        (rest, credit) = (after, credit - piece.len());
        while credit == 0 {
            credit = guest.next_of(FIRST_TUNNEL).credit().expect("credit, for the client reads") as usize;
        }
    }
    guest.send(FrameKind::Eof, FIRST_TUNNEL, &[]);
    assert!(reader.join().expect("it read") == answer, "what was answered is changed");
    while guest.next_of(FIRST_TUNNEL).kind != FrameKind::Done {}
}

#[test]
fn a_reset_passes_both_ways() {
    let (mut guest, address) = Guest::start_with_proxy();
    let mut client = connect(address);
    take(&mut guest, 0, 0);
    guest.send(FrameKind::Cancel, FIRST_TUNNEL, &[]);
    assert_eq!(guest.next_of(FIRST_TUNNEL).kind, FrameKind::Done);
    assert_eq!(client.read(&mut [0; 9]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);

    let client = connect(address);
    take(&mut guest, 1, 0);
    rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).expect("a socket");
    drop(client);
    assert_eq!(guest.next_of(FIRST_TUNNEL + 1).kind, FrameKind::Done);
}

#[test]
fn a_client_that_does_not_read_delays_nobody_and_takes_little_memory() {
    let (mut guest, address) = Guest::start_with_proxy();
    let sleeper = connect(address);
    let mut credit = take(&mut guest, 0, PLENTY);
    let mut sent = 0;
    // Until the kernel keeps no more for it: no credit comes.
    while credit > 0 {
        let piece = vec![0; credit.min(64 * 1024)];
        guest.send_data(FIRST_TUNNEL, &piece);
        credit -= piece.len();
        sent += piece.len();
        // An answer to a command means that the guest has dealt with all that came before it.
        assert_eq!(guest.call(Request::Exec(exec_request(&["true"]))).end(), ExecEnd::Exited(0));
        credit += guest
            .seen_of(FIRST_TUNNEL)
            .iter()
            .map(|frame| frame.credit().expect("credit") as usize)
            .sum::<usize>();
    }
    assert!(sent > TUNNEL_WINDOW as usize);
    let mut other = connect(address);
    take(&mut guest, 1, PLENTY);
    guest.send_data(FIRST_TUNNEL + 1, b"hello");
    let mut said = [0; 5];
    other.read_exact(&mut said).expect("it is not delayed");
    assert_eq!(&said, b"hello");
    assert!(guest.resident() < 8 * 1024, "{} KiB", guest.resident());
    drop(sleeper);
}

#[test]
fn tunnels_have_their_turn_beside_commands_that_write_as_fast_as_they_can() {
    let (mut guest, address) = Guest::start_with_proxy();
    let busy: Vec<u32> = (0..4)
        .map(|_| {
            let request = exec_request(&["yes"]);
            guest.open(
                Request::Exec(conjure_guest::protocol::ExecRequest { output: OutputMode::Stream, ..request }),
                PLENTY,
                None,
            )
        })
        .collect();
    for channel in &busy {
        assert_eq!(guest.next_of(*channel).kind, FrameKind::Data);
    }
    let mut client = connect(address);
    take(&mut guest, 0, PLENTY);
    client.write_all(&pattern(1_000_000)).expect("taken");
    client.shutdown(Shutdown::Write).expect("a socket");
    // The other frames are kept by the test, which bounds how long this may take.
    assert!(heard(&mut guest, 0) == pattern(1_000_000));
    for channel in busy {
        guest.send(FrameKind::Cancel, channel, &[]);
        assert_eq!(guest.finish(channel).end(), ExecEnd::Cancelled);
    }
}

#[test]
fn the_port_is_the_guests_and_one_that_is_taken_is_named() {
    let (guest, address) = Guest::start_with_proxy();
    assert_eq!(TcpListener::bind(address).expect_err("taken").kind(), ErrorKind::AddrInUse);
    let mut second = Guest::start_without_handshake();
    let hello = Hello { proxy: Some(ProxySpec { port: address.port() }), ..second.hello() };
    second.send_json(FrameKind::Hello, 0, &hello);
    let said = second.stderr_text();
    assert!(said.contains(&format!("listen on port {}", address.port())), "{said}");
    drop(guest);
}

#[test]
fn a_guest_that_was_not_asked_for_a_proxy_has_none() {
    let guest = Guest::start();
    let sockets = std::fs::read_dir(format!("/proc/{}/fd", guest.pid())).map(|entries| {
        entries
            .flatten()
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .filter(|target| target.to_string_lossy().starts_with("socket:"))
            .count()
    });
    // Others than root may not look into a guest.
    assert!(sockets.is_err() || sockets.is_ok_and(|count| count == 0));
}

#[test]
fn two_hundred_at_once_and_the_end_of_the_guest_ends_them_all() {
    let (mut guest, address) = Guest::start_with_proxy();
    let mut clients: Vec<TcpStream> = (0..TUNNELS_MAX + 20).map(|_| connect(address)).collect();
    for index in 0..TUNNELS_MAX as u32 {
        take(&mut guest, index, 100);
    }
    for client in &mut clients {
        client.write_all(b"ping").expect("taken");
    }
    for index in 0..TUNNELS_MAX as u32 {
        let frame = guest.next_of(FIRST_TUNNEL + index);
        assert_eq!(frame.data().expect("data").1, b"ping");
    }
    // Those beyond the most that may be wait for one to end.
    assert_eq!(guest.call(Request::Exec(exec_request(&["true"]))).end(), ExecEnd::Exited(0));
    assert!(guest.seen_of(FIRST_TUNNEL + TUNNELS_MAX as u32).is_empty());
    guest.send(FrameKind::Cancel, FIRST_TUNNEL, &[]);
    take(&mut guest, TUNNELS_MAX as u32, 100);
    assert_eq!(guest.close().code(), Some(0));
    for client in &mut clients {
        // An end or a reset, and at once.
        let mut rest = Vec::new();
        let ended = client.read_to_end(&mut rest);
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    }
}

#[test]
fn clients_that_come_and_go_leave_nothing_behind() {
    let (mut guest, address) = Guest::start_with_proxy();
    assert_eq!(guest.call(Request::Exec(exec_request(&["true"]))).end(), ExecEnd::Exited(0));
    let before = guest.resident();
    for index in 0..2000 {
        drop(connect(address));
        let channel = FIRST_TUNNEL + index;
        assert_eq!(guest.next_of(channel).kind, FrameKind::Tunnel);
        guest.grant(channel, 1000);
        assert_eq!(guest.next_of(channel).kind, FrameKind::Eof);
        guest.send(FrameKind::Eof, channel, &[]);
        assert_eq!(guest.next_of(channel).kind, FrameKind::Done);
    }
    let grown = guest.resident().saturating_sub(before);
    assert!(grown < 1024, "{grown} KiB");
    wait_until("its sockets are closed", || {
        std::fs::read_dir(format!("/proc/{}/fd", guest.pid())).map_or(true, |entries| entries.count() < 16)
    });
}

#[test]
fn a_host_that_breaks_the_protocol_ends_the_guest() {
    type Act = fn(&mut Guest);
    let cases: [(&str, Act); 3] = [
        ("tunnel 2147483655, which was never opened", |guest| guest.send_data(FIRST_TUNNEL + 7, b"x")),
        ("Open frame on tunnel", |guest| guest.send(FrameKind::Open, FIRST_TUNNEL, b"{}")),
        ("a Tunnel frame, which only a guest may send", |guest| guest.send(FrameKind::Tunnel, 1, &[0; 4])),
    ];
    for (words, act) in cases {
        let (mut guest, address) = Guest::start_with_proxy();
        let _client = connect(address);
        take(&mut guest, 0, 0);
        act(&mut guest);
        let status = guest.wait();
        let said = guest.stderr_text();
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
