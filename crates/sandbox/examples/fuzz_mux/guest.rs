//! The guest of a case: it hears the host, says this and that, and knows what it may say.

use std::collections::BTreeMap;

use conjure_guest::protocol::{
    CapturedOutput, Decoder, EnforcedRules, ErrorCode, ExecEnd, ExecReply, FIRST_TUNNEL, Frame, FrameKind,
    GuestError, Open, OpenedRoots, PROTOCOL_VERSION, ReachedLimits, Reply, Request, StreamId, ViewReply,
    Welcome, encode_into,
};
use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::campaign::Random;
use crate::{Got, Judgement, Kind, Shared, Taking};

const WORDS: [&str; 8] = ["\"Ok\"", "\"exec\"", "null", "\0\0\0\0", "\u{4}", "\u{8}", "[[[[", "\u{1b}[31m"];

/// How a guest ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finale {
    /// It answers every call.
    Answers,
    /// It closes its stream.
    Leaves,
    /// It hears and says no more; the callers cancel.
    Silent,
}

pub(crate) struct Guest<'c> {
    pipe: Option<DuplexStream>,
    /// What the host says.
    hears: Decoder,
    /// What this guest says, as the model of the protocol reads it.
    said: Decoder,
    heard_hello: bool,
    channels: BTreeMap<u32, Channel>,
    random: &'c mut Random,
    shared: &'c Shared,
}

/// What the guest knows of a channel.
struct Channel {
    index: usize,
    open: Open,
    /// What it may still send.
    credit: u64,
    /// Every credit it ever granted, less what the host has sent.
    granted: u64,
    sent: Vec<(StreamId, Vec<u8>)>,
    ended: Option<Result<Reply, GuestError>>,
    heard_eof: bool,
    heard_cancel: bool,
}

impl<'c> Guest<'c> {
    pub(crate) fn new(pipe: DuplexStream, random: &'c mut Random, shared: &'c Shared) -> Self {
        let (hears, said, channels) = (Decoder::new(), Decoder::new(), BTreeMap::new());
        Self { pipe: Some(pipe), hears, said, heard_hello: false, channels, random, shared }
    }

    /// Greets, mostly as it must; whether it did.
    pub(crate) async fn greet(&mut self) -> bool {
        let rules = EnforcedRules::default();
        let roots = OpenedRoots::default();
        let welcome = Welcome { version: PROTOCOL_VERSION, pid: 1, confinement: None, rules, roots };
        let welcome = serde_json::to_vec(&welcome).unwrap();
        let right = encode(FrameKind::Welcome, 0, &welcome);
        let mut bytes = right.clone();
        if self.random.below(30) == 0 {
            self.random.mutate(&mut bytes, 3, &WORDS);
        }
        while !self.heard_hello && self.hear().await {}
        self.write(&bytes).await;
        if bytes == right {
            return true;
        }
        // It may be a greeting all the same, with more after it.
        self.judge(Judgement::Unsure);
        self.pipe = None;
        false
    }

    /// Says this and that, and then ends.
    pub(crate) async fn act(&mut self) -> Finale {
        for _ in 0..self.random.below(24) {
            self.hear_now().await;
            if self.shared.judgement.get() == Judgement::Forbidden {
                break;
            }
            let bytes = self.choose();
            self.say(&bytes).await;
        }
        let finale = match self.random.below(8) {
            0 => Finale::Leaves,
            1 => Finale::Silent,
            // What was not whole swallows the answers.
            _ if self.shared.judgement.get() == Judgement::Unsure => Finale::Silent,
            _ => Finale::Answers,
        };
        match finale {
            Finale::Leaves => self.pipe = None,
            Finale::Silent => self.shared.cancels.iter().for_each(|cancel| cancel.cancel()),
            Finale::Answers => self.answer_all().await,
        }
        self.shared.said.cancel();
        while self.hear().await {
            if finale == Finale::Answers {
                self.answer_all().await;
            }
        }
        finale
    }

    fn choose(&mut self) -> Vec<u8> {
        let known: Vec<u32> =
            self.channels.iter().filter(|(_, c)| c.ended.is_none()).map(|(id, _)| *id).collect();
        let id = if known.is_empty() || self.random.below(150) == 0 {
            self.random.pick(&[0, 1, 2, 3, 4, 5, 6, 7, FIRST_TUNNEL, u32::MAX])
        } else {
            self.random.pick(&known)
        };
        if known.is_empty() && self.random.below(100) > 0 {
            return Vec::new();
        }
        let mut bytes = match self.random.below(40) {
            0 => self.done(id),
            1 if self.random.below(4) == 0 => {
                let call = self.random.below(self.shared.cancels.len());
                self.shared.cancels[call].cancel();
                Vec::new()
            }
            2..10 => {
                let credit = self.random.pick(&[0, 1, 100, 5000, 80_000, 1 << 20, u32::MAX]);
                encode(FrameKind::Credit, id, &credit.to_le_bytes())
            }
            10 if self.random.below(10) == 0 => {
                let kind = self.random.pick(&[
                    FrameKind::Hello,
                    FrameKind::Open,
                    FrameKind::Eof,
                    FrameKind::Cancel,
                    FrameKind::Tunnel,
                ]);
                encode(kind, id, b"1234")
            }
            11 if self.random.below(20) == 0 => self.flood(id),
            _ => self.data(id),
        };
        if self.random.below(100) == 0 {
            self.random.mutate(&mut bytes, 3, &WORDS);
        }
        bytes
    }

    /// Content that the channel may send, nearly always.
    fn data(&mut self, id: u32) -> Vec<u8> {
        let known = self.channels.get(&id);
        let fitting: &[StreamId] = match known.map(|channel| self.shared.kinds[channel.index]) {
            Some(Kind::Run | Kind::Stream(_)) => &[StreamId::Stdout, StreamId::Stderr],
            _ => &[StreamId::Content],
        };
        let credit = known.map_or(30, |channel| usize::try_from(channel.credit).unwrap());
        let size = match self.random.below(30) {
            0 => self.random.below(70_000),
            1 => 65_536,
            2 => 4096,
            3 => 4095,
            _ => self.random.below(20),
        };
        let size = if self.random.below(100) == 0 { size } else { size.min(credit) };
        let stream = if self.random.below(200) == 0 { StreamId::Content } else { self.random.pick(fitting) };
        let mut payload = vec![b'a' + self.random.below(26) as u8; size + 1];
        payload[0] = stream as u8;
        encode(FrameKind::Data, id, &payload)
    }

    /// Single bytes of two streams in turn, as many as may be.
    fn flood(&mut self, id: u32) -> Vec<u8> {
        let credit = self.channels.get(&id).map_or(3, |channel| channel.credit);
        let mut bytes = Vec::new();
        for place in 0..credit.min(3000) {
            let stream = if place % 2 == 0 { StreamId::Stdout } else { StreamId::Stderr };
            bytes.extend(encode(FrameKind::Data, id, &[stream as u8, b'f']));
        }
        bytes
    }

    /// The end of a channel; mostly one that fits its request and what was sent.
    fn done(&mut self, id: u32) -> Vec<u8> {
        let reply = match self.channels.get(&id) {
            _ if self.random.below(10) == 0 => {
                Err(GuestError { code: ErrorCode::NotFound, message: "no".to_owned() })
            }
            Some(_) if self.random.below(30) == 0 => Ok(Reply::Read { size: 1 }),
            Some(channel) => Ok(channel.reply()),
            None => Ok(Reply::Write { size: 1, existed: false, folders: 0 }),
        };
        encode(FrameKind::Done, id, &serde_json::to_vec(&reply).unwrap())
    }

    async fn answer_all(&mut self) {
        let open: Vec<u32> =
            self.channels.iter().filter(|(_, c)| c.ended.is_none()).map(|(id, _)| *id).collect();
        for id in open {
            let reply: Result<Reply, GuestError> = Ok(self.channels[&id].reply());
            let bytes = encode(FrameKind::Done, id, &serde_json::to_vec(&reply).unwrap());
            self.say(&bytes).await;
        }
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.said.push(bytes);
        loop {
            match self.said.next_frame() {
                Ok(Some(frame)) => {
                    let judgement = self.judge_frame(&frame);
                    self.judge(judgement);
                }
                Ok(None) => break,
                Err(_) => {
                    self.judge(Judgement::Forbidden);
                    break;
                }
            }
            if self.shared.judgement.get() == Judgement::Forbidden {
                break;
            }
        }
        if !self.said.is_at_boundary() {
            // What is said next is read as the rest of this frame.
            self.judge(Judgement::Unsure);
        }
        self.write(bytes).await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(pipe) = &mut self.pipe
            && !rest.is_empty()
        {
            let size = if self.random.below(4) == 0 { 1 + self.random.below(rest.len()) } else { rest.len() };
            // The host may have closed the stream: that is its right.
            if pipe.write_all(&rest[..size]).await.is_err() {
                return;
            }
            rest = &rest[size..];
        }
    }

    /// A judgement once made stands, unless a worse one comes before anything is unsure.
    fn judge(&self, judgement: Judgement) {
        if self.shared.judgement.get() == Judgement::Allowed {
            self.shared.judgement.set(judgement);
        }
    }

    fn judge_frame(&mut self, frame: &Frame) -> Judgement {
        if !matches!(frame.kind, FrameKind::Data | FrameKind::Credit | FrameKind::Done) {
            // A tunnel too: this sandbox has no proxy.
            return Judgement::Forbidden;
        }
        let calls = self.shared.kinds.len();
        let Some(channel) = self.channels.get_mut(&frame.channel) else {
            // The host may have opened it meanwhile.
            let may_be = (1..=calls).contains(&(frame.channel as usize));
            return if may_be { Judgement::Unsure } else { Judgement::Forbidden };
        };
        if channel.ended.is_some() {
            return Judgement::Forbidden;
        }
        let kind = self.shared.kinds[channel.index];
        match frame.kind {
            FrameKind::Data => {
                let Ok((stream, content)) = frame.data() else { return Judgement::Forbidden };
                let Some(credit) = channel.credit.checked_sub(content.len() as u64) else {
                    // Who takes what comes may have granted more.
                    let grants =
                        matches!(kind, Kind::Read(taking) | Kind::Stream(taking) if taking != Taking::Late);
                    return if grants { Judgement::Unsure } else { Judgement::Forbidden };
                };
                channel.credit = credit;
                channel.sent.push((stream, content.to_vec()));
                match (kind, stream) {
                    (Kind::Read(_), StreamId::Content)
                    | (Kind::Stream(_), StreamId::Stdout | StreamId::Stderr) => Judgement::Allowed,
                    (Kind::Read(_) | Kind::Stream(_), _) => Judgement::Unsure,
                    _ => Judgement::Allowed,
                }
            }
            FrameKind::Credit => {
                let Ok(credit) = frame.credit() else { return Judgement::Forbidden };
                channel.granted += u64::from(credit);
                if channel.granted < 1 << 40 { Judgement::Allowed } else { Judgement::Unsure }
            }
            _ => {
                let Ok(reply) = frame.json::<Result<Reply, GuestError>>() else {
                    return Judgement::Forbidden;
                };
                // A call that nobody waits for takes any answer; the others only one that fits what was sent.
                let is_text =
                    kind != Kind::View || String::from_utf8(channel.bytes_of(StreamId::Content)).is_ok();
                let fits = reply.is_err() || (is_text && reply == Ok(channel.reply()));
                channel.ended = Some(reply);
                if fits { Judgement::Allowed } else { Judgement::Unsure }
            }
        }
    }

    /// Hears what the host has said, without waiting for more.
    async fn hear_now(&mut self) {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        let mut buffer = [0; 4096];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut buffer).now_or_never() {
                Some(Ok(length @ 1..)) => self.take_in(&buffer[..length]),
                _ => return,
            }
        }
    }

    /// Waits for what the host says; `false` once it has closed the stream.
    async fn hear(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let Some(pipe) = &mut self.pipe else { return false };
        match pipe.read(&mut buffer).await {
            Ok(length @ 1..) => {
                self.take_in(&buffer[..length]);
                true
            }
            _ => false,
        }
    }

    /// Checks that the host speaks by the protocol.
    fn take_in(&mut self, bytes: &[u8]) {
        self.hears.push(bytes);
        let is_unsure = self.shared.judgement.get() != Judgement::Allowed;
        while let Some(frame) = self.hears.next_frame().unwrap() {
            let known = self.channels.get_mut(&frame.channel);
            match (frame.kind, known) {
                (FrameKind::Hello, None) => {
                    assert!(frame.channel == 0 && !std::mem::replace(&mut self.heard_hello, true));
                }
                (FrameKind::Open, None) => {
                    let open: Open = frame.json().unwrap();
                    let last = self.channels.keys().next_back().copied().unwrap_or_default();
                    assert!(frame.channel > last, "a number that was used before");
                    let index = subject(&open).parse().unwrap();
                    let credit = open.credit.into();
                    let (sent, ended, heard_eof, heard_cancel) = (Vec::new(), None, false, false);
                    let channel =
                        Channel { index, open, credit, granted: 0, sent, ended, heard_eof, heard_cancel };
                    self.channels.insert(frame.channel, channel);
                }
                (FrameKind::Data, Some(channel)) => {
                    let (stream, content) = frame.data().unwrap();
                    assert!(stream == StreamId::Content && !channel.heard_eof && !channel.heard_cancel);
                    let rest = channel.granted.checked_sub(content.len() as u64);
                    // A grant before the channel was heard of was not counted.
                    assert!(rest.is_some() || is_unsure, "more than was granted");
                    channel.granted = rest.unwrap_or_default();
                }
                (FrameKind::Credit, Some(channel)) => {
                    channel.credit += u64::from(frame.credit().unwrap());
                    assert!(channel.credit <= 512 * 1024, "more credit than a window");
                }
                (FrameKind::Eof, Some(channel)) => {
                    assert!(!channel.heard_eof && !channel.heard_cancel && frame.payload.is_empty());
                    channel.heard_eof = true;
                }
                (FrameKind::Cancel, Some(channel)) => {
                    assert!(!channel.heard_cancel && frame.payload.is_empty());
                    channel.heard_cancel = true;
                }
                (kind, _) => panic!("the host said {kind:?} on channel {}", frame.channel),
            }
        }
    }

    /// Each caller has what was sent for it, in order.
    pub(crate) fn compare(&self, got: &[Got]) {
        for channel in self.channels.values() {
            let (got, kind) = (&got[channel.index], self.shared.kinds[channel.index]);
            let is_cancelled = self.shared.cancels[channel.index].is_cancelled();
            let sent = joined(channel.sent.iter().map(|(stream, bytes)| (*stream, bytes.as_slice())));
            let taken = joined(got.pieces.iter().map(|(stream, bytes)| (*stream, bytes.as_slice())));
            match (&channel.ended, kind) {
                (_, Kind::Read(Taking::Some(_)) | Kind::Stream(Taking::Some(_))) => {
                    for ((_, taken), (_, sent)) in taken.iter().zip(&sent) {
                        assert!(sent.starts_with(taken));
                    }
                }
                (Some(Err(_)), _) => assert!(got.end.is_err()),
                // The content of a write breaks off when it is cancelled; what is said to that is the guest's.
                (Some(Ok(_)), _) if is_cancelled => {}
                (Some(Ok(_)), Kind::Read(_) | Kind::Stream(_)) => {
                    assert!(got.end.is_ok() && taken == sent, "{kind:?}: {:?}", got.end);
                }
                (Some(Ok(_)), Kind::Run) => {
                    assert!(got.end.is_ok(), "{:?}", got.end);
                    for (stream, bytes) in &got.pieces {
                        assert_eq!(*bytes, channel.bytes_of(*stream));
                    }
                }
                (Some(Ok(_)), Kind::View) => {
                    assert!(got.end.is_ok() && got.pieces[0].1 == channel.bytes_of(StreamId::Content));
                }
                (Some(Ok(_)), _) => assert!(got.end.is_ok(), "{kind:?}: {:?}", got.end),
                (None, _) => panic!("a channel without an answer"),
            }
        }
    }
}

impl Channel {
    fn bytes_of(&self, stream: StreamId) -> Vec<u8> {
        self.sent.iter().filter(|(id, _)| *id == stream).flat_map(|(_, bytes)| bytes).copied().collect()
    }

    /// The reply that fits the request and what was sent.
    fn reply(&self) -> Reply {
        let captured = |stream| {
            let total = self.bytes_of(stream).len() as u64;
            CapturedOutput { total, head: total / 2, tail: total - total / 2, ..CapturedOutput::default() }
        };
        match &self.open.request {
            Request::Exec(_) => Reply::Exec(ExecReply {
                end: ExecEnd::Exited(3),
                stdout: captured(StreamId::Stdout),
                stderr: captured(StreamId::Stderr),
                duration_us: 1,
                reached: ReachedLimits::default(),
            }),
            Request::View { .. } => {
                let size = self.bytes_of(StreamId::Content).len() as u64;
                let (first_line, last_line, total_lines) = (1, 1, 1);
                Reply::View(ViewReply::Text { first_line, last_line, total_lines, size, truncated: false })
            }
            Request::Write { .. } | Request::Replace { .. } => {
                Reply::Write { size: 1, existed: true, folders: 0 }
            }
            Request::Install { .. } => Reply::Install { files: 1, bytes: 1 },
            Request::Remove { .. } => Reply::Remove { existed: true },
            Request::List { .. } => Reply::List { entries: Vec::new(), truncated: false },
            Request::Walk { .. } => {
                Reply::Walk { entries: Vec::new(), unlisted: Vec::new(), next: Some(b"x".to_vec()) }
            }
            Request::Folder { .. } => Reply::Folder { folders: 1 },
            Request::Read { .. } => Reply::Read { size: 1 },
            Request::Pause => Reply::Pause { processes: 1 },
            Request::Resume => Reply::Resume { processes: 1 },
        }
    }
}

/// The path or program of a request.
fn subject(open: &Open) -> &str {
    match &open.request {
        Request::Exec(request) => &request.argv[0],
        Request::View { path, .. }
        | Request::Write { path, .. }
        | Request::Replace { path, .. }
        | Request::List { path, .. }
        | Request::Walk { path, .. }
        | Request::Folder { path, .. }
        | Request::Read { path, .. }
        | Request::Install { name: path, .. }
        | Request::Remove { name: path, .. } => path,
        Request::Pause | Request::Resume => panic!("no caller asks for that"),
    }
}

/// Pieces of one stream that follow each other become one; empty ones go.
fn joined<'p>(pieces: impl Iterator<Item = (StreamId, &'p [u8])>) -> Vec<(StreamId, Vec<u8>)> {
    let mut joined: Vec<(StreamId, Vec<u8>)> = Vec::new();
    for (stream, bytes) in pieces.filter(|(_, bytes)| !bytes.is_empty()) {
        match joined.last_mut().filter(|(last, _)| *last == stream) {
            Some((_, last)) => last.extend_from_slice(bytes),
            None => joined.push((stream, bytes.to_vec())),
        }
    }
    joined
}

fn encode(kind: FrameKind, channel: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_into(&mut bytes, kind, channel, payload).unwrap();
    bytes
}
