//! Forks: which points of a session they may be made of, and what they begin with.

use conjure_base::{ContainerId, Digest, SessionId, Timestamp};
use conjure_conversation::{
    Artifact, ArtifactContent, ArtifactSource, Block, CommandKind, Event, EventKind, ForkError, ForkPoint,
    Limits, Response, SessionProfile, SessionState, SideEffects, StopReason, UploadedArtifact, Usage,
    fork_events, pairing,
};

use crate::support::{accept_response, project, reload, submit_at};

const ORIGINAL: SessionId = SessionId::from_bits(7);
const NOW: Timestamp = Timestamp::from_millis(9_000);

/// A session and its events.
#[derive(Default)]
struct Recorded {
    state: SessionState,
    events: Vec<Event>,
}

impl Recorded {
    fn submit(&mut self, kind: CommandKind) {
        let at = 1_000 + self.events.len() as u64;
        self.events.extend(submit_at(&mut self.state, at, kind).unwrap());
    }

    fn opened() -> Self {
        let mut recorded = Self::default();
        let profile = SessionProfile { model: Some("one".to_owned()), ..SessionProfile::default() };
        recorded.submit(CommandKind::Open { profile: Box::new(profile) });
        recorded
    }

    /// Events 1 to 4 of a turn: started, called, answered, finished.
    fn turn(&mut self, words: &str) {
        self.begin(words);
        self.answer(StopReason::EndTurn, None);
    }

    fn begin(&mut self, words: &str) {
        let input = if words.is_empty() { Vec::new() } else { vec![Block::text(words)] };
        self.submit(CommandKind::StartTurn { input, limits: Limits::default() });
        self.submit(CommandKind::StartModelCall { effects: SideEffects::None });
    }

    fn answer(&mut self, stop_reason: StopReason, container: Option<&str>) {
        let response = Response {
            usage: Usage { input_tokens: 10, output_tokens: 1, ..Usage::default() },
            container: container.map(ContainerId::new),
            ..Response::new(vec![Block::text("so be it")], stop_reason)
        };
        self.submit(accept_response(&self.state, response));
    }

    fn fork(&self, point: ForkPoint) -> Result<Vec<Event>, ForkError> {
        fork_events(ORIGINAL, &self.events, point, NOW)
    }
}

fn said(state: &SessionState) -> Vec<String> {
    state.messages().iter().map(|message| message.text()).collect()
}

#[test]
fn a_fork_has_the_events_up_to_a_message_and_says_whose_they_are() {
    let mut original = Recorded::opened();
    original.turn("first");
    original.turn("second");
    let whole = original.fork(ForkPoint::End).unwrap();
    assert_eq!(whole[..9], original.events);
    assert_eq!(said(&reload(&whole)), ["first", "so be it", "second", "so be it"]);
    let EventKind::Forked { from, events, note } = &whole[9].kind else { panic!("{:?}", whole[9]) };
    assert_eq!((*from, *events, note), (ORIGINAL, 9, &None));
    let told = project(SessionId::from_bits(1), 9, &whole[9..=9]);
    let expected = format!(r#""type":"session.forked","from_session_id":"{ORIGINAL}","events":9}}"#);
    assert!(told[0].to_line().ends_with(&expected), "{}", told[0].to_line());

    for point in [ForkPoint::BeforeLastMessage, ForkPoint::Before(5)] {
        let fork = reload(&original.fork(point).unwrap());
        assert_eq!(said(&fork), ["first", "so be it"]);
        assert_eq!(fork.usage().input_tokens, 10, "what its events say");
        assert_eq!(fork.profile(), original.state.profile());
        assert_eq!(fork.last_event_at(), NOW);
    }
    // A fork can be forked, also before its own beginning.
    let mut fork = Recorded { state: reload(&whole), events: whole };
    fork.turn("third");
    assert_eq!(said(&reload(&fork.fork(ForkPoint::BeforeLastMessage).unwrap())).len(), 4);
    assert_eq!(said(&reload(&fork.fork(ForkPoint::Before(5)).unwrap())).len(), 2);
    // Before anything was said, it is as it was opened.
    let fork = reload(&original.fork(ForkPoint::Before(1)).unwrap());
    assert!(said(&fork).is_empty() && fork.profile().is_some());
}

/// The first message can be taken back, and a turn that only tries again is no message.
#[test]
fn the_last_message_is_that_of_the_user() {
    let mut original = Recorded::opened();
    assert_eq!(original.fork(ForkPoint::BeforeLastMessage), Err(ForkError::NoMessage));
    original.begin("first");
    let interrupt = CommandKind::Interrupt { cause: conjure_conversation::InterruptCause::Cancelled };
    original.submit(interrupt);
    original.turn("");
    let fork = original.fork(ForkPoint::BeforeLastMessage).unwrap();
    assert_eq!(fork.len(), 2, "{fork:?}");
    assert!(said(&reload(&fork)).is_empty());
}

#[test]
fn a_point_that_is_none_is_refused_with_those_that_are_near() {
    let mut original = Recorded::opened();
    original.turn("first");
    original.turn("second");
    for at in [0, 10, u64::MAX] {
        let refused = original.fork(ForkPoint::Before(at));
        assert_eq!(refused, Err(ForkError::OutOfRange { at, events: 9 }));
    }
    for (at, start, end) in [(2, 1, 5), (4, 1, 5), (6, 5, 9), (8, 5, 9)] {
        let refused = original.fork(ForkPoint::Before(at));
        assert_eq!(refused, Err(ForkError::WithinTurn { at, start, end }), "{at}");
        for near in [start, end] {
            assert!(original.fork(ForkPoint::Before(near)).is_ok(), "{near}");
        }
    }
    // While a turn runs, nothing is forked, also not what was before it.
    original.begin("third");
    for point in [ForkPoint::End, ForkPoint::BeforeLastMessage, ForkPoint::Before(5)] {
        assert_eq!(original.fork(point), Err(ForkError::TurnRunning), "{point:?}");
    }
    original.answer(StopReason::EndTurn, None);
    assert!(original.fork(ForkPoint::End).is_ok());
}

/// What was said and not answered yet is the original's business: else the message that is taken back would be said again.
#[test]
fn a_fork_has_an_empty_queue() {
    let mut original = Recorded::opened();
    original.begin("first");
    original.submit(CommandKind::Queue { input: vec![Block::text("second")], limits: None });
    original.submit(CommandKind::Queue { input: vec![Block::text("third")], limits: None });
    original.answer(StopReason::EndTurn, None);
    original.submit(CommandKind::StartQueued { limits: Limits::default() });
    original.submit(CommandKind::StartModelCall { effects: SideEffects::None });
    original.answer(StopReason::EndTurn, None);
    assert_eq!(original.state.queue().len(), 1);
    for point in [ForkPoint::End, ForkPoint::BeforeLastMessage] {
        let mut fork = reload(&original.fork(point).unwrap());
        assert_eq!(fork.queue().len(), 0, "{point:?}");
        // Ids are never used again.
        let queue = CommandKind::Queue { input: vec![Block::text("more")], limits: None };
        submit_at(&mut fork, NOW.millis(), queue).unwrap();
        assert_eq!(fork.queue().last().unwrap().id.get(), 3);
    }
    assert_eq!(original.state.queue().len(), 1);
}

#[test]
fn what_lies_at_the_service_stays_the_originals() {
    let mut original = Recorded::opened();
    let name = conjure_conversation::ArtifactName::new("sales").unwrap();
    let digest = Digest::of_bytes(b"sales");
    let content = Some(ArtifactContent { digest, size: 5 });
    let artifact = Artifact::new(name.clone(), ArtifactSource::Content, "text/csv", content);
    original.submit(CommandKind::RegisterArtifact { artifact: Box::new(artifact) });
    let input = vec![Block::text("first")];
    original.submit(CommandKind::StartTurn { input, limits: Limits::default() });
    let block = Block::from_json(r#"{"type":"container_upload","file_id":"file_1"}"#).unwrap();
    let uploaded = UploadedArtifact { name, digest, block };
    original.submit(CommandKind::AttachUpload { uploaded: Box::new(uploaded) });
    original.submit(CommandKind::StartModelCall { effects: SideEffects::None });
    original.answer(StopReason::EndTurn, Some("c_1"));
    assert!(original.state.container().is_some() && original.state.pending_uploads().next().is_none());

    let mut fork = reload(&original.fork(ForkPoint::End).unwrap());
    assert_eq!(fork.container(), None);
    assert_eq!(fork.pending_uploads().count(), 1, "it is uploaded again, as a file of the fork");
    let start = CommandKind::StartTurn { input: vec![Block::text("second")], limits: Limits::default() };
    submit_at(&mut fork, NOW.millis(), start).unwrap();
    let last = fork.messages().last().unwrap();
    assert!(last.text().starts_with("[This conversation was copied"), "{}", last.text());
    assert!(last.text().ends_with("second"));
    assert_eq!(pairing::check(fork.messages()), Ok(()));
}
