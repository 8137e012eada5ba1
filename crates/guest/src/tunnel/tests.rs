//! Against real connections on the loopback interface, with a host and a clock that the test plays.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use proptest::prelude::*;
use rustix::event::{PollFd, Timespec, poll};
use rustix::net::sockopt;

use conjure_guest::protocol::{
    Decoder, FIRST_TUNNEL, Frame, FrameKind, ProxySpec, StreamId, TUNNEL_WINDOW, TUNNELS_MAX,
};

use super::{TunnelContext, TunnelFd, Tunnels};
use crate::error::FatalError;
use crate::frame_queue::FrameQueue;

/// Nothing is waited for longer, unless it hangs.
const TIMEOUT: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// The host's view of one tunnel, and its judgement of what the guest says.
#[derive(Default)]
struct Seen {
    /// What the guest may still send.
    granted: usize,
    /// What the host may still send.
    credit: usize,
    content: Vec<u8>,
    sent: Vec<u8>,
    has_eof: bool,
    is_done: bool,
    has_ended: bool,
    has_cancelled: bool,
}

/// A client of the proxy.
struct Client {
    /// `None` once closed.
    stream: Option<TcpStream>,
    written: Vec<u8>,
    read: Vec<u8>,
    has_shut: bool,
    /// Closed with or without a reset, so that not everything need have arrived.
    is_gone: bool,
}

struct Rig {
    tunnels: Tunnels,
    frames: FrameQueue,
    scratch: Vec<u8>,
    now: Duration,
    seen: Vec<Seen>,
    clients: Vec<Client>,
    /// What the next byte of anybody is.
    pattern: u8,
}

fn number(index: usize) -> u32 {
    FIRST_TUNNEL + u32::try_from(index).expect("few")
}

impl Rig {
    fn new() -> Self {
        Self {
            tunnels: Tunnels::listen(ProxySpec { port: 0 }).expect("a free port"),
            frames: FrameQueue::default(),
            scratch: vec![0; 128 * 1024],
            now: Duration::from_secs(1000),
            seen: Vec::new(),
            clients: Vec::new(),
            pattern: 0,
        }
    }

    /// A tunnel that the host has taken.
    fn with_one() -> Self {
        let mut rig = Self::new();
        rig.connect();
        rig.turn_until(|rig| rig.seen.len() == 1);
        rig
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length)
            .map(|_| {
                self.pattern = self.pattern.wrapping_mul(5).wrapping_add(7);
                self.pattern
            })
            .collect()
    }

    fn connect(&mut self) {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.tunnels.port())).expect("it listens");
        stream.set_nonblocking(true).expect("a socket");
        self.clients.push(Client {
            stream: Some(stream),
            written: Vec::new(),
            read: Vec::new(),
            has_shut: false,
            is_gone: false,
        });
    }

    /// One turn of the loop, after waiting for so long. How many were ready.
    fn turn(&mut self, timeout: Timespec) -> usize {
        let mut ports: Vec<TunnelFd> = Vec::new();
        let mut fds = Vec::new();
        self.tunnels.interests(&self.frames, |port, fd, events| {
            ports.push(port);
            fds.push(PollFd::from_borrowed_fd(fd, events));
        });
        poll(&mut fds, Some(&timeout)).expect("polled");
        let ready: Vec<TunnelFd> = ports
            .into_iter()
            .zip(&fds)
            .filter_map(|(port, fd)| (!fd.revents().is_empty()).then_some(port))
            .collect();
        for port in &ready {
            self.act(|tunnels, cx| tunnels.ready(*port, cx));
        }
        self.act(|tunnels, cx| tunnels.close_overdue(cx));
        self.judge();
        ready.len()
    }

    fn act<T>(&mut self, work: impl FnOnce(&mut Tunnels, &mut TunnelContext<'_>) -> T) -> T {
        let mut cx = TunnelContext { now: self.now, frames: &mut self.frames, scratch: &mut self.scratch };
        work(&mut self.tunnels, &mut cx)
    }

    fn turn_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            assert!(self.turn(TIMEOUT) > 0, "it hangs");
        }
    }

    /// Takes what the guest says, which must be what the protocol allows.
    fn judge(&mut self) {
        let mut decoder = Decoder::new();
        decoder.push(&self.frames.take());
        while let Some(frame) = decoder.next_frame().expect("frames") {
            let index = (frame.channel - FIRST_TUNNEL) as usize;
            if frame.kind == FrameKind::Tunnel {
                assert_eq!(index, self.seen.len(), "numbers count up");
                let credit = frame.credit().expect("a credit") as usize;
                self.seen.push(Seen { credit, ..Seen::default() });
                assert!(self.seen.iter().filter(|seen| !seen.is_done).count() <= TUNNELS_MAX);
                continue;
            }
            let seen = self.seen.get_mut(index).expect("it was opened");
            assert!(!seen.is_done, "{:?} after the last frame", frame.kind);
            match frame.kind {
                FrameKind::Data => {
                    let (stream, content) = frame.data().expect("data");
                    assert!(stream == StreamId::Content && !content.is_empty() && !seen.has_eof);
                    seen.granted = seen.granted.checked_sub(content.len()).expect("within credit");
                    seen.content.extend_from_slice(content);
                }
                FrameKind::Credit => {
                    seen.credit += frame.credit().expect("a credit") as usize;
                    assert!(seen.credit <= TUNNEL_WINDOW as usize);
                }
                FrameKind::Eof => assert!(!std::mem::replace(&mut seen.has_eof, true)),
                FrameKind::Done => {
                    assert!(frame.payload.is_empty());
                    seen.is_done = true;
                }
                other => panic!("a guest does not send {other:?} on a tunnel"),
            }
        }
    }

    fn say(&mut self, kind: FrameKind, index: usize, payload: Vec<u8>) -> Result<(), FatalError> {
        let frame = Frame { kind, channel: number(index), payload };
        let said = self.act(|tunnels, cx| tunnels.frame(&frame, cx));
        self.judge();
        said
    }

    fn grant(&mut self, index: usize, bytes: u32) {
        self.seen[index].granted += bytes as usize;
        self.say(FrameKind::Credit, index, bytes.to_le_bytes().to_vec()).expect("allowed");
    }

    /// Sends as much of so many bytes as credit allows.
    fn send(&mut self, index: usize, length: usize) {
        let seen = &self.seen[index];
        if seen.has_ended || seen.has_cancelled {
            return;
        }
        let content = self.bytes(length.min(seen.credit));
        let seen = &mut self.seen[index];
        seen.credit -= content.len();
        seen.sent.extend_from_slice(&content);
        self.say(FrameKind::Data, index, [&[0], content.as_slice()].concat()).expect("allowed");
    }

    fn end(&mut self, index: usize) {
        let seen = &mut self.seen[index];
        if !seen.has_cancelled && !std::mem::replace(&mut seen.has_ended, true) {
            self.say(FrameKind::Eof, index, Vec::new()).expect("allowed");
        }
    }

    fn cancel(&mut self, index: usize) {
        if !std::mem::replace(&mut self.seen[index].has_cancelled, true) {
            self.say(FrameKind::Cancel, index, Vec::new()).expect("allowed");
        }
    }

    fn write(&mut self, index: usize, length: usize) {
        let content = self.bytes(length);
        let client = &mut self.clients[index];
        let Some(stream) = client.stream.as_mut().filter(|_| !client.has_shut) else { return };
        match stream.write(&content) {
            Ok(written) => client.written.extend_from_slice(&content[..written]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => client.is_gone = true,
        }
    }

    /// Reads what is there, up to so many bytes. `false` at the end.
    fn read(&mut self, index: usize, length: usize) -> bool {
        let client = &mut self.clients[index];
        let Some(stream) = &mut client.stream else { return false };
        let mut buffer = vec![0; length.max(1)];
        match stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(length) => {
                client.read.extend_from_slice(&buffer[..length]);
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => true,
            Err(_) => {
                client.is_gone = true;
                false
            }
        }
    }

    fn shut(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if let Some(stream) = &client.stream {
            client.has_shut = true;
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    fn close(&mut self, index: usize, how: Close) {
        let client = &mut self.clients[index];
        client.is_gone = true;
        if let (Some(stream), Close::Reset) = (&client.stream, how) {
            sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("a socket");
        }
        client.stream = None;
    }
}

#[derive(Debug, Clone, Copy)]
enum Close {
    Plain,
    Reset,
}

/// What happens: to which connection, and how much of it.
#[derive(Debug, Clone)]
enum Step {
    Connect,
    Turn,
    Grant(usize, u32),
    Send(usize, usize),
    End(usize),
    Cancel(usize),
    Write(usize, usize),
    Read(usize, usize),
    Shut(usize),
    Close(usize, Close),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = 0_usize..4;
    let many = prop_oneof![4 => 0_usize..50, 1 => 0_usize..300_000];
    let step = prop_oneof![
        3 => Just(Step::Connect),
        8 => Just(Step::Turn),
        3 => (which.clone(), 0_u32..200_000).prop_map(|(which, bytes)| Step::Grant(which, bytes)),
        4 => (which.clone(), many.clone()).prop_map(|(which, length)| Step::Send(which, length.min(60_000))),
        1 => which.clone().prop_map(Step::End),
        1 => which.clone().prop_map(Step::Cancel),
        4 => (which.clone(), many.clone()).prop_map(|(which, length)| Step::Write(which, length)),
        4 => (which.clone(), many).prop_map(|(which, length)| Step::Read(which, length)),
        1 => which.clone().prop_map(Step::Shut),
        1 => (which, prop_oneof![Just(Close::Plain), Just(Close::Reset)])
            .prop_map(|(which, how)| Step::Close(which, how)),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Whatever hosts and clients do, in whatever order: what the guest says is what the protocol allows (the rig
    /// judges every frame), what arrives is what was sent, all of it where nobody broke the connection, and every
    /// tunnel ends.
    #[test]
    fn bytes_arrive_in_order_and_every_tunnel_ends(steps in steps()) {
        let mut rig = Rig::new();
        for step in steps {
            let (opened, connected) = (rig.seen.len(), rig.clients.len());
            match step {
                Step::Connect if connected < 4 => rig.connect(),
                Step::Turn => { rig.turn(Timespec { tv_sec: 0, tv_nsec: 0 }); }
                Step::Grant(which, bytes) if which < opened => rig.grant(which, bytes),
                Step::Send(which, length) if which < opened => rig.send(which, length),
                Step::End(which) if which < opened => rig.end(which),
                Step::Cancel(which) if which < opened => rig.cancel(which),
                Step::Write(which, length) if which < connected => rig.write(which, length),
                Step::Read(which, length) if which < connected => { rig.read(which, length); }
                Step::Shut(which) if which < connected => rig.shut(which),
                Step::Close(which, how) if which < connected => rig.close(which, how),
                _ => {}
            }
        }
        // Everybody comes to an end.
        rig.turn_until(|rig| rig.seen.len() == rig.clients.len());
        for index in 0..rig.seen.len() {
            rig.grant(index, 1 << 30);
            rig.end(index);
            rig.shut(index);
        }
        let mut is_over = false;
        while !is_over {
            is_over = true;
            for index in 0..rig.clients.len() {
                is_over &= !rig.read(index, 1 << 20);
            }
            is_over &= rig.seen.iter().all(|seen| seen.is_done);
            if rig.seen.iter().any(|seen| !seen.is_done) {
                rig.turn(Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
            }
        }
        for (client, seen) in rig.clients.iter().zip(&rig.seen) {
            prop_assert!(client.written.starts_with(&seen.content), "the host gets what the client wrote");
            prop_assert!(seen.sent.starts_with(&client.read), "the client gets what the host sent");
            if !client.is_gone && !seen.has_cancelled {
                prop_assert!(seen.has_eof);
                prop_assert!(client.written == seen.content && seen.sent == client.read, "and all of it");
            }
        }
        prop_assert_eq!(rig.turn(Timespec { tv_sec: 0, tv_nsec: 0 }), 0);
    }
}

#[test]
fn a_host_that_breaks_the_protocol_is_told_apart() {
    type Act = fn(&mut Rig) -> Result<(), FatalError>;
    let cases: [(&str, Act); 6] = [
        ("more data than credit", |rig| {
            // The client does not read, and the kernel does not keep everything for it.
            while rig.seen[0].credit > 0 {
                rig.send(0, 50_000);
            }
            rig.say(FrameKind::Data, 0, vec![0; 2])
        }),
        ("data after the end", |rig| {
            rig.end(0);
            rig.say(FrameKind::Data, 0, vec![0; 2])
        }),
        ("which was never opened", |rig| rig.say(FrameKind::Data, 1, vec![0; 2])),
        ("Open frame", |rig| rig.say(FrameKind::Open, 0, Vec::new())),
        ("four bytes", |rig| rig.say(FrameKind::Credit, 0, vec![1, 2, 3])),
        ("it is empty", |rig| rig.say(FrameKind::Data, 0, Vec::new())),
    ];
    for (words, act) in cases {
        let error = act(&mut Rig::with_one()).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
    }
    let silent = Frame { kind: FrameKind::Eof, channel: FIRST_TUNNEL, payload: Vec::new() };
    let mut cx = TunnelContext { now: Duration::ZERO, frames: &mut FrameQueue::default(), scratch: &mut [] };
    assert!(Tunnels::default().frame(&silent, &mut cx).is_err(), "there is no port");
}

#[test]
fn what_comes_for_a_tunnel_that_is_over_is_ignored() {
    let mut rig = Rig::with_one();
    rig.cancel(0);
    assert!(rig.seen[0].is_done);
    for (kind, payload) in [
        (FrameKind::Data, vec![0; 9]),
        (FrameKind::Credit, vec![0; 4]),
        (FrameKind::Eof, Vec::new()),
        (FrameKind::Cancel, Vec::new()),
    ] {
        rig.say(kind, 0, payload).expect("ignored");
    }
}

#[test]
fn a_cancelled_tunnel_resets_the_client() {
    let mut rig = Rig::with_one();
    rig.cancel(0);
    let stream = rig.clients[0].stream.as_mut().expect("not closed");
    stream.set_nonblocking(false).expect("a socket");
    let error = stream.read(&mut [0; 9]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_client_gets_what_was_sent_before_the_host_let_go_and_has_a_while_to_close() {
    let mut rig = Rig::with_one();
    rig.send(0, 50_000);
    rig.end(0);
    rig.cancel(0);
    // It goes on writing, which nobody wants, and which does not cost it the answer.
    rig.write(0, 100_000);
    rig.turn(TIMEOUT);
    assert!(!rig.seen[0].is_done);
    while rig.clients[0].read.len() < 50_000 {
        assert!(rig.read(0, 50_000));
    }
    assert_eq!(rig.clients[0].read, rig.seen[0].sent);
    rig.shut(0);
    rig.turn_until(|rig| rig.seen[0].is_done);
    assert_eq!(rig.seen[0].content, b"");
}

#[test]
fn a_client_that_does_not_close_after_the_host_let_go_is_closed_in_time() {
    for takes_it in [true, false] {
        let mut rig = Rig::with_one();
        let mut sent = 0;
        // Either little, or more than the kernel keeps for a client that does not read.
        while sent < 1000 || !takes_it && rig.seen[0].credit > 0 {
            rig.send(0, 1000);
            sent += 1000;
        }
        rig.end(0);
        rig.cancel(0);
        let due = rig.tunnels.next_wakeup().expect("its time is bounded");
        rig.now = due - Duration::from_millis(1);
        rig.turn(Timespec { tv_sec: 0, tv_nsec: 0 });
        assert!(!rig.seen[0].is_done);
        rig.now = due;
        rig.turn(Timespec { tv_sec: 0, tv_nsec: 0 });
        assert!(rig.seen[0].is_done);
        assert_eq!(rig.tunnels.next_wakeup(), None);
        while rig.read(0, 1 << 20) {}
        assert_eq!(rig.clients[0].read.len() == sent, takes_it, "what was taken from the host is not lost");
    }
}

#[test]
fn a_client_that_dies_while_the_host_gives_no_credit_is_seen() {
    let mut rig = Rig::with_one();
    rig.write(0, 1000);
    rig.turn(Timespec { tv_sec: 0, tv_nsec: 0 });
    assert_eq!(rig.seen[0].content, b"");
    rig.close(0, Close::Reset);
    rig.turn_until(|rig| rig.seen[0].is_done);
}

#[test]
fn a_connection_that_is_shut_both_ways_and_waits_for_credit_does_not_keep_the_loop_busy() {
    let mut rig = Rig::with_one();
    rig.write(0, 1000);
    rig.shut(0);
    rig.end(0);
    // The kernel reports the hang-up once, and then there is nothing to do.
    while rig.turn(Timespec { tv_sec: 0, tv_nsec: 0 }) > 0 {}
    assert!(!rig.seen[0].is_done);
    rig.grant(0, 400);
    rig.turn_until(|rig| rig.seen[0].content.len() == 400);
    assert!(!rig.seen[0].has_eof);
    // All of it and not a byte more: the end needs no credit.
    rig.grant(0, 600);
    rig.turn_until(|rig| rig.seen[0].is_done);
    assert_eq!(rig.seen[0].content.len(), 1000);
}

#[test]
fn a_half_close_does_not_hide_a_later_reset() {
    let mut rig = Rig::with_one();
    rig.write(0, 1000);
    rig.shut(0);
    while rig.turn(Timespec { tv_sec: 0, tv_nsec: 0 }) > 0 {}
    rig.close(0, Close::Reset);
    rig.turn_until(|rig| rig.seen[0].is_done);
}

#[test]
fn no_more_are_open_than_may_be_and_the_rest_wait() {
    let mut rig = Rig::new();
    for _ in 0..TUNNELS_MAX + 3 {
        rig.connect();
    }
    while rig.turn(Timespec { tv_sec: 0, tv_nsec: 0 }) > 0 {}
    assert_eq!(rig.seen.len(), TUNNELS_MAX);
    let mut over: VecDeque<usize> = (0..2).collect();
    while let Some(index) = over.pop_front() {
        rig.cancel(index);
    }
    rig.turn_until(|rig| rig.seen.len() == TUNNELS_MAX + 2);
}

#[test]
fn a_flood_of_connections_that_nobody_takes_waits_too() {
    let mut rig = Rig::new();
    rig.connect();
    // The host has not read what was said before.
    let content = vec![0; 60_000];
    while rig.frames.has_room_for_data() {
        rig.frames.data(1, StreamId::Stdout, &content);
    }
    let mut accepts = false;
    rig.tunnels.interests(&rig.frames, |_, _, _| accepts = true);
    assert!(!accepts);
    rig.frames.take();
    rig.turn_until(|rig| rig.seen.len() == 1);
}
