//! The state machine alone, with a guest that lies, and with frames at random.

use super::*;

#[test]
fn what_a_guest_must_not_say_is_a_violation() {
    let cases: [(&str, Vec<Frame>); 11] = [
        ("a channel never opened", vec![data(9, b"x")]),
        ("the end of a channel never opened", vec![done(9)]),
        ("more than granted", vec![data(1, b"01234567890")]),
        ("more than granted, in pieces", vec![data(1, b"0123456789"), data(1, b"0")]),
        ("data after the end", vec![done(1), data(1, b"x")]),
        ("two ends", vec![done(1), done(1)]),
        ("a host's frame", vec![frame(FrameKind::Open, 1, b"{}")]),
        ("a second greeting", vec![frame(FrameKind::Welcome, 0, b"{}")]),
        ("data of no stream", vec![frame(FrameKind::Data, 1, &[])]),
        ("a credit of three bytes", vec![frame(FrameKind::Credit, 1, &[1, 2, 3])]),
        ("a reply that is no reply", vec![frame(FrameKind::Done, 1, b"{}")]),
    ];
    for (what, frames) in cases {
        let (mut multiplexer, _) = opened();
        let last = frames.len() - 1;
        for (index, frame) in frames.into_iter().enumerate() {
            assert_eq!(multiplexer.receive(frame).is_err(), index == last, "{what}");
        }
    }
}

#[test]
fn a_request_that_was_not_written_yet_is_not_open_for_the_guest() {
    let mut multiplexer = Multiplexer::default();
    let id = multiplexer.open(&read_request(), Deadline::NEVER).unwrap();
    assert!(multiplexer.receive(done(id)).is_err());
}

#[test]
fn a_request_dropped_before_it_was_written_is_never_written() {
    let mut multiplexer = Multiplexer::default();
    let id = multiplexer.open(&read_request(), Deadline::NEVER).unwrap();
    multiplexer.abandon(id, Deadline::NEVER);
    assert_eq!(written(&mut multiplexer), []);
    assert_eq!(multiplexer.open_channels(), 0);
}

#[test]
fn frames_of_a_dropped_call_are_thrown_away_and_still_counted() {
    let (mut multiplexer, id) = opened();
    multiplexer.abandon(id, Deadline::NEVER);
    let kinds: Vec<_> = written(&mut multiplexer).into_iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [FrameKind::Cancel]);
    multiplexer.receive(data(id, b"0123456789")).unwrap();
    multiplexer.receive(done(id)).unwrap();
    assert_eq!(multiplexer.open_channels(), 0);

    let (mut multiplexer, id) = opened();
    multiplexer.abandon(id, Deadline::NEVER);
    multiplexer.receive(data(id, b"01234")).unwrap();
    assert!(multiplexer.receive(data(id, b"012345")).is_err());
}

#[test]
fn what_came_before_the_sandbox_was_lost_is_still_delivered() {
    let (mut multiplexer, id) = opened();
    let other = multiplexer.open(&read_request(), Deadline::NEVER).unwrap();
    multiplexer.receive(data(id, b"x")).unwrap();
    multiplexer.receive(done(id)).unwrap();
    let lost = SandboxError::new(SandboxErrorKind::Lost, "gone");
    multiplexer.fail(lost.clone());
    multiplexer.fail(SandboxError::new(SandboxErrorKind::Lost, "a later reason"));
    assert_eq!(
        event(&mut multiplexer, id),
        Poll::Ready(Event::Data(StreamId::Content, Bytes::from_static(b"x")))
    );
    assert!(matches!(event(&mut multiplexer, id), Poll::Ready(Event::Done(Ok(_)))));
    assert_eq!(event(&mut multiplexer, other), Poll::Ready(Event::Lost(lost.clone())));
    assert_eq!(multiplexer.open(&read_request(), Deadline::NEVER), Err(lost));
}

#[test]
fn content_waits_for_credit_and_requests_do_not_wait_for_content() {
    let (mut multiplexer, id) = opened();
    let mut context = Context::from_waker(Waker::noop());
    let mut piece = Bytes::from(vec![7; 100_000]);
    assert!(multiplexer.poll_send(id, &mut piece, &mut context).is_pending());
    multiplexer.receive(frame(FrameKind::Credit, id, &70_000_u32.to_le_bytes())).unwrap();
    assert!(multiplexer.poll_send(id, &mut piece, &mut context).is_ready());
    assert!(multiplexer.poll_send(id, &mut piece, &mut context).is_ready());
    assert!(multiplexer.poll_send(id, &mut piece, &mut context).is_pending());
    assert_eq!(piece.len(), 30_000);
    multiplexer.open(&read_request(), Deadline::NEVER).unwrap();
    let frames = written(&mut multiplexer);
    let kinds: Vec<_> = frames.iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [FrameKind::Open, FrameKind::Data, FrameKind::Data]);
    assert_eq!(frames[1].payload.len() + frames[2].payload.len(), 70_002);
}

#[test]
fn single_bytes_of_two_streams_in_turn_cost_little_more_than_their_credit() {
    let credit = 1 << 16;
    let mut multiplexer = Multiplexer::default();
    let id = multiplexer.open(&Open { credit, ..read_request() }, Deadline::NEVER).unwrap();
    written(&mut multiplexer);
    for place in 0..credit {
        let stream = if place % 2 == 0 { StreamId::Stdout } else { StreamId::Stderr };
        multiplexer.receive(frame(FrameKind::Data, id, &[stream as u8, 7])).unwrap();
    }
    assert!(
        multiplexer.buffered_bytes() <= 20 * credit as usize,
        "{} bytes are held",
        multiplexer.buffered_bytes()
    );
}

#[test]
fn content_in_crumbs_comes_out_in_order_whatever_was_taken_between() {
    let mut multiplexer = Multiplexer::default();
    let open = Open { credit: 1 << 20, ..read_request() };
    let id = multiplexer.open(&open, Deadline::NEVER).unwrap();
    written(&mut multiplexer);
    let (mut sent, mut taken) = (Vec::new(), Vec::new());
    let mut take = |multiplexer: &mut Multiplexer, most: usize| {
        for _ in 0..most {
            let Poll::Ready(Event::Data(stream, bytes)) = event(multiplexer, id) else { break };
            taken.extend(bytes.iter().map(|byte| (stream, *byte)));
        }
    };
    for step in 0..3000_usize {
        let stream = if step % 3 == 0 { StreamId::Stderr } else { StreamId::Stdout };
        let size = [1, 1, 0, 1, 4095, 1, 4096, 2, 9000][step % 9];
        let content: Vec<u8> = (0..size).map(|place| (step + place) as u8).collect();
        multiplexer.receive(frame(FrameKind::Data, id, &[&[stream as u8], &content[..]].concat())).unwrap();
        sent.extend(content.iter().map(|byte| (stream, *byte)));
        if step % 50 == 0 {
            take(&mut multiplexer, step % 70);
        }
        if sent.len() > 1_000_000 {
            break;
        }
    }
    take(&mut multiplexer, usize::MAX);
    assert!(taken == sent, "{} of {} bytes", taken.len(), sent.len());
}

#[test]
fn a_guest_that_grants_a_terabyte_is_not_taken_at_its_word() {
    let (mut multiplexer, id) = opened();
    for _ in 0..256 {
        multiplexer.receive(frame(FrameKind::Credit, id, &u32::MAX.to_le_bytes())).unwrap();
    }
    let content = Bytes::from(vec![b'x'; 4 * 1024 * 1024]);
    let mut rest = content.clone();
    let mut context = Context::from_waker(Waker::noop());
    while multiplexer.poll_send(id, &mut rest, &mut context).is_ready() && !rest.is_empty() {}
    assert_eq!(content.len() - rest.len(), 512 * 1024);
    // What was written makes room, and who waits for it is woken.
    multiplexer.take_wakes();
    assert!(!written(&mut multiplexer).is_empty());
    assert_eq!(multiplexer.take_wakes().len(), 1);
    assert!(multiplexer.poll_send(id, &mut rest, &mut context).is_ready());
}

#[test]
fn a_request_longer_than_a_frame_is_refused_with_a_remedy() {
    let mut open = read_request();
    open.request = Request::Read { path: "x".repeat(2 << 20), offset: 0, length: None };
    let error = Multiplexer::default().open(&open, Deadline::NEVER).unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::TooLarge);
    assert!(error.to_string().contains("standard input"), "{error}");
}

/// One thing that happens to the state machine.
#[derive(Debug, Clone)]
enum Step {
    Open,
    Receive(u8, u32, Vec<u8>),
    Write,
    Take(u32),
    Send(u32, usize),
    Grant(u32, u32),
    Finish(u32),
    Cancel(u32),
    Abandon(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = 0_u32..6;
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..12),
        (0_u8..4, 0_usize..30).prop_map(|(stream, length)| [vec![stream], vec![0; length]].concat()),
        Just(done(0).payload),
        any::<u32>().prop_map(|credit| credit.to_le_bytes().to_vec()),
    ];
    let step = prop_oneof![
        2 => Just(Step::Open),
        6 => (1_u8..9, id.clone(), payload).prop_map(|(kind, id, payload)| Step::Receive(kind, id, payload)),
        2 => Just(Step::Write),
        2 => id.clone().prop_map(Step::Take),
        1 => (id.clone(), 0_usize..100_000).prop_map(|(id, length)| Step::Send(id, length)),
        1 => (id.clone(), any::<u32>()).prop_map(|(id, bytes)| Step::Grant(id, bytes)),
        1 => id.clone().prop_map(Step::Finish),
        1 => id.clone().prop_map(Step::Cancel),
        1 => id.prop_map(Step::Abandon),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    /// Whatever a guest says and whatever calls do: no panic, and once the sandbox failed, every channel of a
    /// call ends and none is left.
    #[test]
    fn no_sequence_panics_and_every_call_ends(steps in steps()) {
        let mut multiplexer = Multiplexer::default();
        let mut context = Context::from_waker(Waker::noop());
        for step in steps {
            match step {
                Step::Open => { let _ = multiplexer.open(&read_request(), Deadline::NEVER); }
                Step::Receive(byte, id, payload) => {
                    if let Err(violation) = multiplexer.receive(frame(kind(byte), id, &payload)) {
                        multiplexer.fail(SandboxError::new(SandboxErrorKind::Lost, violation.to_string()));
                    }
                }
                Step::Write => { written(&mut multiplexer); }
                Step::Take(id) => { let _ = event(&mut multiplexer, id); }
                Step::Send(id, length) => {
                    let _ = multiplexer.poll_send(id, &mut Bytes::from(vec![0; length]), &mut context);
                }
                Step::Grant(id, bytes) => multiplexer.grant(id, bytes),
                Step::Finish(id) => multiplexer.finish(id),
                Step::Cancel(id) => multiplexer.cancel(id, Deadline::NEVER),
                Step::Abandon(id) => multiplexer.abandon(id, Deadline::NEVER),
            }
        }
        multiplexer.fail(SandboxError::new(SandboxErrorKind::Lost, "the end"));
        for id in 0..70 {
            while let Poll::Ready(Event::Data(..)) = event(&mut multiplexer, id) {}
        }
        prop_assert_eq!(multiplexer.open_channels(), 0);
    }
}
