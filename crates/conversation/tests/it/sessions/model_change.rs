//! The change of a session's model between two turns: what is refused, what is recorded, and what the next request has.

use conjure_base::ContainerId;
use conjure_conversation::{
    Block, CommandKind, Event, EventKind, HostedSkill, HostedSupport, Limits, Rejection, Response,
    SessionProfile, SessionState, SideEffects, StopReason, TurnStop,
};

use crate::support::{accept_response, project, submit};

fn opened(profile: SessionProfile) -> SessionState {
    let mut state = SessionState::default();
    submit(&mut state, CommandKind::Open { profile: Box::new(profile) }).unwrap();
    state
}

fn profile(model: &str) -> SessionProfile {
    SessionProfile { model: Some(model.to_owned()), ..SessionProfile::default() }
}

fn set(model: &str, hosted: HostedSupport) -> CommandKind {
    CommandKind::SetModel { model: model.to_owned(), hosted }
}

fn model(state: &SessionState) -> Option<&str> {
    state.profile()?.model.as_deref()
}

/// A turn with one answer.
fn turn(state: &mut SessionState, stop_reason: StopReason, container: Option<&str>) {
    let input = vec![Block::text("go")];
    submit(state, CommandKind::StartTurn { input, limits: Limits::default() }).unwrap();
    submit(state, CommandKind::StartModelCall { effects: SideEffects::None }).unwrap();
    let response = Response {
        container: container.map(ContainerId::new),
        ..Response::new(vec![Block::text("gone")], stop_reason)
    };
    submit(state, accept_response(state, response)).unwrap();
}

#[test]
fn a_change_is_recorded_and_is_the_sessions_model_from_then_on() {
    let mut state = opened(SessionProfile { base_prompt: "Be brief.".to_owned(), ..profile("one") });
    turn(&mut state, StopReason::EndTurn, None);
    let events = submit(&mut state, set("two", HostedSupport::None)).unwrap();
    let [Event { kind: EventKind::ModelChanged { from, to, container }, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((from.as_deref(), to.as_str(), container), (Some("one"), "two", &None));
    assert_eq!(model(&state), Some("two"));
    assert_eq!(state.profile().unwrap().base_prompt, "Be brief.", "nothing else changes");
    let told = project(conjure_base::SessionId::from_bits(1), 7, &events[0..=0]);
    let told: Vec<String> = told.iter().map(conjure_conversation::SessionEvent::to_line).collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].ends_with(r#""type":"session.model_changed","from":"one","to":"two"}"#), "{}", told[0]);
    // Nothing is recorded of a change that is none.
    assert_eq!(submit(&mut state, set("two", HostedSupport::None)), Ok(Vec::new()));
}

/// Sessions of older versions have no profile.
#[test]
fn a_session_without_a_profile_gets_a_model_too() {
    let mut state = SessionState::default();
    turn(&mut state, StopReason::EndTurn, None);
    let events = submit(&mut state, set("one", HostedSupport::None)).unwrap();
    assert_eq!(
        serde_json::to_string(&events[0].kind).unwrap(),
        r#"{"model_changed":{"to":"one"}}"#,
        "the form of the record"
    );
    assert_eq!(model(&state), Some("one"));
}

#[test]
fn the_model_of_a_running_turn_stays() {
    let mut state = opened(profile("one"));
    let start = CommandKind::StartTurn { input: vec![Block::text("go")], limits: Limits::default() };
    submit(&mut state, start).unwrap();
    for _ in 0..2 {
        let refused = submit(&mut state, set("two", HostedSupport::Skills));
        assert_eq!(refused, Err(Rejection::TurnRunning));
        assert_eq!(model(&state), Some("one"));
        // Also while the model is called.
        let _ = submit(&mut state, CommandKind::StartModelCall { effects: SideEffects::None });
    }
}

#[test]
fn hosted_skills_need_a_model_whose_service_runs_them() {
    let hosted = vec![HostedSkill::anthropic("xlsx")];
    let mut state = opened(SessionProfile { hosted, ..profile("one") });
    turn(&mut state, StopReason::EndTurn, Some("c_1"));
    let refused = submit(&mut state, set("two", HostedSupport::None));
    assert_eq!(refused, Err(Rejection::NotHosting { model: "two".to_owned() }));
    assert_eq!(model(&state), Some("one"));
    submit(&mut state, set("three", HostedSupport::Skills)).unwrap();
    assert_eq!((model(&state), state.container()), (Some("three"), Some(&ContainerId::new("c_1"))));
}

#[test]
fn a_container_is_not_named_to_a_model_whose_service_has_none() {
    let mut state = opened(profile("one"));
    turn(&mut state, StopReason::EndTurn, Some("c_1"));
    let events = submit(&mut state, set("two", HostedSupport::None)).unwrap();
    assert_eq!(state.container(), None);
    let told = project(conjure_base::SessionId::from_bits(1), 7, &events[0..=0]);
    assert!(told[0].to_line().ends_with(r#""from":"one","to":"two","container_id":"c_1"}"#));
    // The way back does not bring it back.
    submit(&mut state, set("one", HostedSupport::Skills)).unwrap();
    assert_eq!(state.container(), None);
}

/// Its unfinished calls are the former service's.
#[test]
fn a_paused_response_of_the_former_model_is_not_resumed() {
    let mut state = opened(profile("one"));
    let limits = Limits { pauses: 0, ..Limits::default() };
    submit(&mut state, CommandKind::StartTurn { input: vec![Block::text("go")], limits }).unwrap();
    submit(&mut state, CommandKind::StartModelCall { effects: SideEffects::None }).unwrap();
    let call =
        r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"weather"}}"#;
    let response =
        Response::new(vec![Block::text("Looking."), Block::from_json(call).unwrap()], StopReason::PauseTurn);
    let accept = accept_response(&state, response);
    submit(&mut state, accept).unwrap();
    submit(&mut state, CommandKind::StartModelCall { effects: SideEffects::None }).unwrap();
    assert!(matches!(state.last_turn().unwrap().stop, TurnStop::Limit(_)), "{:?}", state.last_turn());
    let again = || CommandKind::StartTurn { input: Vec::new(), limits: Limits::default() };
    assert!(submit(&mut state.clone(), again()).is_ok(), "the same model resumes it");

    submit(&mut state, set("two", HostedSupport::None)).unwrap();
    let last = &state.messages().last().unwrap().content;
    assert!(last.iter().all(|block| !block.json().contains("server_tool_use")), "{last:?}");
    assert_eq!(submit(&mut state, again()), Err(Rejection::EmptyInput));
}
