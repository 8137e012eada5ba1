//! The container of the model's service: named again in every later request (A5), and forgotten when it is refused.

use conjure_base::ContainerId;
use conjure_conversation::{
    ApiErrorKind, Block, CommandKind, Composition, Event, LoopOptions, Message, ModelError, ModelErrorKind,
    ModelEvent, Response, State, StopReason, TurnOutcome, TurnStop, apply, run_loop,
};

use crate::support::{FakeModel, World, answer, start, text};

fn within(container: &str, response: Response) -> Response {
    Response { container: Some(ContainerId::new(container)), ..response }
}

/// The containers of all requests so far.
fn named(world: &World) -> Vec<Option<String>> {
    let requests = world.model.requests.lock().unwrap();
    requests.iter().map(|request| request.container.as_ref().map(ToString::to_string)).collect()
}

fn some(id: &str) -> Option<String> {
    Some(id.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_container_is_named_after_a_pause_in_the_next_turn_and_after_a_replay() {
    let pause = || answer(vec![Block::text("hm")], StopReason::PauseTurn);
    let world =
        World::new(FakeModel::answering(move |request| match (request.turn.number(), request.call) {
            (1, 1) => within("c_1", pause()),
            // An answer that ran no tool of the service names none; that takes nothing back.
            (1, _) => text("done"),
            _ => within("c_2", text("moved")),
        }));
    let mut conversation = world.load().await;
    world.turn(&mut conversation, start("one")).await;
    assert_eq!(named(&world), [None, some("c_1")]);

    // Another process, which has what the ledger holds and nothing else.
    let mut conversation = world.load().await;
    world.turn(&mut conversation, start("two")).await;
    world.turn(&mut conversation, start("three")).await;
    assert_eq!(named(&world), [None, some("c_1"), some("c_1"), some("c_2")]);

    let mut replayed = State::default();
    for event in world.ledger.0.events() {
        let written = serde_json::to_string(&event).unwrap();
        apply(&mut replayed, &serde_json::from_str::<Event>(&written).unwrap());
    }
    assert_eq!(&replayed, conversation.state());
    assert_eq!(replayed.container(), Some(&ContainerId::new("c_2")));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_gone_fails_one_turn_and_no_more() {
    let world = World::new(FakeModel::events(|request| {
        let finished = |response| vec![Ok(ModelEvent::Finished(Box::new(response)))];
        let error = |kind, text: &str| vec![Err(ModelError::new(ModelErrorKind::Api(kind), text))];
        match request.turn.number() {
            1 => finished(within("c_1", text("made"))),
            2 => error(ApiErrorKind::Overloaded, "the container c_1 is not to blame"),
            3 => error(ApiErrorKind::InvalidRequest, "container: c_1 has expired"),
            _ => finished(text("fresh")),
        }
    }));
    let mut conversation = world.load().await;
    for words in ["one", "two", "three", "four"] {
        let outcome = world.turn(&mut conversation, start(words)).await;
        let failed = matches!(outcome, TurnOutcome::Finished(TurnStop::ModelFailed(_)));
        assert_eq!(failed, ["two", "three"].contains(&words), "{words}: {outcome:?}");
    }
    assert_eq!(named(&world), [None, some("c_1"), some("c_1"), None]);
}

#[tokio::test(start_paused = true)]
async fn a_history_from_elsewhere_brings_its_container() {
    let world = World::new(FakeModel::answering(|_| text("done")));
    let paused = vec![
        Message::user(vec![Block::text("go")]),
        Message::assistant(vec![Block::from_json(r#"{"type":"server_tool_use","id":"s"}"#).unwrap()]),
    ];
    let container = Some(ContainerId::new("c_1"));
    let options = LoopOptions { container: container.clone(), ..LoopOptions::default() };
    let outcome =
        run_loop(paused, &world.model, &Composition::default(), &world.tools, options).await.unwrap();
    assert_eq!(named(&world), [some("c_1")]);
    assert_eq!(outcome.conversation.state().container(), container.as_ref());

    // It counts as a history: a second one is refused.
    let mut conversation = world.load().await;
    let import = |container| CommandKind::Import { messages: Vec::new(), container };
    conversation.submit(import(container)).await.unwrap();
    assert!(conversation.submit(import(None)).await.is_err());
}
