//! Tunnels, against a guest that lies and one that does not.

use std::collections::BTreeMap;
use std::sync::Mutex;

use conjure_guest::protocol::{FIRST_TUNNEL, TUNNEL_WINDOW, TUNNELS_MAX};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::mux::TunnelPolicy;
use crate::mux::tunnels::TunnelRead;
use crate::{Gateway, TunnelStream};

fn tunnel(index: u32) -> Frame {
    frame(FrameKind::Tunnel, FIRST_TUNNEL + index, &TUNNEL_WINDOW.to_le_bytes())
}

fn content(index: u32, length: usize) -> Frame {
    data(FIRST_TUNNEL + index, &vec![b'x'; length])
}

fn empty(kind: FrameKind, index: u32) -> Frame {
    frame(kind, FIRST_TUNNEL + index, &[])
}

// ---------------------------------------------------------------------------------------------------------------
// The state machine alone.

fn taken(multiplexer: &mut Multiplexer) -> Poll<u32> {
    multiplexer.poll_tunnel(&mut Context::from_waker(Waker::noop()))
}

fn tunnel_policy() -> (Multiplexer, u32) {
    let mut multiplexer = Multiplexer::new(TunnelPolicy::Accept);
    multiplexer.receive(tunnel(0)).unwrap();
    assert_eq!(taken(&mut multiplexer), Poll::Ready(FIRST_TUNNEL));
    let frames = written(&mut multiplexer);
    assert_eq!(frames, [frame(FrameKind::Credit, FIRST_TUNNEL, &TUNNEL_WINDOW.to_le_bytes())]);
    (multiplexer, FIRST_TUNNEL)
}

fn read(multiplexer: &mut Multiplexer, id: u32) -> Poll<TunnelRead> {
    multiplexer.poll_read_tunnel(id, &mut Context::from_waker(Waker::noop()))
}

fn write(multiplexer: &mut Multiplexer, id: u32, bytes: &[u8]) -> Poll<Option<usize>> {
    multiplexer.poll_write_tunnel(id, bytes, &mut Context::from_waker(Waker::noop()))
}

/// What a guest must not do with tunnels, and what the error says of it.
fn violations() -> Vec<(&'static str, Vec<Frame>)> {
    let over = [1, 2].map(|end| empty(if end == 1 { FrameKind::Eof } else { FrameKind::Done }, 0));
    let too_much = || (0..3).map(|_| content(0, 60_000)).collect::<Vec<_>>();
    vec![
        ("more on channel 2147483648 than it was granted", too_much()),
        ("Data frame for channel 2147483655, which is not open", vec![content(7, 1)]),
        ("Done frame for channel 2147483649, which is not open", vec![empty(FrameKind::Done, 1)]),
        ("opened tunnel 2147483648, and the next one is 2147483649", vec![tunnel(0)]),
        ("opened tunnel 2147483651, and the next one is 2147483649", vec![tunnel(3)]),
        ("whose content had ended", vec![empty(FrameKind::Eof, 0), content(0, 1)]),
        ("whose content had ended", vec![empty(FrameKind::Eof, 0), empty(FrameKind::Eof, 0)]),
        ("which is not open", [&over[..], &[content(0, 1)]].concat()),
        ("which is not open", [&over[1..], &[empty(FrameKind::Done, 0)]].concat()),
        ("more than 256 tunnels", (1..=TUNNELS_MAX as u32).map(tunnel).collect()),
        ("no content of a tunnel", vec![frame(FrameKind::Data, FIRST_TUNNEL, &[1, 2])]),
        ("no content of a tunnel", vec![frame(FrameKind::Done, FIRST_TUNNEL, b"{}")]),
        ("unknown stream", vec![frame(FrameKind::Data, FIRST_TUNNEL, &[9])]),
        ("four bytes", vec![frame(FrameKind::Credit, FIRST_TUNNEL, &[1, 2, 3])]),
        ("four bytes", vec![frame(FrameKind::Tunnel, FIRST_TUNNEL + 1, &[])]),
        ("only a host sends", vec![empty(FrameKind::Cancel, 0)]),
        ("only a host sends", vec![frame(FrameKind::Tunnel, 5, &[0; 4])]),
        ("only a host sends", vec![frame(FrameKind::Eof, 5, &[])]),
    ]
}

#[test]
fn what_a_guest_must_not_do_with_tunnels_is_a_violation() {
    for (words, frames) in violations() {
        let (mut multiplexer, _) = tunnel_policy();
        let last = frames.len() - 1;
        for (index, frame) in frames.into_iter().enumerate() {
            match multiplexer.receive(frame) {
                Ok(()) => assert_ne!(index, last, "{words}"),
                Err(violation) => {
                    assert_eq!(index, last, "{words}");
                    assert!(violation.to_string().contains(words), "{violation}");
                }
            }
        }
    }
    let violation = Multiplexer::default().receive(tunnel(0)).unwrap_err();
    assert!(violation.to_string().contains("no proxy"), "{violation}");
}

#[test]
fn before_a_tunnel_is_taken_the_guest_may_send_nothing() {
    let mut multiplexer = Multiplexer::new(TunnelPolicy::Accept);
    multiplexer.receive(tunnel(0)).unwrap();
    assert_eq!(written(&mut multiplexer), []);
    assert!(multiplexer.receive(content(0, 1)).is_err());
}

#[test]
fn a_tunnel_that_is_over_before_it_is_taken_leaves_nothing() {
    let mut multiplexer = Multiplexer::new(TunnelPolicy::Accept);
    // More of them, one after the other, than may be open.
    for index in 0..1000 {
        multiplexer.receive(tunnel(index)).unwrap();
        multiplexer.receive(empty(FrameKind::Done, index)).unwrap();
    }
    assert_eq!(multiplexer.open_channels(), 0);
    assert!(taken(&mut multiplexer).is_pending());
}

#[test]
fn what_a_guest_grants_does_not_decide_how_much_waits() {
    let (mut multiplexer, id) = tunnel_policy();
    for _ in 0..200 {
        multiplexer.receive(frame(FrameKind::Credit, id, &u32::MAX.to_le_bytes())).unwrap();
    }
    let mut waiting = 0;
    while let Poll::Ready(Some(length)) = write(&mut multiplexer, id, &[0; 50_000]) {
        waiting += length;
    }
    assert_eq!(waiting, TUNNEL_WINDOW as usize);
}

#[test]
fn both_ends_are_told_apart_and_a_reset_from_both() {
    let (mut multiplexer, id) = tunnel_policy();
    multiplexer.receive(content(0, 3)).unwrap();
    multiplexer.receive(empty(FrameKind::Eof, 0)).unwrap();
    assert_eq!(read(&mut multiplexer, id), Poll::Ready(TunnelRead::Bytes(Bytes::from_static(b"xxx"))));
    assert_eq!(read(&mut multiplexer, id), Poll::Ready(TunnelRead::End));
    assert_eq!(write(&mut multiplexer, id, b"yes"), Poll::Ready(Some(3)));
    multiplexer.receive(empty(FrameKind::Done, 0)).unwrap();
    assert_eq!(read(&mut multiplexer, id), Poll::Ready(TunnelRead::End));
    assert_eq!(write(&mut multiplexer, id, b"no"), Poll::Ready(None));
    assert_eq!(written(&mut multiplexer), [], "nobody is there to hear it");

    let (mut multiplexer, id) = tunnel_policy();
    multiplexer.receive(content(0, 3)).unwrap();
    multiplexer.receive(empty(FrameKind::Done, 0)).unwrap();
    assert!(matches!(read(&mut multiplexer, id), Poll::Ready(TunnelRead::Bytes(_))));
    assert_eq!(read(&mut multiplexer, id), Poll::Ready(TunnelRead::Reset));
    multiplexer.release_tunnel(id);
    assert_eq!(multiplexer.open_channels(), 0);
}

#[test]
fn what_was_ended_is_written_before_the_host_lets_go_and_nothing_else_is() {
    let (mut multiplexer, id) = tunnel_policy();
    assert_eq!(write(&mut multiplexer, id, b"all"), Poll::Ready(Some(3)));
    multiplexer.finish_tunnel(id);
    multiplexer.release_tunnel(id);
    let kinds: Vec<_> = written(&mut multiplexer).iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [FrameKind::Data, FrameKind::Eof, FrameKind::Cancel]);
    // What comes is thrown away, and counted all the same.
    multiplexer.receive(content(0, 60_000)).unwrap();
    multiplexer.receive(content(0, 60_000)).unwrap();
    assert!(multiplexer.receive(content(0, 60_000)).is_err());

    let (mut multiplexer, id) = tunnel_policy();
    assert_eq!(write(&mut multiplexer, id, b"some"), Poll::Ready(Some(4)));
    multiplexer.release_tunnel(id);
    let kinds: Vec<_> = written(&mut multiplexer).iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [FrameKind::Cancel]);
    multiplexer.receive(empty(FrameKind::Done, 0)).unwrap();
    assert_eq!(multiplexer.open_channels(), 0);
}

#[test]
fn nothing_is_said_of_a_tunnel_after_the_host_has_let_go_of_it() {
    for is_taken in [false, true] {
        let mut multiplexer = Multiplexer::new(TunnelPolicy::Accept);
        multiplexer.receive(tunnel(0)).unwrap();
        if is_taken {
            assert_eq!(taken(&mut multiplexer), Poll::Ready(FIRST_TUNNEL));
            assert_eq!(written(&mut multiplexer).len(), 1);
        }
        multiplexer.release_tunnel(FIRST_TUNNEL);
        assert_eq!(written(&mut multiplexer), [empty(FrameKind::Cancel, 0)]);
        multiplexer.grant_tunnel(FIRST_TUNNEL, 9);
        assert!(taken(&mut multiplexer).is_pending());
        assert_eq!(written(&mut multiplexer), []);
    }
}

/// One thing that happens to the state machine.
#[derive(Debug, Clone)]
enum Step {
    Receive(u8, u32, Vec<u8>),
    Tunnel(u32),
    Written,
    Take,
    Read(u32),
    Write(u32, usize),
    Grant(u32, u32),
    Finish(u32),
    Release(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = 0_u32..4;
    let payload = prop_oneof![
        3 => Just(Vec::new()),
        2 => (0_usize..40_000).prop_map(|length| vec![0; length]),
        2 => any::<u32>().prop_map(|credit| credit.to_le_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
    ];
    let step = prop_oneof![
        6 => (4_u8..10, index.clone(), payload).prop_map(|(kind, index, payload)| Step::Receive(kind, index, payload)),
        3 => index.clone().prop_map(Step::Tunnel),
        3 => Just(Step::Written),
        3 => Just(Step::Take),
        3 => index.clone().prop_map(Step::Read),
        3 => (index.clone(), 0_usize..100_000).prop_map(|(index, length)| Step::Write(index, length)),
        1 => (index.clone(), any::<u32>()).prop_map(|(index, bytes)| Step::Grant(index, bytes)),
        1 => index.clone().prop_map(Step::Finish),
        1 => index.prop_map(Step::Release),
    ];
    proptest::collection::vec(step, 0..80)
}

/// What a guest knows of a tunnel, and its judgement of what the host says.
#[derive(Debug, Default)]
struct Heard {
    credit: u64,
    content: usize,
    has_ended: bool,
    is_cancelled: bool,
}

proptest! {
    /// Whatever a guest says, and whatever happens on the host: no panic; the host keeps within what the guest granted
    /// and says nothing after its last word, nor after the guest's; what it was given to write is written, unless
    /// the tunnel was let go of; and once the sandbox is lost, nothing is left.
    #[test]
    fn no_sequence_panics_and_the_host_keeps_to_the_protocol(steps in steps()) {
        let mut multiplexer = Multiplexer::new(TunnelPolicy::Accept);
        let mut heard: BTreeMap<u32, Heard> = BTreeMap::new();
        let mut given: BTreeMap<u32, usize> = BTreeMap::new();
        let mut opened = 0;
        for step in steps {
            match step {
                Step::Tunnel(_) | Step::Receive(..) => {
                    let frame = match step {
                        Step::Receive(byte, index, payload) => frame(kind(byte), FIRST_TUNNEL + index, &payload),
                        // Mostly as it should be.
                        Step::Tunnel(offset) => tunnel(opened + offset / 3),
                        _ => unreachable!(),
                    };
                    let (id, kind, credit) = (frame.channel, frame.kind, frame.credit().unwrap_or(0));
                    match multiplexer.receive(frame) {
                        Ok(()) if kind == FrameKind::Tunnel => {
                            opened += 1;
                            heard.insert(id, Heard { credit: credit.into(), ..Heard::default() });
                        }
                        Ok(()) if kind == FrameKind::Credit => heard.get_mut(&id).unwrap().credit += u64::from(credit),
                        Ok(()) if kind == FrameKind::Done => drop(heard.remove(&id)),
                        Ok(()) => {}
                        Err(violation) => {
                            multiplexer.fail(SandboxError::new(SandboxErrorKind::Lost, violation.to_string()));
                        }
                    }
                }
                Step::Written => {
                    for frame in written(&mut multiplexer) {
                        let heard = heard.get_mut(&frame.channel).expect("it is open for the guest");
                        prop_assert!(!heard.is_cancelled);
                        match frame.kind {
                            FrameKind::Data => {
                                let length = frame.data().unwrap().1.len();
                                prop_assert!(!heard.has_ended && length > 0);
                                heard.credit = heard.credit.checked_sub(length as u64).expect("within credit");
                                heard.content += length;
                            }
                            FrameKind::Eof => prop_assert!(!std::mem::replace(&mut heard.has_ended, true)),
                            FrameKind::Cancel => heard.is_cancelled = true,
                            FrameKind::Credit => {}
                            other => prop_assert!(false, "a host does not say {other:?} on a tunnel"),
                        }
                        if heard.has_ended {
                            prop_assert_eq!(heard.content, given.get(&frame.channel).copied().unwrap_or_default());
                        }
                    }
                }
                Step::Take => { let _ = taken(&mut multiplexer); }
                Step::Read(index) => { let _ = read(&mut multiplexer, FIRST_TUNNEL + index); }
                Step::Write(index, length) => {
                    let id = FIRST_TUNNEL + index;
                    if let Poll::Ready(Some(taken)) = write(&mut multiplexer, id, &vec![0; length.max(1)]) {
                        *given.entry(id).or_default() += taken;
                    }
                }
                Step::Grant(index, bytes) => multiplexer.grant_tunnel(FIRST_TUNNEL + index, bytes),
                Step::Finish(index) => multiplexer.finish_tunnel(FIRST_TUNNEL + index),
                Step::Release(index) => multiplexer.release_tunnel(FIRST_TUNNEL + index),
            }
        }
        multiplexer.fail(SandboxError::new(SandboxErrorKind::Lost, "the end"));
        prop_assert_eq!(written(&mut multiplexer), []);
        for id in heard.keys().copied().chain((0..4).map(|index| FIRST_TUNNEL + index)) {
            while let Poll::Ready(TunnelRead::Bytes(_)) = read(&mut multiplexer, id) {}
            prop_assert!(read(&mut multiplexer, id).is_ready());
            prop_assert_eq!(write(&mut multiplexer, id, b"x"), Poll::Ready(None));
            multiplexer.release_tunnel(id);
        }
        for id in 0..opened {
            multiplexer.release_tunnel(FIRST_TUNNEL + id);
        }
        prop_assert_eq!(multiplexer.open_channels(), 0);
    }
}

// ---------------------------------------------------------------------------------------------------------------
// The whole client.

/// Hands the tunnels over to the test, and never ends by itself.
#[derive(Debug)]
struct Handed(UnboundedSender<(TunnelStream, Arc<()>)>, Mutex<Option<&'static str>>);

impl Gateway for Handed {
    fn serve(self: Arc<Self>, tunnel: TunnelStream) -> BoxFuture<'static, ()> {
        let alive = Arc::new(());
        let panic = self.1.lock().unwrap().take();
        let buffered_bytes = Arc::clone(&alive);
        let _ = self.0.send((tunnel, alive));
        async move {
            if let Some(words) = panic {
                panic!("{words}");
            }
            std::future::pending::<()>().await;
            drop(buffered_bytes);
        }
        .boxed()
    }
}

/// Sends back what comes.
#[derive(Debug)]
struct Echo;

impl Gateway for Echo {
    fn serve(self: Arc<Self>, tunnel: TunnelStream) -> BoxFuture<'static, ()> {
        async move {
            let (mut reader, mut writer) = tokio::io::split(tunnel);
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = writer.shutdown().await;
        }
        .boxed()
    }
}

async fn with_gateway(gateway: Arc<dyn Gateway>) -> (Sandbox, Fake) {
    let (mut connector, mut guest) = fake();
    connector.proxy = Some(Proxy { port: 3128, gateway });
    let (sandbox, hello) = tokio::join!(open(&connector), async {
        let hello: Hello = guest.heard().await.unwrap().json().unwrap();
        guest.welcome(PROTOCOL_VERSION).await;
        hello
    });
    assert_eq!(hello.proxy.map(|proxy| proxy.port), Some(3128));
    assert_eq!(hello.env["http_proxy"], "http://127.0.0.1:3128");
    (sandbox.unwrap(), guest)
}

type Tunnels = UnboundedReceiver<(TunnelStream, Arc<()>)>;

async fn handing() -> (Sandbox, Fake, Tunnels) {
    let (sender, tunnels) = unbounded_channel();
    let (sandbox, guest) = with_gateway(Arc::new(Handed(sender, Mutex::new(None)))).await;
    (sandbox, guest, tunnels)
}

impl Fake {
    async fn speak(&mut self, frame: Frame) {
        self.say(frame.kind, frame.channel, &frame.payload).await;
    }
}

/// What comes next, and on which tunnel.
async fn next(guest: &mut Fake) -> (FrameKind, u32, Vec<u8>) {
    let frame = guest.heard().await.expect("the host goes on");
    (frame.kind, frame.channel - FIRST_TUNNEL, frame.payload)
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_is_served_in_both_directions_to_its_end() {
    let (sandbox, mut guest) = with_gateway(Arc::new(Echo)).await;
    for index in 0..2 {
        guest.speak(tunnel(index)).await;
        assert_eq!(next(&mut guest).await, (FrameKind::Credit, index, TUNNEL_WINDOW.to_le_bytes().to_vec()));
        guest.speak(content(index, 5)).await;
        assert_eq!(next(&mut guest).await, (FrameKind::Data, index, b"\0xxxxx".to_vec()));
        guest.speak(empty(FrameKind::Eof, index)).await;
        assert_eq!(next(&mut guest).await.0, FrameKind::Eof);
        assert_eq!(next(&mut guest).await.0, FrameKind::Cancel);
        guest.speak(empty(FrameKind::Done, index)).await;
    }
    assert_eq!(sandbox.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_does_not_read_grants_nothing_and_what_it_read_is_granted_again() {
    let (_sandbox, mut guest, mut tunnels) = handing().await;
    guest.speak(tunnel(0)).await;
    assert_eq!(next(&mut guest).await.0, FrameKind::Credit);
    let (mut stream, _alive) = tunnels.recv().await.unwrap();
    guest.speak(content(0, 60_000)).await;
    let mut buffer = vec![0; 60_000];
    stream.read_exact(&mut buffer[..32_767]).await.unwrap();
    stream.write_all(b"until here").await.unwrap();
    assert_eq!(next(&mut guest).await.0, FrameKind::Data, "no credit came before");
    stream.read_exact(&mut buffer[..1]).await.unwrap();
    assert_eq!(next(&mut guest).await, (FrameKind::Credit, 0, 32_768_u32.to_le_bytes().to_vec()));
}

#[tokio::test(start_paused = true)]
async fn a_stream_fails_as_one_of_tcp_does() {
    let (_sandbox, mut guest, mut tunnels) = handing().await;
    guest.speak(tunnel(0)).await;
    let (mut stream, _alive) = tunnels.recv().await.unwrap();
    assert_eq!(next(&mut guest).await.0, FrameKind::Credit);
    guest.speak(content(0, 2)).await;
    guest.speak(empty(FrameKind::Done, 0)).await;
    let mut all = Vec::new();
    let error = stream.read_to_end(&mut all).await.unwrap_err();
    assert_eq!((error.kind(), all.as_slice()), (std::io::ErrorKind::ConnectionReset, &b"xx"[..]));
    let error = stream.write_all(b"x").await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    stream.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_sandbox_ends_what_serves_its_tunnels() {
    let (sandbox, mut guest, mut tunnels) = handing().await;
    guest.speak(tunnel(0)).await;
    guest.speak(tunnel(1)).await;
    let (mut stream, first) = tunnels.recv().await.unwrap();
    let (_, second) = tunnels.recv().await.unwrap();
    // A gateway in the middle of something.
    let reading = async { stream.read(&mut [0; 9]).await.unwrap_err().kind() };
    let (kind, ()) = tokio::join!(reading, sandbox.cleanup());
    assert_eq!(kind, std::io::ErrorKind::ConnectionReset);
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1), "a task runs on");

    let (sandbox, mut guest, mut tunnels) = handing().await;
    guest.speak(tunnel(0)).await;
    let (mut stream, alive) = tunnels.recv().await.unwrap();
    drop(sandbox);
    assert!(stream.read(&mut [0; 9]).await.is_err());
    guest.ended.await.unwrap();
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_opens_and_ends_tunnels_without_end_waits_for_those_that_are_served() {
    let (sandbox, mut guest, mut tunnels) = handing().await;
    let mut buffered_bytes = Vec::new();
    for index in 0..TUNNELS_MAX as u32 {
        guest.speak(tunnel(index)).await;
        guest.speak(empty(FrameKind::Eof, index)).await;
        buffered_bytes.push(tunnels.recv().await.unwrap());
        guest.speak(empty(FrameKind::Done, index)).await;
    }
    for index in 0..TUNNELS_MAX as u32 {
        guest.speak(tunnel(TUNNELS_MAX as u32 + index)).await;
    }
    // A call that is answered shows that the host has heard all of it; and no further tunnel was handed over.
    let serve = async {
        let open = loop {
            let frame = guest.heard().await.unwrap();
            if frame.kind == FrameKind::Open {
                break frame;
            }
        };
        guest.reply(open.channel, Ok(exited(0))).await;
    };
    let (outcome, ()) = tokio::join!(sandbox.run(Command::new(["true"]), soon()), serve);
    outcome.unwrap();
    assert!(tunnels.try_recv().is_err());
    assert_eq!(sandbox.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_panics_costs_its_tunnel() {
    let (sender, mut tunnels) = unbounded_channel();
    let gateway = Handed(sender, Mutex::new(Some("a bug of the gateway")));
    let (sandbox, mut guest) = with_gateway(Arc::new(gateway)).await;
    guest.speak(tunnel(0)).await;
    assert_eq!(next(&mut guest).await.0, FrameKind::Credit);
    drop(tunnels.recv().await.unwrap());
    assert_eq!(next(&mut guest).await.0, FrameKind::Cancel);
    guest.speak(tunnel(1)).await;
    assert!(tunnels.recv().await.is_some());
    assert_eq!(sandbox.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_breaks_the_protocol_loses_the_sandbox_with_the_reason() {
    for (words, frames) in violations() {
        let (sandbox, mut guest, mut tunnels) = handing().await;
        guest.speak(tunnel(0)).await;
        let (mut stream, _alive) = tunnels.recv().await.unwrap();
        for frame in frames {
            guest.speak(frame).await;
        }
        while guest.heard().await.is_some() {}
        // Whoever serves a tunnel learns of it, once what came before was read.
        let mut all = Vec::new();
        let ended = stream.read_to_end(&mut all).await;
        assert!(ended.is_err() || words.contains("ended") || words.contains("not open"), "{words}");
        let failure = sandbox.failure().unwrap();
        assert_eq!(failure.kind(), SandboxErrorKind::Lost);
        assert!(failure.to_string().contains(words), "{failure}");
    }
    let (sandbox, mut guest) = greeted().await;
    guest.speak(tunnel(0)).await;
    assert_eq!(guest.heard().await, None);
    assert!(sandbox.failure().unwrap().to_string().contains("no proxy"));
}
