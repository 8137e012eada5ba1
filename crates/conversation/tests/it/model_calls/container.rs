//! The container of the model's service. Every later request names it again. If the service refuses it, another one is requested.

use conjure_base::{ContainerId, Digest};
use conjure_conversation::{
    ApiErrorKind, Artifact, ArtifactContent, ArtifactSource, Block, CommandKind, Limits, LoopOptions,
    Message, ModelError, ModelErrorKind, ModelEvent, PromptPrefix, Response, SessionState, SideEffects,
    StopReason, TurnOptions, TurnOutcome, TurnStop, UploadedArtifact, run_loop,
};

use crate::support::{
    FakeModel, Fixture, accept_response, answer, outline, project, reload, start, start_call,
    start_call_with, submit, text,
};

fn within(container: &str, response: Response) -> Response {
    Response { container: Some(ContainerId::new(container)), ..response }
}

/// The containers of all requests so far.
fn named(fixture: &Fixture) -> Vec<Option<String>> {
    let requests = fixture.model.requests.lock().unwrap();
    requests.iter().map(|request| request.container.as_ref().map(ToString::to_string)).collect()
}

fn some(id: &str) -> Option<String> {
    Some(id.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_container_is_named_after_a_pause_in_the_next_turn_and_after_a_replay() {
    let pause = || answer(vec![Block::text("hm")], StopReason::PauseTurn);
    let fixture =
        Fixture::new(FakeModel::answering(move |request| match (request.turn.number(), request.call) {
            (1, 1) => within("c_1", pause()),
            // An answer that ran no tool of the service names none; that takes nothing back.
            (1, _) => text("done"),
            _ => within("c_2", text("moved")),
        }));
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("one")).await;
    assert_eq!(named(&fixture), [None, some("c_1")]);

    // Another process, which has what the event log holds and nothing else.
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("two")).await;
    fixture.turn(&mut conversation, start("three")).await;
    assert_eq!(named(&fixture), [None, some("c_1"), some("c_1"), some("c_2")]);

    let replayed = reload(&fixture.event_log.0.events());
    assert_eq!(&replayed, conversation.state());
    assert_eq!(replayed.container(), Some(&ContainerId::new("c_2")));
}

#[tokio::test(start_paused = true)]
async fn a_lost_container_is_replaced_within_the_turn_with_a_note() {
    let fixture = Fixture::new(FakeModel::events(|request| {
        let finished = |response| vec![Ok(ModelEvent::Finished(Box::new(response)))];
        let error = |kind, text: &str| vec![Err(ModelError::new(ModelErrorKind::Api(kind), text))];
        match request.turn.number() {
            1 => finished(within("c_1", text("made"))),
            2 => error(ApiErrorKind::Overloaded, "the container c_1 is not to blame"),
            _ if request.container.is_some() => {
                vec![Err(ModelError::new(ModelErrorKind::ContainerGone, "c_1 has expired"))]
            }
            _ => finished(within("c_2", text("fresh"))),
        }
    }));
    let mut conversation = fixture.load().await;
    for words in ["one", "two", "three"] {
        let outcome = fixture.turn(&mut conversation, start(words)).await;
        let failed = matches!(outcome, TurnOutcome::Finished(TurnStop::ModelFailed(_)));
        assert_eq!(failed, words == "two", "{words}: {outcome:?}");
    }
    assert_eq!(named(&fixture), [None, some("c_1"), some("c_1"), None]);
    let told: Vec<String> = conversation.state().messages().iter().map(|message| message.text()).collect();
    assert!(
        told.iter().any(|text| text.contains("has expired, and a fresh one takes its place")),
        "{told:?}"
    );
    assert_eq!(conversation.state().container(), Some(&ContainerId::new("c_2")));
    let session = conjure_base::SessionId::from_bits(1);
    let events = fixture.event_log.0.events();
    let lost = project(session, 0, &events).into_iter();
    let lost = lost.filter(|event| event.to_line().contains(r#""type":"session.container_lost""#)).count();
    assert_eq!(lost, 1);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_gone_in_a_pause_does_not_leave_the_pause() {
    let pause = || answer(vec![Block::text("hm")], StopReason::PauseTurn);
    let fixture = Fixture::new(FakeModel::events(move |request| {
        let finished = |response| vec![Ok(ModelEvent::Finished(Box::new(response)))];
        match (request.call, &request.container) {
            (1, _) => finished(within("c_1", pause())),
            (_, Some(_)) => {
                vec![Err(ModelError::new(ModelErrorKind::ContainerGone, "c_1 does not exist"))]
            }
            _ => finished(text("again")),
        }
    }));
    let mut conversation = fixture.load().await;
    let outcome = fixture.turn(&mut conversation, start("go")).await;
    assert!(matches!(outcome, TurnOutcome::Finished(TurnStop::Answered(_))), "{outcome:?}");
    let last = fixture.model.requests.lock().unwrap().last().unwrap().messages.clone();
    assert_eq!(last.len(), 3, "the user's, what was paused, what the model is told");
    assert!(last[2].text().contains("has expired"));
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_finds_such_a_call_says_how_the_turn_ended() {
    let fixture = Fixture::new(FakeModel::answering(|_| within("c_1", text("done"))));
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("one")).await;
    conversation.submit(start("two")).await.unwrap();
    conversation.submit(start_call_with(SideEffects::Possible)).await.unwrap();
    let mut conversation = fixture.load().await;
    let outcome = fixture.drive(&mut conversation, TurnOptions::default()).await;
    let Ok(TurnOutcome::Finished(TurnStop::ModelFailed(error))) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.kind, ModelErrorKind::OutcomeUnknown);
    assert_eq!(named(&fixture).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_history_from_elsewhere_brings_its_container() {
    let fixture = Fixture::new(FakeModel::answering(|_| text("done")));
    let paused = vec![
        Message::user(vec![Block::text("go")]),
        Message::assistant(vec![Block::from_json(r#"{"type":"server_tool_use","id":"s"}"#).unwrap()]),
    ];
    let container = Some(ContainerId::new("c_1"));
    let options = LoopOptions { container: container.clone(), ..LoopOptions::default() };
    let outcome =
        run_loop(paused, &fixture.model, &PromptPrefix::default(), &fixture.tools, options).await.unwrap();
    assert_eq!(named(&fixture), [some("c_1")]);
    assert_eq!(outcome.conversation.state().container(), container.as_ref());

    // It counts as a history: a second one is refused.
    let mut conversation = fixture.load().await;
    let import = |container| CommandKind::Import { messages: Vec::new(), container };
    conversation.submit(import(container)).await.unwrap();
    assert!(conversation.submit(import(None)).await.is_err());
}

#[test]
fn an_artifact_is_given_to_the_service_once_and_again_to_a_fresh_container() {
    let mut state = SessionState::default();
    let register = |bytes: &[u8]| {
        let content = ArtifactContent { digest: Digest::of_bytes(bytes), size: bytes.len() as u64 };
        let artifact =
            Artifact::new("sales".parse().unwrap(), ArtifactSource::Content, "text/csv", Some(content));
        CommandKind::RegisterArtifact { artifact: Box::new(artifact) }
    };
    let upload = |bytes: &[u8], id: &str| {
        let block = Block::from_json(format!(r#"{{"type":"container_upload","file_id":"{id}"}}"#)).unwrap();
        let uploaded =
            UploadedArtifact { name: "sales".parse().unwrap(), digest: Digest::of_bytes(bytes), block };
        CommandKind::AttachUpload { uploaded: Box::new(uploaded) }
    };
    submit(&mut state, register(b"a")).unwrap();
    assert!(submit(&mut state, upload(b"a", "file_1")).is_err(), "no turn runs");
    submit(&mut state, start("add them up")).unwrap();
    assert_eq!(state.pending_uploads().count(), 1);
    submit(&mut state, upload(b"a", "file_1")).unwrap();
    assert_eq!(state.pending_uploads().count(), 0);
    assert!(submit(&mut state, upload(b"a", "file_2")).is_err(), "it has it");
    assert_eq!(outline(state.messages()).len(), 1, "it stands with the user's words");
    assert!(state.messages()[0].content[1].json().contains("file_1"));
    submit(&mut state, start_call()).unwrap();
    assert!(submit(&mut state, upload(b"a", "file_2")).is_err(), "the model is being called");
    let accept = accept_response(&state, within("c_1", text("done")));
    submit(&mut state, accept).unwrap();

    // A fresh container is given it again; other bytes under its name are another file.
    submit(&mut state, start("more")).unwrap();
    submit(&mut state, start_call()).unwrap();
    let (turn, call) = state.turn().map(|turn| (turn.id(), turn.model_calls())).unwrap();
    let error = ModelError::new(ModelErrorKind::ContainerGone, "it has expired");
    submit(&mut state, CommandKind::FailModelCall { turn, call, error }).unwrap();
    let last = state.messages().last().unwrap();
    assert!(last.content.iter().any(|block| block.json().contains("file_1")), "{last:?}");
    submit(&mut state, CommandKind::UnregisterArtifact { name: "sales".parse().unwrap() }).unwrap();
    submit(&mut state, register(b"b")).unwrap();
    assert_eq!(state.pending_uploads().count(), 1);
    submit(&mut state, upload(b"b", "file_2")).unwrap();
    assert_eq!(state.pending_uploads().count(), 0);
}

fn block(json: &str) -> Block {
    Block::from_json(json).unwrap()
}

/// A call of the service's own tools, and the result that its container has expired.
fn expired() -> Vec<Block> {
    vec![
        block(r#"{"type":"server_tool_use","id":"s1","name":"bash_code_execution","input":{}}"#),
        block(
            r#"{"type":"bash_code_execution_tool_result","tool_use_id":"s1","content":{"type":"bash_code_execution_tool_result_error","error_code":"container_expired"}}"#,
        ),
    ]
}

/// Texts and other blocks of all messages, as one text.
fn written(messages: &[std::sync::Arc<Message>]) -> String {
    serde_json::to_string(messages).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_container_that_expired_within_an_answer_is_not_named_again() {
    for stop in [StopReason::EndTurn, StopReason::PauseTurn, StopReason::ToolUse] {
        let ends = stop == StopReason::EndTurn;
        let fixture =
            Fixture::new(FakeModel::answering(move |request| match (request.turn.number(), request.call) {
                (1, 1) => within("c_1", text("made")),
                (2, 1) => {
                    let mut content = expired();
                    if stop == StopReason::ToolUse {
                        content.push(block(r#"{"type":"tool_use","id":"t1","name":"look","input":{}}"#));
                    }
                    within("c_1", answer(content, stop.clone()))
                }
                _ => within("c_2", text("again")),
            }));
        let mut conversation = fixture.load().await;
        for words in ["one", "two", "three"] {
            fixture.turn(&mut conversation, start(words)).await;
        }
        let expected: &[Option<String>] =
            if ends { &[None, some("c_1"), None] } else { &[None, some("c_1"), None, some("c_2")] };
        assert_eq!(named(&fixture), expected);
        let requests: Vec<String> =
            fixture.model.requests.lock().unwrap().iter().map(|request| written(&request.messages)).collect();
        let told = |request: &String| request.contains("a fresh one takes its place");
        assert_eq!(requests.iter().map(told).collect::<Vec<_>>()[..3], [false, false, true], "{requests:?}");
        let replayed = fixture.load().await;
        assert_eq!(replayed.state(), conversation.state());
    }
}

const PENDING: &str = r#"{"type":"server_tool_use","id":"s1","name":"bash_code_execution","input":{}}"#;

#[tokio::test(start_paused = true)]
async fn a_lost_container_leaves_no_call_of_the_service_without_a_result() {
    let fixture = Fixture::new(FakeModel::events(move |request| {
        let finished = |response| vec![Ok(ModelEvent::Finished(Box::new(response)))];
        match (request.call, &request.container) {
            (1, _) => finished(within(
                "c_1",
                answer(vec![Block::text("hm"), block(PENDING)], StopReason::PauseTurn),
            )),
            (_, Some(_)) => vec![Err(ModelError::new(ModelErrorKind::ContainerGone, "c_1 does not exist"))],
            _ => finished(text("again")),
        }
    }));
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("go")).await;
    let requests = fixture.model.requests.lock().unwrap();
    assert!(written(&requests[1].messages).contains("server_tool_use"), "it was resumed as it was");
    let last = written(&requests[2].messages);
    assert!(!last.contains("server_tool_use") && last.contains("its container expired"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn words_behind_a_pause_leave_no_call_of_the_service_without_a_result() {
    let fixture = Fixture::new(FakeModel::answering(|request| match request.turn.number() {
        1 => within("c_1", answer(vec![block(PENDING)], StopReason::PauseTurn)),
        _ => text("done"),
    }));
    let mut conversation = fixture.load().await;
    let limits = Limits { pauses: 0, ..Limits::default() };
    let input = vec![Block::text("go")];
    let outcome = fixture.turn(&mut conversation, CommandKind::StartTurn { input, limits }).await;
    assert!(matches!(outcome, TurnOutcome::Finished(TurnStop::Limit(_))), "{outcome:?}");
    fixture.turn(&mut conversation, start("never mind")).await;
    let last = written(&fixture.model.requests.lock().unwrap().last().unwrap().messages);
    assert!(!last.contains("server_tool_use") && last.contains("what came of it is not known"), "{last}");
}

/// What was sent before it stays as it was, so that the service finds it in its cache.
#[tokio::test(start_paused = true)]
async fn an_answer_that_was_cut_before_its_first_word_leaves_the_one_before_as_it_was() {
    let fixture = Fixture::new(FakeModel::answering(|request| match request.turn.number() {
        1 => within("c_1", answer(vec![block(PENDING)], StopReason::EndTurn)),
        2 => answer(Vec::new(), StopReason::MaxTokens),
        _ => text("done"),
    }));
    let mut conversation = fixture.load().await;
    for words in ["one", "two", "three"] {
        fixture.turn(&mut conversation, start(words)).await;
    }
    let requests = fixture.model.requests.lock().unwrap();
    assert_eq!(requests[2].messages[..2], requests[1].messages[..2]);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_the_service_has_no_more_is_left_out_and_given_again() {
    let fixture = Fixture::new(FakeModel::events(|request| {
        if written(&request.messages).contains(r#""file_id":"file_1""#) && request.turn.number() > 1 {
            let kind = ModelErrorKind::Api(ApiErrorKind::NotFound);
            return vec![Err(ModelError::new(kind, "the service answered 404: File not found: file_1"))];
        }
        vec![Ok(ModelEvent::Finished(Box::new(text("done"))))]
    }));
    let mut conversation = fixture.load().await;
    let content = ArtifactContent { digest: Digest::of_bytes(b"a"), size: 1 };
    let artifact =
        Artifact::new("sales".parse().unwrap(), ArtifactSource::Content, "text/csv", Some(content));
    conversation.submit(CommandKind::RegisterArtifact { artifact: Box::new(artifact) }).await.unwrap();
    conversation.submit(start("one")).await.unwrap();
    let upload = |bytes: &[u8]| UploadedArtifact {
        name: "sales".parse().unwrap(),
        digest: Digest::of_bytes(bytes),
        block: block(r#"{"type":"container_upload","file_id":"file_1"}"#),
    };
    let attach = |uploaded| CommandKind::AttachUpload { uploaded: Box::new(uploaded) };
    assert!(conversation.submit(attach(upload(b"b"))).await.is_err(), "it is not what is due");
    conversation.submit(attach(upload(b"a"))).await.unwrap();
    fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap();
    assert_eq!(conversation.state().pending_uploads().count(), 0);

    let outcome = fixture.turn(&mut conversation, start("two")).await;
    assert!(matches!(outcome, TurnOutcome::Finished(TurnStop::Answered(_))), "{outcome:?}");
    assert_eq!(conversation.state().pending_uploads().count(), 1);
    assert!(!written(conversation.state().messages()).contains("container_upload"));
}
