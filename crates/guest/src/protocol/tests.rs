//! Properties of the codec.

use proptest::prelude::*;

use super::*;

fn kind() -> impl Strategy<Value = FrameKind> {
    prop::sample::select(vec![
        FrameKind::Hello,
        FrameKind::Welcome,
        FrameKind::Open,
        FrameKind::Data,
        FrameKind::Credit,
        FrameKind::Eof,
        FrameKind::Cancel,
        FrameKind::Done,
        FrameKind::Tunnel,
    ])
}

fn frame() -> impl Strategy<Value = Frame> {
    let payload = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (0..=PAYLOAD_MAX, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ];
    (kind(), any::<u32>(), payload).prop_map(|(kind, channel, payload)| Frame { kind, channel, payload })
}

fn encode(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        encode_into(&mut bytes, frame.kind, frame.channel, &frame.payload).expect("not too long");
    }
    bytes
}

/// Decodes `bytes`, in chunks of the given sizes, repeatedly.
fn decode(bytes: &[u8], sizes: &[usize]) -> (Vec<Frame>, Decoder, Result<(), FrameError>) {
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        let (piece, after) = rest.split_at(rest.len().min(*size));
        decoder.push(piece);
        rest = after;
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, decoder, Err(error)),
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    (frames, decoder, Ok(()))
}

proptest! {
    #[test]
    fn frames_come_back_however_the_stream_is_cut(
        frames in prop::collection::vec(frame(), 0..8),
        sizes in prop::collection::vec(1_usize..70_000, 1..6),
    ) {
        let bytes = encode(&frames);
        let (decoded, decoder, result) = decode(&bytes, &sizes);
        prop_assert_eq!(result, Ok(()));
        prop_assert!(decoded == frames, "frames changed on their way");
        prop_assert!(decoder.is_at_boundary());
    }

    #[test]
    fn a_stream_that_ends_early_is_seen(frame in frame(), cut in any::<prop::sample::Index>()) {
        let bytes = encode(&[frame]);
        let cut = cut.index(bytes.len());
        let (decoded, decoder, result) = decode(&bytes[..cut], &[bytes.len()]);
        prop_assert_eq!((decoded.len(), result), (0, Ok(())));
        prop_assert_eq!(decoder.is_at_boundary(), cut == 0);
    }

    #[test]
    fn any_bytes_are_frames_or_an_error_in_little_memory(
        bytes in prop::collection::vec(any::<u8>(), 0..4000),
        sizes in prop::collection::vec(1_usize..50, 1..6),
    ) {
        let (decoded, decoder, _) = decode(&bytes, &sizes);
        let taken: usize = decoded.iter().map(|frame| HEADER_LEN + frame.payload.len()).sum();
        prop_assert!(taken <= bytes.len());
        prop_assert!(decoder.buffered() <= bytes.len() + 50, "nothing is allocated for what a header claims");
        for frame in decoded {
            // Typed errors, never a panic.
            let _ = frame.data();
            let _ = frame.credit();
            let _ = frame.json::<Open>();
            let _ = frame.json::<Hello>();
        }
    }

    #[test]
    fn headers_are_checked_before_their_payload_comes(length in any::<u32>(), kind in any::<u8>(), channel in any::<u32>()) {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.push(kind);
        bytes.extend(channel.to_le_bytes());
        let (decoded, _, result) = decode(&bytes, &[bytes.len()]);
        let is_known = (1..=9).contains(&kind);
        match result {
            Err(FrameError::UnknownKind(told)) => prop_assert!(!is_known && told == kind),
            Err(FrameError::TooLong(told)) => prop_assert!(is_known && told == length && length as usize > PAYLOAD_MAX),
            Err(error) => prop_assert!(false, "{error}"),
            Ok(()) => prop_assert!(is_known && length as usize <= PAYLOAD_MAX && decoded.len() == usize::from(length == 0)),
        }
    }

    #[test]
    fn data_frames_are_the_same_both_ways(
        channel in any::<u32>(),
        stream in prop::sample::select(vec![StreamId::Content, StreamId::Stdout, StreamId::Stderr]),
        content in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut short = Vec::new();
        encode_data_into(&mut short, channel, stream, &content).expect("not too long");
        let payload = [&[stream as u8], content.as_slice()].concat();
        prop_assert_eq!(&short, &encode(&[Frame { kind: FrameKind::Data, channel, payload }]));
        let (frames, ..) = decode(&short, &[short.len()]);
        prop_assert_eq!(frames[0].data(), Ok((stream, content.as_slice())));
    }

    #[test]
    fn a_decoder_holds_no_more_than_one_frame_and_one_piece(count in 1_usize..40, size in 1_usize..200_000) {
        let mut bytes = Vec::new();
        for channel in 0..count {
            encode_into(&mut bytes, FrameKind::Data, channel as u32, &vec![0; 50_000]).expect("not too long");
        }
        let mut decoder = Decoder::new();
        let mut seen = 0;
        for piece in bytes.chunks(size) {
            decoder.push(piece);
            prop_assert!(decoder.buffered() <= HEADER_LEN + 50_000 + size);
            while decoder.next_frame().expect("a frame").is_some() {
                seen += 1;
            }
        }
        prop_assert_eq!(seen, count);
    }

    #[test]
    fn requests_come_back(
        argv in prop::collection::vec(any::<String>(), 0..4),
        name in any::<String>(),
        value in any::<String>(),
        limits in (any::<u32>(), any::<u32>(), any::<u64>()),
        timeout_ms in any::<Option<u64>>(),
    ) {
        let request = Request::Exec(ExecRequest {
            argv,
            env: [(name, value)].into(),
            cwd: None,
            stdin: StdinMode::Stream,
            output: OutputMode::Capture(CaptureLimits { head: limits.0, tail: limits.1, spill: limits.2 }),
            merge_stderr: false,
            limits: ProcessLimits { cpu_seconds: timeout_ms, ..ProcessLimits::default() },
            lifetime: if limits.0 % 2 == 0 { ProgramLifetime::Call } else { ProgramLifetime::Session },
        });
        let open = Open { request, credit: limits.0, timeout_ms };
        let payload = serde_json::to_vec(&open).expect("JSON");
        prop_assert_eq!(Frame { kind: FrameKind::Open, channel: 1, payload }.json::<Open>(), Ok(open));
    }
}

#[test]
fn pause_and_resume_round_trip() {
    for request in [Request::Pause, Request::Resume] {
        let open = Open { request, credit: 0, timeout_ms: Some(1) };
        let payload = serde_json::to_vec(&open).expect("JSON");
        assert_eq!(Frame { kind: FrameKind::Open, channel: 1, payload }.json::<Open>(), Ok(open));
    }
    for reply in [Reply::Pause { processes: u64::MAX }, Reply::Resume { processes: 0 }] {
        let payload = serde_json::to_vec(&reply).expect("JSON");
        assert_eq!(Frame { kind: FrameKind::Done, channel: 1, payload }.json::<Reply>(), Ok(reply));
    }
}

#[test]
fn what_is_too_long_is_refused_and_leaves_no_half_frame() {
    let mut bytes = vec![7];
    let long = vec![0; PAYLOAD_MAX + 1];
    assert!(matches!(encode_into(&mut bytes, FrameKind::Done, 1, &long), Err(FrameError::TooLong(_))));
    let content = &long[..=DATA_MAX];
    assert!(matches!(
        encode_data_into(&mut bytes, 1, StreamId::Stdout, content),
        Err(FrameError::TooLong(_))
    ));
    assert_eq!(bytes, [7]);
    let payload = [&[1], content].concat();
    assert!(Frame { kind: FrameKind::Data, channel: 1, payload }.data().is_err());
}

#[test]
fn an_error_quotes_little_of_what_the_other_side_wrote_and_nothing_that_a_terminal_obeys() {
    let payload = format!("{{\"op\\u001b[31m\\n{}\": 1}}", "x".repeat(PAYLOAD_MAX / 2)).into_bytes();
    let error = Frame { kind: FrameKind::Done, channel: 1, payload }.json::<Reply>().expect_err("no reply");
    let text = error.to_string();
    assert!(text.contains("unknown variant") && text.contains('\u{FFFD}'), "{text}");
    assert!(text.len() < 1000 && !text.contains(char::is_control), "{} bytes", text.len());
}
