//! A host that ends at each event of a hosted turn: the service is asked nothing twice by itself, and the session goes on when it is told to.

use conjure_base::ContainerId;
use conjure_conversation::{
    Block, CommandKind, Event, EventLog as _, HostedSkill, LATEST, ModelErrorKind, SessionProfile,
    SessionState, Step, StopReason, TurnOptions, TurnOutcome, TurnStop, apply, next,
};

use crate::support::{FakeModel, Fixture, answer, start, submit, text};

fn profile() -> CommandKind {
    let hosted = vec![HostedSkill::anthropic("xlsx").with_version(LATEST)];
    CommandKind::Open { profile: Box::new(SessionProfile { hosted, ..SessionProfile::default() }) }
}

/// The service pauses twice in a turn, always in one container.
fn service() -> FakeModel {
    FakeModel::answering(|request| {
        let mut said = match request.call {
            1 | 2 => answer(vec![Block::text("hm")], StopReason::PauseTurn),
            _ => text("done"),
        };
        said.container = Some(ContainerId::new("c_1"));
        said
    })
}

#[tokio::test(start_paused = true)]
async fn a_host_that_ends_anywhere_in_a_hosted_turn_sends_no_call_twice() {
    check_each_end(profile(), service).await;
}

/// Such a host has given the runtime a client that asks for skills by itself, of which the session knows nothing.
#[tokio::test(start_paused = true)]
async fn the_same_goes_for_a_service_that_acts_by_what_its_client_is_configured_with() {
    check_each_end(CommandKind::Open { profile: Box::default() }, || {
        let answers = [StopReason::PauseTurn, StopReason::PauseTurn, StopReason::EndTurn];
        FakeModel::in_turn(answers.map(|stop| answer(vec![Block::text("hm")], stop)).into()).acting()
    })
    .await;
}

async fn check_each_end(opening: CommandKind, service: fn() -> FakeModel) {
    let whole = Fixture::new(service());
    let mut conversation = whole.load().await;
    conversation.submit(opening).await.unwrap();
    whole.turn(&mut conversation, start("make a table")).await;
    let events: Vec<Event> = whole.event_log.0.events();
    assert_eq!(whole.model.request_count(), 3);

    for end in 1..=events.len() {
        let fixture = Fixture::new(service());
        let before: Vec<Event> = events[..end].to_vec();
        let sent_before = before.iter().filter(|event| is_start(event)).count();
        let mut state = SessionState::default();
        before.iter().for_each(|event| apply(&mut state, event));
        let was_under_way = next(&state) == Step::AwaitModel;
        let was_running = state.turn().is_some();
        fixture.event_log.0.append(0, &before).await.unwrap();

        let mut conversation = fixture.load().await;
        if was_running {
            let outcome = fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap();
            let TurnOutcome::Finished(stop) = outcome else { panic!("{end}: {outcome:?}") };
            if was_under_way {
                let TurnStop::ModelFailed(error) = &stop else { panic!("{end}: {stop}") };
                assert_eq!(error.kind, ModelErrorKind::OutcomeUnknown, "{end}");
                assert_eq!(fixture.model.request_count(), 0, "{end}: it was sent again");
            } else {
                assert!(matches!(stop, TurnStop::Answered(_)), "{end}: {stop}");
                assert_eq!(sent_before + fixture.model.request_count(), 3, "{end}: each call once");
            }
        }
        // In the container that it had, where it had one.
        let had = conversation.state().container().cloned();
        let outcome = fixture.turn(&mut conversation, start("go on")).await;
        assert!(matches!(outcome, TurnOutcome::Finished(TurnStop::Answered(_))), "{end}: {outcome:?}");
        fixture.model.assert_requests_valid(&format!("after {end} events"));
        let requests = fixture.model.requests.lock().unwrap();
        let turn = conversation.state().last_turn().unwrap().turn;
        let first = requests.iter().find(|request| request.turn == turn).unwrap();
        assert_eq!(first.container, had, "{end}");
    }
}

fn is_start(event: &Event) -> bool {
    matches!(event.kind, conjure_conversation::EventKind::ModelCallStarted { .. })
}

#[test]
fn a_session_is_opened_with_its_hosted_skills_and_keeps_them() {
    let mut state = SessionState::default();
    submit(&mut state, profile()).unwrap();
    assert_eq!(state.profile().unwrap().hosted, [HostedSkill::anthropic("xlsx")]);
}
