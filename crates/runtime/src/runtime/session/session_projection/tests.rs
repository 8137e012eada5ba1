use conjure_base::Timestamp;
use conjure_conversation::{
    Block, Command, CommandKind, Limits, Response, SessionProfile, StopReason, decide,
};

use super::*;

fn at(state: &SessionState, kind: CommandKind) -> Vec<Event> {
    decide(state, Command { at: Timestamp::from_millis(1), kind }).unwrap()
}

/// The events of a session with so many turns, the last of which is over or not.
fn session(turns: usize, last_is_over: bool) -> Vec<Event> {
    let mut events = Vec::new();
    let mut state = SessionState::default();
    let mut go_on = |kind| {
        for event in at(&state, kind) {
            apply(&mut state, &event);
            events.push(event);
        }
    };
    let profile = SessionProfile { model: Some("echo".to_owned()), ..SessionProfile::default() };
    go_on(CommandKind::Open { profile: Box::new(profile) });
    for turn in 0..turns {
        let input = vec![Block::text(format!("say {turn}"))];
        go_on(CommandKind::StartTurn { input, limits: Limits::default() });
        if turn + 1 == turns && !last_is_over {
            break;
        }
        go_on(CommandKind::Interrupt { cause: conjure_conversation::InterruptCause::Cancelled });
    }
    events
}

fn read(snapshot: Option<Snapshot>, events: &[Event]) -> ProjectionBuilder {
    let mut reading = ProjectionBuilder::from_snapshot(snapshot, events.len() as u64);
    let from = usize::try_from(reading.next()).unwrap();
    events[from..].iter().for_each(|event| reading.apply(event));
    reading
}

#[test]
fn what_is_kept_anywhere_and_what_came_since_are_the_whole() {
    for last_is_over in [true, false] {
        let events = session(60, last_is_over);
        let whole = read(None, &events);
        let mut kept = 0;
        for end in 0..=events.len() {
            let Some(snapshot) = read(None, &events[..end]).snapshot() else { continue };
            kept += 1;
            let since = read(Some(snapshot.clone()), &events);
            assert_eq!(since.projection(), whole.projection(), "{end}");
            assert_eq!(since.state().turn(), whole.state().turn());
            // What covers more than there is, or is of another version, is of no use.
            let none = ProjectionBuilder::from_snapshot(Some(snapshot.clone()), snapshot.seq - 1);
            assert_eq!(none.next(), 0);
            assert_eq!(
                ProjectionBuilder::from_snapshot(Some(Snapshot { version: 99, ..snapshot }), u64::MAX).next(),
                0
            );
        }
        assert!(kept > 10, "{kept}");
        assert_eq!(whole.projection().turns, 60);
    }
}

#[test]
fn what_a_model_said_and_used_is_summed() {
    let mut reading = ProjectionBuilder {
        before: SessionProjection {
            last_text: "before".to_owned(),
            turns: 3,
            ..SessionProjection::default()
        },
        ..ProjectionBuilder::default()
    };
    assert_eq!((reading.projection().last_text.as_str(), reading.projection().turns), ("before", 3));
    let response = Response {
        id: None,
        model: None,
        content: vec![Block::text("since")],
        stop_reason: StopReason::EndTurn,
        usage: Usage { input_tokens: 5, ..Usage::default() },
        request_id: None,
        container: None,
        native: None,
    };
    let mut state = SessionState::default();
    let input = vec![Block::text("say")];
    let commands = [
        CommandKind::Open { profile: Box::default() },
        CommandKind::StartTurn { input, limits: Limits::default() },
    ];
    for kind in commands {
        for event in at(&state, kind) {
            apply(&mut state, &event);
            reading.apply(&event);
        }
    }
    let turn = state.turn().unwrap().id();
    let answered = EventKind::ModelAnswered { turn, call: 1, response: Box::new(response) };
    reading.apply(&Event { at: Timestamp::from_millis(2), kind: answered });
    let gist = reading.projection();
    assert_eq!((gist.last_text.as_str(), gist.turns, gist.usage.input_tokens), ("since", 4, 5));
}
