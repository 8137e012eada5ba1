//! A fuzz campaign over the frame protocol, as either side reads it; `examples/campaign` says how to run it.
//!
//! `frames`: frames are cut into pieces anywhere, then damaged. Whole and in pieces they must decode to the same; what
//! decodes must encode to the bytes it came from. `messages`: damaged payloads must be a typed error, short and in
//! one line, or a message that comes back the same from its own JSON.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a campaign is run by hand, prints what it found and fails loudly"
)]

#[path = "../../../examples/campaign/mod.rs"]
mod campaign;

use campaign::Random;
use conjure_guest::protocol::{
    DATA_MAX, Decoder, ErrorCode, Frame, FrameError, FrameKind, GuestError, Hello, Open, PAYLOAD_MAX, Reply,
    SetupError, Welcome, encode_data_into, encode_into,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

const KINDS: [FrameKind; 9] = [
    FrameKind::Hello,
    FrameKind::Welcome,
    FrameKind::Open,
    FrameKind::Data,
    FrameKind::Credit,
    FrameKind::Eof,
    FrameKind::Cancel,
    FrameKind::Done,
    FrameKind::Tunnel,
];

const MESSAGES: [(FrameKind, &str); 27] = [
    (
        FrameKind::Hello,
        r#"{"version":1,"roots":[{"path":"/w","access":"read_write"},{"path":"/s","access":"read_only"}],"workdir":"/w","env":{"A":"b"},"spill_dir":"/w/.s"}"#,
    ),
    (FrameKind::Hello, r#"{"version":1,"roots":[],"workdir":"/","env":{},"spill_dir":null}"#),
    (FrameKind::Welcome, r#"{"version":1,"pid":7}"#),
    (
        FrameKind::Open,
        r#"{"request":{"op":"exec","argv":["bash","-c","x"],"env":{"A":"b"},"cwd":null,"stdin":"stream","output":{"capture":{"head":1,"tail":2,"spill":3}},"merge_stderr":true},"credit":9,"timeout_ms":5000}"#,
    ),
    (
        FrameKind::Open,
        r#"{"request":{"op":"exec","argv":[],"env":{},"cwd":"/","stdin":"null","output":"stream","merge_stderr":false},"credit":0,"timeout_ms":null}"#,
    ),
    (
        FrameKind::Open,
        r#"{"request":{"op":"view","path":"a","range":{"first":1,"last":null},"max_bytes":99},"credit":1,"timeout_ms":1}"#,
    ),
    (FrameKind::Open, r#"{"request":{"op":"write","path":"a","mode":420},"credit":1,"timeout_ms":1}"#),
    (
        FrameKind::Open,
        r#"{"request":{"op":"replace","path":"a","old":"\u00e9\ud83e\udd80","new":""},"credit":1,"timeout_ms":1}"#,
    ),
    (
        FrameKind::Open,
        r#"{"request":{"op":"list","path":"a","depth":2,"max_entries":10,"hidden":true},"credit":1,"timeout_ms":1}"#,
    ),
    (
        FrameKind::Open,
        r#"{"request":{"op":"read","path":"a","offset":18446744073709551615,"length":null},"credit":4294967295,"timeout_ms":1}"#,
    ),
    (
        FrameKind::Done,
        r#"{"Ok":{"exec":{"end":{"exited":-1},"stdout":{"total":3,"head":1,"tail":1,"spill_path":"/s","spilled":3},"stderr":{"total":0,"head":0,"tail":0,"spill_path":null,"spilled":0},"duration_us":5}}}"#,
    ),
    (
        FrameKind::Done,
        r#"{"Ok":{"view":{"text":{"first_line":1,"last_line":2,"total_lines":3,"size":9,"truncated":false}}}}"#,
    ),
    (FrameKind::Done, r#"{"Ok":{"view":{"image":{"media_type":"image/png","size":9}}}}"#),
    (
        FrameKind::Done,
        r#"{"Ok":{"view":{"directory":{"entries":[{"path":"a","kind":"symlink","size":0,"modified_ns":-1}],"truncated":true}}}}"#,
    ),
    (FrameKind::Done, r#"{"Ok":{"write":{"size":1,"existed":true}}}"#),
    (FrameKind::Done, r#"{"Ok":{"list":{"entries":[],"truncated":false}}}"#),
    (FrameKind::Done, r#"{"Ok":{"read":{"size":1}}}"#),
    (FrameKind::Open, r#"{"request":{"op":"pause"},"credit":0,"timeout_ms":5000}"#),
    (FrameKind::Open, r#"{"request":{"op":"resume"},"credit":0,"timeout_ms":null}"#),
    (FrameKind::Done, r#"{"Ok":{"pause":{"processes":3}}}"#),
    (FrameKind::Done, r#"{"Ok":{"resume":{"processes":0}}}"#),
    (
        FrameKind::Done,
        r#"{"Ok":{"exec":{"end":"out_of_memory","stdout":{"total":0,"head":0,"tail":0,"spill_path":null,"spilled":0},"stderr":{"total":0,"head":0,"tail":0,"spill_path":null,"spilled":0},"duration_us":5}}}"#,
    ),
    (FrameKind::Done, r#"{"Err":{"code":"not_found","message":"`a` is not there"}}"#),
    (
        FrameKind::Hello,
        r#"{"version":1,"roots":[],"workdir":"/","env":{},"spill_dir":null,"proxy":{"port":65535},"rules":{"syscalls":"guarded","files":{"only":{"read":["/usr"],"write":["/w"],"devices":[]}},"limits":{"core_bytes":0,"processes":9}}}"#,
    ),
    (
        FrameKind::Hello,
        r#"{"version":1,"roots":[],"workdir":"/","env":{},"spill_dir":null,"jail":{"identity":{"become_user":{"dedicated":9},"uid":1,"gid":1},"hostname":"h","places":[{"path":"/tmp","is":{"tmpfs":{"bytes":1,"inodes":2,"mode":1023,"access":"read_write"}}},{"path":"/p","is":"proc"},{"path":"/w","is":{"bind":{"source":"/w","access":"read_only","content":"data","links":"refused","missing":"left_out","owner":{"mapped":{"uid":1,"gid":2}}}}}],"output":{"source":"/o","path":"/o","owner":"kept"},"cgroups":["/sys/fs/cgroup/a"]}}"#,
    ),
    (
        FrameKind::Welcome,
        r#"{"version":1,"pid":7,"confinement":{"handed_over":["/w"]},"rules":{"syscalls":"yes","files":{"no":"why"},"landlock_abi":4}}"#,
    ),
    (FrameKind::Tunnel, r#"{"step":"user_map","errno":-1,"doing":"map","reason":"no"}"#),
];

const WORDS: [&str; 20] = [
    "null",
    "true",
    "-1",
    "1e400",
    "\"\"",
    "\"op\"",
    "\"exec\"",
    "\"view\"",
    "\"Ok\"",
    "\"Err\"",
    "{}",
    "[]",
    "[[[[[[[[",
    "{\"a\":",
    "\\ud800",
    "\\u0000",
    "\u{1b}[31m",
    "\n",
    "é",
    "stream",
];

/// Pieces and the whole are held once each, with the longest frames in them several times over.
const MOST_MEMORY: u64 = 32 << 20;

fn main() {
    campaign::run(MOST_MEMORY, &mut [("frames", &mut frames), ("messages", &mut messages)]);
}

fn frame(random: &mut Random) -> Frame {
    let kind = random.pick(&KINDS);
    let length = match random.below(4000) {
        0 => random.pick(&[DATA_MAX, DATA_MAX + 1, DATA_MAX + 2, PAYLOAD_MAX - 1, PAYLOAD_MAX]),
        1..2000 => random.below(8),
        _ => random.below(70),
    };
    let mut payload = vec![random.next() as u8; length];
    match kind {
        FrameKind::Data if length > 0 => payload[0] = random.below(4) as u8,
        FrameKind::Credit if random.below(4) > 0 => payload = (random.next() as u32).to_le_bytes().to_vec(),
        FrameKind::Done | FrameKind::Open if random.below(4) == 0 => {
            payload = random.pick(&MESSAGES).1.as_bytes().to_vec();
        }
        _ => {}
    }
    let channel = if random.below(2) == 0 { random.below(4) as u32 } else { random.next() as u32 };
    Frame { kind, channel, payload }
}

type Decoded = (Vec<Frame>, Option<FrameError>, bool);

fn decode<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> Decoded {
    let (mut decoder, mut frames) = (Decoder::new(), Vec::new());
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error), false),
            }
        }
    }
    (frames, None, decoder.is_at_boundary())
}

fn encode(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        encode_into(&mut bytes, frame.kind, frame.channel, &frame.payload).unwrap();
    }
    bytes
}

/// Decodes in pieces of all kinds; each must give what the whole gives.
fn decode_every_way(bytes: &[u8], random: &mut Random) -> Decoded {
    let whole = decode([bytes]);
    let size = 1 + random.below(if bytes.len() > 10_000 { 100_000 } else { 40 });
    assert!(decode(bytes.chunks(size)) == whole, "pieces of {size}");
    let places = if bytes.len() < 100 && random.below(8) == 0 {
        0..=bytes.len()
    } else {
        let place = random.below(bytes.len() + 1);
        place..=place
    };
    for place in places {
        let (start, end) = bytes.split_at(place);
        assert!(decode([start, end]) == whole, "cut at {place}");
        // A stream that ends early is seen: its frames are the first of all, and no more bytes than theirs.
        let (early, _, at_boundary) = decode([start]);
        assert!(whole.0.starts_with(&early), "ended at {place}");
        assert!(!at_boundary || encode(&early) == start, "ended at {place}");
    }
    whole
}

fn frames(random: &mut Random) -> &'static str {
    let frames: Vec<Frame> = (0..random.below(6)).map(|_| frame(random)).collect();
    let mut bytes = encode(&frames);
    assert!(decode_every_way(&bytes, random) == (frames, None, true), "frames changed on their way");
    random.mutate(&mut bytes, 4, &["\0\0\0\0", "\u{1}\0\0\0", "\u{8}", "\u{9}", "\u{a}"]);
    let (frames, error, at_boundary) = decode_every_way(&bytes, random);
    let read = encode(&frames);
    assert!(bytes.starts_with(&read) && (!at_boundary || bytes.len() == read.len()));
    for frame in &frames {
        look_into(frame);
    }
    match error {
        None if at_boundary => "whole",
        None => "cut",
        Some(FrameError::UnknownKind(_)) => "unknown kind",
        Some(FrameError::TooLong(length)) => {
            assert!(length as usize > PAYLOAD_MAX);
            "too long"
        }
        Some(error) => panic!("{error}"),
    }
}

/// Reads a frame as all that it may be.
fn look_into(frame: &Frame) {
    match frame.data() {
        Ok((stream, content)) => {
            let mut bytes = Vec::new();
            encode_data_into(&mut bytes, frame.channel, stream, content).unwrap();
            let data = Frame { kind: FrameKind::Data, ..frame.clone() };
            assert!(bytes == encode(&[data]), "data frames are the same both ways");
        }
        Err(error) => check(&error),
    }
    match frame.credit() {
        Ok(credit) => assert_eq!(credit.to_le_bytes().as_slice(), frame.payload),
        Err(error) => check(&error),
    }
    if let Err(error) = frame.json::<Result<Reply, GuestError>>() {
        check(&error);
    }
}

fn messages(random: &mut Random) -> &'static str {
    let (kind, sample) = random.pick(&MESSAGES);
    let mut payload = sample.as_bytes().to_vec();
    random.mutate(&mut payload, 4, &WORDS);
    if random.below(100) == 0 {
        // A name that nobody knows, of any length.
        let name = "x\u{7}".repeat(random.below(3000));
        payload =
            format!("{{\"{name}\":1,\"Ok\":{{\"{}\":[]}}}}", name.replace('\u{7}', "\\u0007")).into_bytes();
    }
    let frame = Frame { kind, channel: 1, payload };
    match kind {
        FrameKind::Hello => comes_back::<Hello>(&frame),
        FrameKind::Welcome => comes_back::<Welcome>(&frame),
        FrameKind::Open => comes_back::<Open>(&frame),
        // A guest sends this instead of `Welcome`. The kind only tells the samples apart.
        FrameKind::Tunnel => comes_back::<SetupError>(&frame),
        _ => {
            if let Ok(Err(GuestError { code: ErrorCode::NotFound, .. })) =
                frame.json::<Result<Reply, GuestError>>()
            {
                return "a failure";
            }
            comes_back::<Result<Reply, GuestError>>(&frame)
        }
    }
}

fn comes_back<T: Serialize + DeserializeOwned + PartialEq>(frame: &Frame) -> &'static str {
    match frame.json::<T>() {
        Ok(message) => {
            let payload = serde_json::to_vec(&message).unwrap();
            let again = Frame { payload, ..frame.clone() }.json::<T>().unwrap();
            assert!(message == again, "{:?}", String::from_utf8_lossy(&frame.payload));
            "a message"
        }
        Err(error) => {
            check(&error);
            "no message"
        }
    }
}

/// An error goes into logs and to people: one short line, whatever the other side wrote.
fn check(error: &FrameError) {
    let text = error.to_string();
    assert!(text.len() < 1000, "an error of {} bytes", text.len());
    assert!(!text.contains(char::is_control), "{text:?}");
}
