//! Misbehaving models: each turn ends, and the session continues.

use std::sync::Arc;
use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::conversation::{Limit, TurnStop};
use conjure::model::{ApiErrorKind, BlockKind, ModelErrorKind, ModelEvent, ModelStream, parse_response};
use conjure::session::SessionBody;
use conjure::{Limits, Model, ModelError, Request, Runtime, Settings};
use futures_util::{StreamExt as _, stream};

use crate::runtime::fixture::{Fixture, ask, model, say, soon, spec, tenant};

/// The model's reaction to the user's message.
struct FaultyModel(Arc<dyn Model>);

impl Model for FaultyModel {
    fn stream(&self, request: Request) -> ModelStream {
        // Unanswered messages come before it.
        let last = request.messages.last().unwrap();
        let message = match last.content.last().unwrap().kind() {
            BlockKind::Text(text) => text.clone(),
            _ => String::new(),
        };
        let delta = || Ok(ModelEvent::TextDelta { index: 0, text: "and ".to_owned() });
        match message.as_str() {
            "be silent" => stream::pending().boxed(),
            // It never ends, and never is an answer. It lets others have their turn, as a network would.
            "talk for ever" => stream::repeat(())
                .then(move |()| async move {
                    tokio::task::yield_now().await;
                    delta()
                })
                .boxed(),
            "break off" => stream::iter([Ok(ModelEvent::Started), delta()]).boxed(),
            "panic" => panic!("the model panics"),
            message if message.starts_with('{') => {
                let response = parse_response(message).unwrap();
                stream::iter([Ok(ModelEvent::Finished(Box::new(response)))]).boxed()
            }
            _ => self.0.stream(request),
        }
    }
}

#[tokio::test]
async fn a_turn_ends_whatever_its_model_does_and_the_next_one_works() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let options = fixture.options().model("odd", FaultyModel(Arc::new(model())));
    let runtime = Runtime::spawn(options).await.unwrap();
    let limits = Limits { wall_clock: Some(Duration::from_millis(200)), ..Limits::default() };
    let session = runtime.open(spec().model("odd").limits(limits.clone())).await.unwrap();
    let short = |text: &'static str| {
        let (session, limits) = (session.clone(), limits.clone());
        async move { session.send_with_limits(text, Some(limits)).await.unwrap().end().await.unwrap() }
    };
    for text in ["be silent", "talk for ever"] {
        let stop = short(text).await;
        assert!(matches!(stop, TurnStop::Limit(Limit::WallClock)), "{text}: {stop}");
    }
    let long = Limits::default();
    let session_of_its_own = runtime.open(spec().model("odd").limits(long)).await.unwrap();
    for (text, kind) in [("break off", ModelErrorKind::Truncated), ("panic", ModelErrorKind::Protocol)] {
        let (stop, _) = say(&session_of_its_own, text).await;
        let TurnStop::ModelFailed(error) = &stop else { panic!("{text}: {stop}") };
        assert_eq!(error.kind, kind, "{text}");
    }
    // Nonsense: a tool that there is not, input that is none, an answer without anything.
    for (text, says) in [
        (
            r#"{"content": [{"type": "tool_use", "id": "a", "name": "fly", "input": {}}], "stop_reason": "tool_use"}"#,
            "fly",
        ),
        (
            r#"{"content": [{"type": "tool_use", "id": "b", "name": "bash_tool", "input": {"x": 1}}], "stop_reason": "tool_use"}"#,
            "command",
        ),
    ] {
        let answer = ask(&session_of_its_own, text).await;
        assert!(answer.contains(says), "{answer}");
    }
    for text in
        [r#"{"content": [], "stop_reason": "end_turn"}"#, r#"{"content": [], "stop_reason": "tool_use"}"#]
    {
        assert_eq!(ask(&session_of_its_own, text).await, "");
    }
    for session in [&session, &session_of_its_own] {
        let answers =
            session.send_with_limits("hello", Some(Limits::default())).await.unwrap().end().await.unwrap();
        assert!(matches!(answers, TurnStop::Answered(_)), "{answers}");
    }
    // One that is silent is interrupted by a shutdown.
    let _turn = session_of_its_own.send("be silent").await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
}

/// The service's error quotes what was sent.
#[tokio::test]
async fn a_secret_that_a_models_error_quotes_is_reported_nowhere() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let quoting = conjure::model_fn(|request: Request| async move {
        let text = request.messages.last().unwrap().text();
        let kind = ModelErrorKind::Api(ApiErrorKind::InvalidRequest);
        Err(ModelError::new(kind, format!("no use for `{text}`")))
    });
    let runtime = Runtime::spawn(fixture.options().model("quoting", quoting)).await.unwrap();
    let session = runtime.open(spec().model("quoting").secret("password", "pa55word-of-ada")).await.unwrap();
    let (ended, _) = say(&session, "it is pa55word-of-ada").await;
    let snapshot = session.snapshot().await.unwrap();
    let listed = runtime.summary(&tenant("acme"), session.id()).await.unwrap();
    let SessionBody::Ok(contents) = listed.body else { panic!("{listed:?}") };
    for stop in [ended, snapshot.last_turn.unwrap().stop, contents.last_stop.unwrap()] {
        let TurnStop::ModelFailed(error) = &stop else { panic!("{stop}") };
        assert_eq!(error.message, "no use for `it is [REDACTED:password]`");
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// A session's secret may be called as the host's key is: neither takes the other's place.
#[cfg(feature = "anthropic")]
#[tokio::test]
async fn the_embedders_key_and_a_secret_of_its_name_are_both_redacted() {
    // Without TLS, so that no certificates are needed.
    let nowhere = Settings { base_url: Some("http://127.0.0.1:9".to_owned()), ..Settings::default() };
    let fixture = Fixture::with(ExecutorKind::Jail, nowhere);
    let key = secrecy::SecretString::from("the-hosts-own-k3y");
    let runtime = Runtime::spawn(fixture.options().anthropic(key)).await.unwrap();
    let name = "ANTHROPIC_API_KEY";
    let secrets = [spec().secret(name, "a-s3cret-of-acme"), spec().environment(name, "a-s3cret-of-acme")];
    for spec in secrets {
        let session = runtime.open(spec).await.unwrap();
        let text = say(&session, "$ echo the-hosts-own-k3y a-s3cret-of-acme").await.1;
        assert_eq!(text, format!("it says: [REDACTED:{name}] [REDACTED:{name}]\n"));
        let listed = runtime.summary(&tenant("acme"), session.id()).await.unwrap();
        let events = runtime.events(&tenant("acme"), session.id(), 0).await.unwrap();
        let leaves = format!("{listed:?} {}", serde_json::to_string(&events).unwrap());
        assert!(!leaves.contains("k3y") && !leaves.contains("s3cret"), "{leaves}");
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// It has the same command run again and again.
#[tokio::test]
async fn a_looping_model_is_stopped() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let circling = conjure::model_fn(|request: Request| async move {
        let body = serde_json::json!({"stop_reason": "tool_use", "content": [{
            "type": "tool_use", "id": format!("t{}", request.messages.len()), "name": "bash_tool",
            "input": {"command": "echo again >> circles", "description": "Go round"}
        }]});
        Ok(parse_response(&body.to_string()).unwrap())
    });
    let runtime = Runtime::spawn(fixture.options().model("circling", circling)).await.unwrap();
    let session = runtime.open(spec().model("circling")).await.unwrap();
    let (stop, _) = say(&session, "go").await;
    assert!(matches!(stop, TurnStop::Limit(Limit::IdenticalCalls)), "{stop}");
    let limits = Limits { identical_calls: 100, model_calls: 7, ..Limits::default() };
    let stop = session.send_with_limits("go", Some(limits)).await.unwrap().end().await.unwrap();
    assert!(matches!(stop, TurnStop::Limit(Limit::ModelCalls)), "{stop}");
    runtime.shutdown(soon()).await.unwrap();
}
