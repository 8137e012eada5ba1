//! What a model call may do is recorded before it is made, and that alone tells whether it is sent again after a crash.

use std::sync::Arc;

use conjure_base::ContainerId;
use conjure_conversation::{
    Block, CommandKind, Event, EventKind, HostedSkill, InterruptCause, Limits, Model, ModelErrorKind,
    ModelStream, Request, SessionProfile, SessionState, SessionStopReason, SideEffects, Step, StopReason,
    TurnOptions, TurnOutcome, TurnStop, apply, model_fn, next, pairing,
};

use crate::support::{FakeModel, Fixture, accept_response, answer, start, start_call_with, submit, text};

fn act(state: &mut SessionState, kind: CommandKind) -> Vec<Event> {
    submit(state, kind).unwrap()
}

/// What a session may be known to ask of the service before its first model call: hosted skills, and a container.
fn sessions() -> Vec<(SessionState, SideEffects)> {
    let hosted = vec![HostedSkill::anthropic("xlsx")];
    let with_skills = SessionProfile { hosted, ..SessionProfile::default() };
    let container = Some(ContainerId::new("c_1"));
    [
        (SessionProfile::default(), None, SideEffects::None),
        (with_skills.clone(), None, SideEffects::Possible),
        (SessionProfile::default(), container.clone(), SideEffects::Possible),
        (with_skills, container, SideEffects::Possible),
    ]
    .into_iter()
    .map(|(profile, container, effects)| {
        let mut state = SessionState::default();
        act(&mut state, CommandKind::Open { profile: Box::new(profile) });
        act(&mut state, CommandKind::Import { messages: Vec::new(), container });
        act(&mut state, start("make a table"));
        (state, effects)
    })
    .collect()
}

/// The host has ended in this call: what its successor makes of it.
fn check_recovery(mut state: SessionState, effects: SideEffects) {
    let recovered = act(&mut state, CommandKind::Recover);
    match effects {
        SideEffects::None => {
            assert!(matches!(
                recovered[..],
                [Event { kind: EventKind::ModelCallAbandoned { call: 1, .. }, .. }]
            ));
            assert_eq!(next(&state), Step::CallModel);
        }
        SideEffects::Possible => {
            let stop = &state.last_turn().unwrap().stop;
            let TurnStop::ModelFailed(error) = stop else { panic!("{stop}") };
            assert_eq!(error.kind, ModelErrorKind::OutcomeUnknown);
            assert_eq!(SessionStopReason::from(stop), SessionStopReason::OutcomeUnknown);
            assert_eq!(next(&state), Step::Idle);
            // Asked for, it is sent again.
            let again = CommandKind::StartTurn { input: Vec::new(), limits: Limits::default() };
            assert!(submit(&mut state.clone(), again).is_ok());
            // The model reads what happened, between what was said before and what is said next.
            act(&mut state, start("go on"));
            let [only] = state.messages() else { panic!("{:?}", state.messages()) };
            let texts = only.text();
            let lines: Vec<&str> = texts.lines().collect();
            let ["make a table", told, "go on"] = lines[..] else { panic!("{texts}") };
            assert!(told.contains("Check before you repeat it"), "{told}");
        }
    }
}

#[test]
fn a_call_is_sent_again_by_itself_only_where_it_is_recorded_to_have_no_effects() {
    for recorded in [SideEffects::None, SideEffects::Possible] {
        for (mut state, _) in sessions() {
            act(&mut state, start_call_with(recorded));
            check_recovery(state, recorded);
        }
    }
}

#[test]
fn a_note_tells_the_model_of_an_interrupted_call_with_side_effects() {
    for cause in [InterruptCause::Cancelled, InterruptCause::Deadline, InterruptCause::WallClock] {
        for effects in [SideEffects::None, SideEffects::Possible] {
            for (mut state, _) in sessions() {
                act(&mut state, start_call_with(effects));
                let is_told = |event: &&Event| matches!(event.kind, EventKind::NoteAdded { .. });
                let events = act(&mut state, CommandKind::Interrupt { cause });
                let expected = usize::from(effects == SideEffects::Possible);
                assert_eq!(events.iter().filter(is_told).count(), expected, "{effects:?}: {events:?}");
                // Once it is recorded, a host that ends has nothing to add.
                assert_eq!(act(&mut state, CommandKind::Recover), []);
                act(&mut state, start("go on"));
                let [only] = state.messages() else { panic!("{:?}", state.messages()) };
                let told = only.text().matches("Check before you repeat it").count();
                assert_eq!(told, expected, "{effects:?}: {}", only.text());
            }
        }
    }
}

/// What was paused is not resumed behind it, and its note does not stand among what the service awaits.
#[test]
fn a_resumed_pause_that_was_broken_off_leaves_a_valid_history() {
    for empty in [true, false] {
        let (mut state, _) = sessions().remove(1);
        act(&mut state, start_call_with(SideEffects::Possible));
        let call = r#"{"type":"server_tool_use","id":"s","name":"bash_code_execution","input":{}}"#;
        let response = answer(vec![Block::from_json(call).unwrap()], StopReason::PauseTurn);
        let accept = accept_response(&state, response);
        act(&mut state, accept);
        act(&mut state, start_call_with(SideEffects::Possible));
        act(&mut state, CommandKind::Interrupt { cause: InterruptCause::Cancelled });
        let input = if empty { Vec::new() } else { vec![Block::text("go on")] };
        act(&mut state, CommandKind::StartTurn { input, limits: Limits::default() });
        assert_eq!(pairing::check(state.messages()), Ok(()));
        let [_, paused, last] = state.messages() else { panic!("{:?}", state.messages()) };
        assert!(paused.text().contains("what came of it is not known"), "{}", paused.text());
        assert!(last.text().starts_with("[The last request was under way"), "{}", last.text());
    }
}

/// Of calls that older versions recorded, it is told by what the session was known to send.
#[test]
fn a_call_of_an_old_record_may_have_done_what_its_session_had_the_service_do() {
    for (mut state, effects) in sessions() {
        let line = r#"{"version":1,"at":5,"event":{"model_call_started":{"turn":1,"call":1}}}"#;
        apply(&mut state, &serde_json::from_str(line).unwrap());
        assert_eq!(next(&state), Step::AwaitModel);
        check_recovery(state, effects);
    }
}

/// What the calls of this fixture were recorded with.
fn recorded(fixture: &Fixture) -> Vec<Option<SideEffects>> {
    let effects = |event: Event| match event.kind {
        EventKind::ModelCallStarted { effects, .. } => Some(effects),
        _ => None,
    };
    fixture.event_log.0.events().into_iter().filter_map(effects).collect()
}

#[tokio::test(start_paused = true)]
async fn what_the_model_says_of_a_call_is_recorded_with_it() {
    let answering = || {
        FakeModel::answering(|_| {
            let mut said = text("done");
            said.container = Some(ContainerId::new("c_1"));
            said
        })
    };
    let (none, possible) = (Some(SideEffects::None), Some(SideEffects::Possible));
    // One that says nothing goes by the request: the first names no container yet.
    for (model, expected) in [(answering(), [none, possible]), (answering().acting(), [possible, possible])] {
        let fixture = Fixture::new(model);
        let mut conversation = fixture.load().await;
        for words in ["one", "two"] {
            fixture.turn(&mut conversation, start(words)).await;
        }
        assert_eq!(recorded(&fixture), expected);
    }
}

/// A model that panics when it is asked.
struct Mute;

impl Model for Mute {
    fn stream(&self, _: Request) -> ModelStream {
        unreachable!("nobody knows what it may do")
    }

    fn side_effects(&self, _: &Request) -> SideEffects {
        panic!("it crashes")
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_crashes_over_the_question_is_not_called() {
    let fixture = Fixture::new(FakeModel::answering(|_| text("done")));
    let mut conversation = fixture.begin("go").await;
    let outcome = fixture.drive_model(&Mute, &mut conversation, TurnOptions::default()).await;
    let Ok(TurnOutcome::Finished(TurnStop::ModelFailed(error))) = outcome else { panic!("{outcome:?}") };
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ModelErrorKind::Protocol, "the model's client has crashed")
    );
}

#[test]
fn a_shared_model_says_what_it_says_and_a_function_goes_by_the_request() {
    let plain = Request::new(Vec::new());
    let resumed = Request { container: Some(ContainerId::new("c_1")), ..plain.clone() };
    let hosted = Request { hosted: [HostedSkill::anthropic("xlsx")].into(), ..plain.clone() };
    let acting: Arc<dyn Model> = Arc::new(FakeModel::answering(|_| text("done")).acting());
    assert_eq!(acting.side_effects(&plain), SideEffects::Possible);
    assert_eq!(Arc::new(acting).side_effects(&plain), SideEffects::Possible);
    let function = model_fn(|_| async { Ok(text("done")) });
    for (request, expected) in
        [(plain, SideEffects::None), (resumed, SideEffects::Possible), (hosted, SideEffects::Possible)]
    {
        assert_eq!(function.side_effects(&request), expected, "{request:?}");
    }
}
