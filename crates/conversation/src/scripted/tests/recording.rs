use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use conjure_base::{ContainerId, Redactor};
use futures_util::StreamExt as _;
use proptest::prelude::*;
use tempfile::tempdir;

use super::model;
use super::{answer, events, first_message, request, script_error, with_results};
use crate::scripted::{RecordError, Recorder, ScriptError, ScriptedModel, request_digest};
use crate::{
    ApiErrorKind, Block, Message, Model, ModelError, ModelErrorKind, ModelEvent, ModelStream, Request,
    Response, SideEffects, StopReason, Usage, model_fn,
};

/// Keeps what a model is sent, as the bytes of a request's body.
struct Captured<M> {
    model: M,
    bodies: Mutex<Vec<String>>,
}

impl<M> Captured<M> {
    fn new(model: M) -> Self {
        Self { model, bodies: Mutex::default() }
    }
}

impl<M: Model> Model for Captured<M> {
    fn stream(&self, request: Request) -> ModelStream {
        let body =
            serde_json::to_string(&(&request.instructions, &*request.tools, bodies_of(&request))).unwrap();
        self.bodies.lock().unwrap().push(body);
        self.model.stream(request)
    }
}

fn bodies_of(request: &Request) -> Vec<&Message> {
    request.messages.iter().map(AsRef::as_ref).collect()
}

/// A small loop: each answer and a user's reply are appended, three times.
async fn converse(model: &impl Model) -> Vec<Response> {
    let mut messages = vec![first_message()];
    let mut answers = Vec::new();
    for round in 0..3 {
        let response = answer(model, request(messages.clone())).await;
        messages.push(Message::assistant(response.content.clone()));
        messages.push(Message::user(vec![Block::text(format!("go on {round}"))]));
        answers.push(response);
    }
    answers
}

/// Three answers with what a service may send: odd spaces, unknown blocks, numbers as written.
fn service() -> impl Model {
    let calls = Mutex::new(0);
    model_fn(move |_| {
        let mut calls = calls.lock().unwrap();
        *calls += 1;
        let content = match *calls {
            1 => vec![
                Block::from_json(r#"{ "type" : "thinking","thinking":"hm {{user}}","signature":"Zm9v" }"#)
                    .unwrap(),
                Block::from_json(
                    r#"{"type":"tool_use","id":"toolu_01","name":"view","input":{"b":1.0,"a":1e3}}"#,
                )
                .unwrap(),
            ],
            2 => vec![Block::from_json("{\"type\":\"new_kind\",\n\t\"x\":\"\\u0085: - 'é\"}").unwrap()],
            _ => vec![Block::text("done: \"{{user}}\" \\{{")],
        };
        let response = Response {
            id: Some(format!("msg_{calls}")),
            model: Some("a-model".to_owned()),
            usage: Usage { input_tokens: 3, cache_read_input_tokens: u64::MAX, ..Usage::default() },
            container: (*calls > 1).then(|| ContainerId::new("container: \"1\"")),
            ..Response::new(
                content,
                [StopReason::ToolUse, StopReason::Missing, StopReason::EndTurn][*calls - 1].clone(),
            )
        };
        async move { Ok(response) }
    })
}

#[tokio::test]
async fn a_recording_replays_to_equal_requests_and_answers() {
    for name in ["run.yaml", "run.json"] {
        let dir = tempdir().unwrap();
        let path = dir.path().join(name);
        let live = Captured::new(Recorder::create(service(), &path).unwrap());
        let response = converse(&live).await;
        live.model.finish().unwrap();

        let replay = Captured::new(ScriptedModel::from_file(&path).unwrap().strict());
        assert_eq!(converse(&replay).await, response);
        assert_eq!(*replay.bodies.lock().unwrap(), *live.bodies.lock().unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "something was left behind");
    }
}

#[test]
fn a_recorder_reports_the_side_effects_of_its_model() {
    struct ModelWithSideEffects;
    impl Model for ModelWithSideEffects {
        fn stream(&self, _: Request) -> ModelStream {
            futures_util::stream::empty().boxed()
        }

        fn side_effects(&self, _: &Request) -> SideEffects {
            SideEffects::Possible
        }
    }
    let dir = tempdir().unwrap();
    let record = |name: &str| dir.path().join(name);
    let plain = request(vec![first_message()]);
    let acting = Recorder::create(ModelWithSideEffects, record("acting.json")).unwrap();
    let answering = Recorder::create(service(), record("answering.json")).unwrap();
    assert_eq!(acting.side_effects(&plain), SideEffects::Possible);
    assert_eq!(answering.side_effects(&plain), SideEffects::None);
}

#[tokio::test]
async fn a_recording_does_not_change_other_files() {
    let dir = tempdir().unwrap();
    let (path, neighbour) = (dir.path().join("run.yaml"), dir.path().join("run.yaml.partial"));
    fs::write(&neighbour, "mine").unwrap();
    let plain = dir.path().join("plain");
    fs::write(&plain, "").unwrap();
    converse(&Recorder::create(service(), &path).unwrap()).await;
    assert_eq!(fs::read_to_string(&neighbour).unwrap(), "mine");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&plain), "readable by whom any new file is");
}

#[test]
fn two_recorders_of_one_path_never_interleave() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("run.json");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let recorder = Recorder::create(service(), &path).unwrap();
                    recorder.finish().unwrap();
                    ScriptedModel::from_file(&path).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "something was left behind");
}

#[tokio::test]
async fn a_strict_replay_refuses_another_request_and_a_turn_without_a_digest() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("run.yaml");
    converse(&Recorder::create(service(), &path).unwrap()).await;
    let message =
        script_error(&ScriptedModel::from_file(&path).unwrap().strict(), request(with_results())).await;
    let sent = request_digest(&request(with_results())).to_string();
    assert!(message.contains("turn 1, sent:") && message.contains(&sent), "{message}");
    answer(&ScriptedModel::from_file(&path).unwrap(), request(with_results())).await;

    let bare = model("version: 1\nturns: [{content: a}]").strict();
    let message = script_error(&bare, request(vec![first_message()])).await;
    assert!(message.contains("no digest") && message.contains("record it anew"), "{message}");
}

#[tokio::test]
async fn errors_and_truncated_streams_are_replayed() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("run.yaml");
    let script = "version: 1\nturns:\n- error: {type: rate_limit_error, message: slow down, retry_after_ms: 20, request_id: r}\n\
        - {content: [{thinking: hm}, abcdef, ghi], error: {type: truncated, message: gone, after_pieces: 7}, pieces: 3}\n\
        - {content: abcdef, cut_after: 2, pieces: 3}\n- {error: {type: 'unknown:x', message: m, after_pieces: 0}}\n";
    let recorder = Recorder::create(model(script), &path).unwrap();
    let mut live = Vec::new();
    for _ in 0..4 {
        live.push(events(&recorder, request(vec![first_message()])).await);
    }
    let replay = ScriptedModel::from_file(&path).unwrap().strict();
    for expected in live {
        let replayed = events(&replay, request(vec![first_message()])).await;
        assert_eq!(output_of(&replayed), output_of(&expected));
        assert_eq!(replayed.last().unwrap().as_ref().err(), expected.last().unwrap().as_ref().err());
        assert_eq!(replayed.first(), expected.first());
    }
    assert!(matches!(
        &events(&replay, request(vec![first_message()])).await[..],
        [Err(ModelError { kind: ModelErrorKind::Script, .. })]
    ));
}

/// The text and the thinking that events show, by block.
fn output_of(events: &[Result<ModelEvent, ModelError>]) -> Vec<(usize, String)> {
    let mut deltas: Vec<(usize, String)> = Vec::new();
    for event in events {
        if let Ok(ModelEvent::TextDelta { index, text } | ModelEvent::ThinkingDelta { index, text }) = event {
            match deltas.last_mut() {
                Some((last, so_far)) if last == index => so_far.push_str(text),
                _ => deltas.push((*index, text.clone())),
            }
        }
    }
    deltas
}

#[tokio::test]
async fn every_class_of_error_is_recorded() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("run.yaml");
    let kinds = [
        ModelErrorKind::Connection,
        ModelErrorKind::Truncated,
        ModelErrorKind::Protocol,
        ModelErrorKind::Timeout,
        ModelErrorKind::Script,
        ModelErrorKind::Api(ApiErrorKind::InvalidRequest),
        ModelErrorKind::Api(ApiErrorKind::Overloaded),
        ModelErrorKind::Api(ApiErrorKind::Unknown("brand new".to_owned())),
    ];
    let next = Mutex::new(kinds.clone().into_iter());
    let recorder = Recorder::create(
        model_fn(move |_| {
            let kind = next.lock().unwrap().next().unwrap();
            async move {
                Err(ModelError { retry_after: Some(Duration::from_millis(7)), ..ModelError::new(kind, "no") })
            }
        }),
        &path,
    )
    .unwrap();
    let mut live = Vec::new();
    for _ in &kinds {
        live.push(events(&recorder, request(vec![first_message()])).await);
    }
    let replay = ScriptedModel::from_file(&path).unwrap();
    for expected in live {
        assert_eq!(events(&replay, request(vec![first_message()])).await, expected);
    }
}

#[tokio::test]
async fn abandoned_and_running_calls_keep_the_turn_order() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("run.yaml");
    let script = "version: 1\nturns: [{content: abcd}, {content: two}, {content: three}]";
    let recorder = Recorder::create(model(script), &path).unwrap();
    drop(recorder.stream(request(vec![first_message()])));
    let mut first = recorder.stream(request(vec![first_message()]));
    assert_eq!(first.next().await, Some(Ok(ModelEvent::Started)));
    assert!(first.next().await.is_some());
    answer(&recorder, request(vec![first_message()])).await;
    assert_eq!(ScriptedModel::from_file(&path).unwrap().script().len(), 0, "the first call is under way");
    drop(first);
    let replay = ScriptedModel::from_file(&path).unwrap();
    assert_eq!(replay.script().len(), 2);
    let cut = events(&replay, request(vec![first_message()])).await;
    assert_eq!(output_of(&cut), [(0, "a".to_owned())]);
    assert_eq!(answer(&replay, request(vec![first_message()])).await.content, [Block::text("two")]);
}

#[test]
fn a_recording_is_always_a_regular_file() {
    let refused = |path: &Path| Recorder::create(model("version: 1\nturns: []"), path).unwrap_err();
    let dir = tempdir().unwrap();
    let device = dir.path().join("null.yaml");
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    for path in [&device, &dir.path().join("run.txt")] {
        assert!(matches!(refused(path), RecordError::Path(_)), "{path:?}");
    }
    let directory = dir.path().join("directory.yaml");
    fs::create_dir(&directory).unwrap();
    assert!(
        matches!(refused(&directory), RecordError::Path(reason) if matches!(*reason, ScriptError::NotAFile { .. }))
    );
    let nowhere = dir.path().join("missing/run.yaml");
    let error = refused(&nowhere);
    assert!(
        matches!(error, RecordError::Write { .. }) && error.to_string().contains("missing/run.yaml"),
        "{error}"
    );
}

#[tokio::test]
async fn a_failed_write_affects_no_call_and_is_reported_by_finish() {
    let parent = tempdir().unwrap();
    let dir = parent.path().join("directory");
    fs::create_dir(&dir).unwrap();
    let path = dir.join("run.json");
    let recorder = Recorder::create(model("version: 1\nturns: [{content: a}, {content: b}]"), &path).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    answer(&recorder, request(vec![first_message()])).await;
    assert!(matches!(recorder.finish(), Err(RecordError::Write { .. })));
    // The disk works again: the next call writes the whole recording.
    fs::create_dir(&dir).unwrap();
    answer(&recorder, request(vec![first_message()])).await;
    recorder.finish().unwrap();
    assert_eq!(ScriptedModel::from_file(&path).unwrap().script().len(), 2);
}

#[tokio::test]
async fn a_too_long_recording_keeps_its_beginning() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("run.json");
    let recorder = Recorder::create(
        model_fn(|_| async {
            Ok(Response::new(vec![Block::text("x".repeat(3 << 20))], StopReason::EndTurn))
        }),
        &path,
    )
    .unwrap();
    for _ in 0..4 {
        answer(&recorder, request(vec![first_message()])).await;
    }
    assert!(matches!(recorder.finish(), Err(RecordError::TooLong { .. })));
    assert_eq!(ScriptedModel::from_file(&path).unwrap().script().len(), 2);
}

/// The file leaves, so nothing in it is secret; the conversation continues with what was said, and a strict replay fits.
#[tokio::test]
async fn a_recording_holds_no_secrets_and_is_replayed_strictly() {
    const SECRET: &str = "s3cr3t-\"value\"";
    let dir = tempdir().unwrap();
    let path = dir.path().join("run.json");
    let calls = Mutex::new(0);
    let service = model_fn(move |_| {
        let mut calls = calls.lock().unwrap();
        *calls += 1;
        let outcome = match *calls {
            1 => Ok(Response {
                id: Some(SECRET.to_owned()),
                ..Response::new(
                    vec![Block::text(format!("the password is {SECRET}")), Block::text("ok")],
                    StopReason::EndTurn,
                )
            }),
            _ => Err(ModelError::new(ModelErrorKind::Connection, format!("no way to {SECRET}"))),
        };
        async move { outcome }
    });
    let redactor = Redactor::new([("PASSWORD", SECRET)]);
    let recorder = Recorder::create(service, &path).unwrap().with_redactor(redactor);
    let second = |response: &Response| {
        let assistant_message = Message::assistant(response.content.clone());
        request(vec![
            first_message(),
            assistant_message,
            Message::user(vec![Block::text(format!("{SECRET}?"))]),
        ])
    };
    let response = answer(&recorder, request(vec![first_message()])).await;
    assert!(response.content[0].json().contains("s3cr3t"), "the conversation contains the messages");
    events(&recorder, second(&response)).await;
    recorder.finish().unwrap();

    let written = fs::read_to_string(&path).unwrap();
    assert!(!written.contains("s3cr3t") && written.contains("no way to [REDACTED:PASSWORD]"), "{written}");
    let replay = ScriptedModel::from_file(&path).unwrap().strict();
    let response = answer(&replay, request(vec![first_message()])).await;
    assert_eq!(response.content[0], Block::text("the password is [REDACTED:PASSWORD]"));
    let failed = events(&replay, second(&response)).await.pop().unwrap().unwrap_err();
    assert_eq!(failed.kind, ModelErrorKind::Connection, "{failed}");
}

/// A cut may leave the beginning of a secret.
#[tokio::test]
async fn a_dropped_call_records_no_part_of_a_secret() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("run.yaml");
    let scripted = model("version: 1\nturns: [{content: it is s3cr3t-value, pieces: 3}]");
    let recorder =
        Recorder::create(scripted, &path).unwrap().with_redactor(Redactor::new([("KEY", "s3cr3t-value")]));
    let mut stream = recorder.stream(request(vec![first_message()]));
    while !matches!(stream.next().await, Some(Ok(ModelEvent::TextDelta { text, .. })) if text.contains("s3"))
    {
    }
    drop(stream);
    let written = fs::read_to_string(&path).unwrap();
    assert!(written.contains("it is [REDACTED:KEY]") && !written.contains("s3cr"), "{written}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// YAML has many ways to write a text; none may change what the model said.
    #[test]
    fn any_text_survives_a_recording(texts in prop::collection::vec(any::<String>(), 1..4), message: String) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for name in ["run.yaml", "run.json"] {
                let dir = tempdir().unwrap();
                let path = dir.path().join(name);
                let calls = Mutex::new(0);
                let (texts, message) = (texts.clone(), message.clone());
                let content: Vec<Block> = texts.iter().map(Block::text).collect();
                let service = model_fn(move |_| {
                    let mut calls = calls.lock().unwrap();
                    *calls += 1;
                    let outcome = if *calls == 1 {
                        let response = Response::new(content.clone(), StopReason::from(Some(texts[0].clone())));
                        Ok(Response { id: Some(texts[0].clone()), request_id: Some(message.clone()), ..response })
                    } else {
                        Err(ModelError::new(ModelErrorKind::Connection, message.clone()))
                    };
                    async move { outcome }
                });
                let recorder = Recorder::create(service, &path).unwrap();
                let live = [events(&recorder, request(vec![first_message()])).await, events(&recorder, request(vec![first_message()])).await];
                let replay = ScriptedModel::from_file(&path).unwrap();
                let replayed = [events(&replay, request(vec![first_message()])).await, events(&replay, request(vec![first_message()])).await];
                assert_eq!(replayed[0].last(), live[0].last());
                assert_eq!(replayed[1], live[1]);
            }
        });
    }
}
