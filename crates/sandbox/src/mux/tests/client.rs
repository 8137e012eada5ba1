//! The whole client, over a duplex pipe whose other end the test holds.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_call_goes_out_and_its_reply_comes_back() {
    let (sandbox, mut guest) = greeted().await;
    let call = sandbox.run(Command::new(["true"]), soon());
    let serve = async {
        let open = guest.heard().await.unwrap();
        let request: Open = open.json().unwrap();
        assert_eq!((open.kind, request.timeout_ms), (FrameKind::Open, Some(5000)));
        guest.reply(open.channel, Ok(exited(3))).await;
    };
    let (outcome, ()) = tokio::join!(call, serve);
    assert_eq!(outcome.unwrap().end, CommandEnd::Exited(3));
}

#[tokio::test(start_paused = true)]
async fn another_version_is_an_error_that_says_so() {
    let (connector, mut guest) = fake();
    let (sandbox, ()) = tokio::join!(open(&connector), guest.greet(PROTOCOL_VERSION + 1));
    let error = sandbox.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unavailable);
    assert!(error.to_string().contains(&format!("speaks version {}", PROTOCOL_VERSION + 1)), "{error}");
    guest.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_cannot_confine_itself_says_why_and_is_ended() {
    let (connector, mut guest) = fake();
    let refuse = async {
        assert_eq!(guest.heard().await.unwrap().kind, FrameKind::Hello);
        let failure = SetupError {
            step: SetupStep::Namespaces,
            errno: 28,
            doing: "make namespaces".to_owned(),
            reason: "No space left on device".to_owned(),
        };
        guest.say(FrameKind::Done, 0, &serde_json::to_vec(&failure).unwrap()).await;
    };
    let (sandbox, ()) = tokio::join!(open(&connector), refuse);
    let error = sandbox.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unavailable);
    assert!(error.to_string().contains("make namespaces: No space"), "{error}");
    guest.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_achieves_less_than_its_kind_promised_and_the_floor_demands_is_ended() {
    let (connector, mut guest) = fake();
    let mut context = ExecutionContext::new("/");
    context.floor = Isolation { network: Boundary::Enforced, ..Isolation::NONE };
    let deadline = SystemClock.deadline(Duration::from_secs(10));
    let opened = Sandbox::open(&connector, &context, Arc::new(SystemClock), deadline);
    let (sandbox, ()) = tokio::join!(opened, guest.greet(PROTOCOL_VERSION));
    let error = sandbox.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::NotEnforced);
    assert!(error.to_string().contains("demanded of it: network"), "{error}");
    guest.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_greets_is_given_up_and_killed() {
    let (connector, guest) = fake();
    assert_eq!(open(&connector).await.unwrap_err().kind(), SandboxErrorKind::TimedOut);
    guest.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_answer_is_killed_and_the_call_is_lost() {
    let (sandbox, guest) = greeted().await;
    let error = sandbox.run(Command::new(["true"]), soon()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Lost);
    assert!(error.to_string().contains("did not answer"), "{error}");
    assert_eq!(sandbox.view("x", None, 1, soon()).await.unwrap_err().kind(), SandboxErrorKind::Lost);
    guest.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_ignores_a_dropped_call_is_killed_too() {
    let (sandbox, mut guest) = greeted().await;
    let forever = CallOptions::until(Deadline::NEVER);
    let call = sandbox.run(Command::new(["true"]), forever);
    let opened = async { assert_eq!(guest.heard().await.unwrap().kind, FrameKind::Open) };
    tokio::select! {
        _ = call => panic!("nobody answered"),
        () = opened => {}
    }
    assert_eq!(guest.heard().await.unwrap().kind, FrameKind::Cancel);
    assert_eq!(guest.heard().await, None);
    guest.ended.await.unwrap();
    assert_eq!(sandbox.failure().unwrap().kind(), SandboxErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn cancelling_waits_for_what_the_guest_knows() {
    let (sandbox, mut guest) = greeted().await;
    let options = CallOptions::until(Deadline::NEVER);
    let cancel = options.cancel.clone();
    let serve = async {
        let open = guest.heard().await.unwrap();
        cancel.cancel();
        assert_eq!(guest.heard().await.unwrap().kind, FrameKind::Cancel);
        guest.reply(open.channel, Err(GuestError { code: ErrorCode::Cancelled, message: "x".into() })).await;
    };
    let (outcome, ()) = tokio::join!(sandbox.view("x", None, 1, options), serve);
    assert_eq!(outcome.unwrap_err().kind(), SandboxErrorKind::Cancelled);
    assert_eq!(sandbox.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_stream_loses_all_calls() {
    let (sandbox, guest) = greeted().await;
    let (first, second) =
        (sandbox.run(Command::new(["a"]), soon()), sandbox.run(Command::new(["b"]), soon()));
    let (first, second, ()) = tokio::join!(first, second, async { drop(guest.stream) });
    for outcome in [first, second] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::Lost, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_to_something_else_and_wrong_counts_lose_the_sandbox() {
    let mut counts = exited(0);
    if let Reply::Exec(reply) = &mut counts {
        reply.stdout.head = 5;
    }
    for reply in [Reply::Read { size: 1 }, counts] {
        let (sandbox, mut guest) = greeted().await;
        let serve = async {
            let open = guest.heard().await.unwrap();
            guest.reply(open.channel, Ok(reply)).await;
        };
        let (outcome, ()) = tokio::join!(sandbox.run(Command::new(["true"]), soon()), serve);
        assert_eq!(outcome.unwrap_err().kind(), SandboxErrorKind::Lost);
        assert_eq!(sandbox.failure().unwrap().kind(), SandboxErrorKind::Lost);
        guest.ended.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_polled_grants_nothing_and_delays_no_other() {
    let (sandbox, mut guest) = greeted().await;
    let (content, channel) = tokio::join!(sandbox.read("big", soon()), async {
        let open = guest.heard().await.unwrap();
        let mut left = open.json::<Open>().unwrap().credit as usize;
        while left > 0 {
            let size = left.min(60_000);
            guest.say(FrameKind::Data, open.channel, &vec![0; size + 1]).await;
            left -= size;
        }
        open.channel
    });
    let mut content = content.unwrap();

    // While it is full, another call passes, and no credit was granted.
    let serve = async {
        let open = guest.heard().await.unwrap();
        assert_eq!(open.kind, FrameKind::Open);
        guest.reply(open.channel, Ok(exited(0))).await;
    };
    let (outcome, ()) = tokio::join!(sandbox.run(Command::new(["true"]), soon()), serve);
    outcome.unwrap();

    // Taking it grants what was taken.
    let mut taken = 0;
    let grant = loop {
        tokio::select! {
            biased;
            frame = guest.heard() => break frame.unwrap(),
            piece = content.next() => taken += piece.unwrap().unwrap().len(),
        }
    };
    assert_eq!((grant.kind, grant.channel), (FrameKind::Credit, channel));
    assert!(grant.credit().unwrap() as usize <= taken);
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_content_cancels_the_write_and_is_what_the_caller_sees() {
    let (sandbox, mut guest) = greeted().await;
    let failure = SandboxError::new(SandboxErrorKind::Io, "the source broke");
    let content = futures_util::stream::iter([Ok(Bytes::from_static(b"abc")), Err(failure.clone())]).boxed();
    let serve = async {
        let open = guest.heard().await.unwrap();
        guest.say(FrameKind::Credit, open.channel, &100_u32.to_le_bytes()).await;
        let mut kinds = Vec::new();
        while kinds.last() != Some(&FrameKind::Cancel) {
            kinds.push(guest.heard().await.unwrap().kind);
        }
        assert!(!kinds.contains(&FrameKind::Eof), "{kinds:?}");
        guest.reply(open.channel, Err(GuestError { code: ErrorCode::Cancelled, message: "x".into() })).await;
    };
    let (outcome, ()) = tokio::join!(sandbox.write("x", content, soon()), serve);
    assert_eq!(outcome.unwrap_err(), failure);
}

#[tokio::test(start_paused = true)]
async fn a_started_program_yields_pieces_and_then_the_outcome() {
    let (sandbox, mut guest) = greeted().await;
    let process = sandbox.start(Command::new(["true"]), soon()).await.unwrap();
    let open = guest.heard().await.unwrap();
    guest.say(FrameKind::Data, open.channel, b"\x01out").await;
    guest.say(FrameKind::Data, open.channel, b"\x02err").await;
    guest.reply(open.channel, Ok(exited(0))).await;
    assert_eq!(process.next_event().await.unwrap(), RunEvent::Stdout(Bytes::from_static(b"out")));
    assert_eq!(process.next_event().await.unwrap(), RunEvent::Stderr(Bytes::from_static(b"err")));
    assert!(matches!(process.next_event().await, Ok(RunEvent::Ended(_))));
    process.next_event().await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_closes_the_stream_and_a_content_stream_is_one() {
    let (sandbox, mut guest) = greeted().await;
    let serve = async {
        let open = guest.heard().await.unwrap();
        assert_eq!(open.kind, FrameKind::Open);
        guest.say(FrameKind::Data, open.channel, &[StreamId::Content as u8, b'x']).await;
    };
    let (content, ()) = tokio::join!(sandbox.read("x", soon()), serve);
    drop(sandbox);
    let mut content = content.unwrap();
    assert_eq!(content.next().await.unwrap().unwrap(), Bytes::from_static(b"x"));
    drop(content);
    while guest.heard().await.is_some() {}
    guest.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cleanup_may_be_called_twice_and_calls_after_it_are_lost() {
    let (sandbox, guest) = greeted().await;
    let call = sandbox.run(Command::new(["true"]), CallOptions::until(Deadline::NEVER));
    let (outcome, (), ()) = tokio::join!(call, sandbox.cleanup(), sandbox.cleanup());
    assert_eq!(outcome.unwrap_err().kind(), SandboxErrorKind::Lost);
    guest.ended.await.unwrap();
    sandbox.cleanup().await;
    assert_eq!(sandbox.init().await.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(sandbox.run(Command::new(["x"]), soon()).await.unwrap_err().kind(), SandboxErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_up_is_never_sent() {
    let (sandbox, mut guest) = greeted().await;
    let past = CallOptions::until(SystemClock.deadline(Duration::ZERO));
    assert_eq!(sandbox.run(Command::new(["x"]), past).await.unwrap_err().kind(), SandboxErrorKind::TimedOut);
    let cancelled = soon();
    cancelled.cancel.cancel();
    let error = sandbox.run(Command::new(["x"]), cancelled).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Cancelled);
    drop(sandbox);
    assert_eq!(guest.heard().await, None);
}

/// What a hostile guest writes.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let framed = (1_u8..9, 0_u32..4, proptest::collection::vec(any::<u8>(), 0..64)).prop_map(
        |(byte, channel, payload)| {
            let mut bytes = Vec::new();
            encode_into(&mut bytes, kind(byte), channel, &payload).unwrap();
            bytes
        },
    );
    let piece = prop_oneof![
        3 => framed,
        1 => proptest::collection::vec(any::<u8>(), 0..64),
        1 => Just({ let mut bytes = Vec::new(); let done = done(1);
            encode_into(&mut bytes, done.kind, 1, &done.payload).unwrap(); bytes }),
    ];
    proptest::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// Whatever bytes come: both calls end, and the sandbox can be closed.
    #[test]
    fn no_bytes_hang_or_panic_a_call(bytes in garbage()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let (sandbox, mut guest) = greeted().await;
            let run = sandbox.run(Command::new(["true"]), soon());
            let read = async {
                match sandbox.read("x", soon()).await {
                    Ok(content) => content.collect::<Vec<_>>().await.len(),
                    Err(_) => 0,
                }
            };
            let hostile = async {
                let _ = guest.heard().await;
                let _ = guest.stream.write_all(&bytes).await;
                // The stream stays open: that the calls end must not depend on its end.
                while guest.heard().await.is_some() {}
            };
            let calls = async {
                let _ = tokio::join!(run, read);
                sandbox.cleanup().await;
            };
            tokio::join!(calls, hostile);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_its_end_are_calls_and_another_reply_loses_the_sandbox() {
    let (sandbox, mut guest) = greeted().await;
    let serve = async |guest: &mut Fake, expected: Request, reply: Reply| {
        let open = guest.heard().await.unwrap();
        assert_eq!(open.json::<Open>().unwrap().request, expected);
        guest.reply(open.channel, Ok(reply)).await;
    };
    let paused = Reply::Pause { processes: 2 };
    let (done, ()) = tokio::join!(sandbox.pause(soon()), serve(&mut guest, Request::Pause, paused.clone()));
    done.unwrap();
    let resumed = Reply::Resume { processes: 2 };
    let (done, ()) = tokio::join!(sandbox.resume(soon()), serve(&mut guest, Request::Resume, resumed));
    done.unwrap();
    let refused = async {
        let open = guest.heard().await.unwrap();
        let error = GuestError { code: ErrorCode::BadRequest, message: "a program runs".to_owned() };
        guest.reply(open.channel, Err(error)).await;
    };
    let (done, ()) = tokio::join!(sandbox.pause(soon()), refused);
    assert_eq!(done.unwrap_err().kind(), SandboxErrorKind::BadRequest);
    assert!(sandbox.failure().is_none());
    let (done, ()) = tokio::join!(sandbox.resume(soon()), serve(&mut guest, Request::Resume, paused));
    assert_eq!(done.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert!(sandbox.failure().is_some());
}
