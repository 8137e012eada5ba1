//! Every later request of a conversation names the container of an answer. The bytes on the wire show it.

use std::sync::Arc;

use conjure_anthropic::fake::{FakeMessages, FakeToolRun, RecordedRequest, Reply};
use conjure_anthropic::{Caching, Client, Config, Messages, ModelOptions};
use conjure_base::{ContainerId, SystemClock};
use conjure_conversation::scripted::{Recorder, ScriptedModel};
use conjure_conversation::{
    Block, CommandKind, Conversation, Limits, MemoryEventLog, Model, PromptPrefix, Response, StopReason,
    TurnOptions, TurnOutcome, TurnServices, TurnStop, run_turn,
};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::runner::Tools;
use crate::support::{KEY, script, start};

const SEARCH: &str =
    r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"code_execution","input":{"code":"1.50"}}"#;
const ID: &str = "container_011CPR5CNjB747bTd36fQLFk";

fn client(fake: &FakeMessages, options: ModelOptions) -> Messages {
    let config = Config::new(SecretString::from(KEY)).with_base_url(fake.base_url());
    Client::new(&config).unwrap().messages(options.with_caching(Caching::Off)).unwrap()
}

/// An answer that pauses within its container.
fn paused() -> Reply {
    Reply::answer(Response {
        container: Some(ContainerId::new(ID)),
        ..Response::new(vec![Block::from_json(SEARCH).unwrap()], StopReason::PauseTurn)
    })
}

fn text_reply(text: &str) -> Reply {
    Reply::blocks(vec![Block::text(text)])
}

async fn load(event_log: &Arc<MemoryEventLog>) -> Conversation {
    Conversation::load(event_log.clone(), Arc::new(SystemClock), Arc::new(())).await.unwrap()
}

async fn turn(conversation: &mut Conversation, model: &dyn Model, text: &str) -> TurnOutcome {
    let input = vec![Block::text(text)];
    conversation.submit(CommandKind::StartTurn { input, limits: Limits::default() }).await.unwrap();
    let composer = PromptPrefix::default();
    let services = TurnServices { model, composer: &composer, tools: &Tools };
    run_turn(conversation, services, TurnOptions::default()).await.unwrap()
}

async fn answered(conversation: &mut Conversation, model: &dyn Model, text: &str) {
    let outcome = turn(conversation, model, text).await;
    assert_eq!(outcome, TurnOutcome::Finished(TurnStop::Answered(StopReason::EndTurn)));
}

fn body(request: &RecordedRequest) -> &str {
    std::str::from_utf8(request.body()).unwrap()
}

fn containers(fake: &FakeMessages) -> Vec<Value> {
    let container = |request: &RecordedRequest| {
        serde_json::from_str::<Value>(body(request)).unwrap()["container"].clone()
    };
    fake.requests().iter().map(container).collect()
}

#[tokio::test]
async fn the_container_is_kept_over_pauses_turns_and_replay() {
    let turns = [paused(), text_reply("One."), text_reply("Two."), text_reply("Three.")];
    let fake = start(FakeMessages::builder().turns(turns)).await;
    let model = client(&fake, ModelOptions::new("m"));
    let event_log = Arc::new(MemoryEventLog::new());
    let mut conversation = load(&event_log).await;
    answered(&mut conversation, &model, "Compute.").await;
    answered(&mut conversation, &model, "Again.").await;
    drop(conversation);
    answered(&mut load(&event_log).await, &model, "And again.").await;

    assert_eq!(containers(&fake), [Value::Null, json!(ID), json!(ID), json!(ID)]);
    let requests = fake.requests();
    let bodies: Vec<&str> = requests.iter().map(body).collect();
    assert!(
        bodies[1].contains(&format!(r#"{{"role":"assistant","content":[{SEARCH}]}}],"container":"{ID}"}}"#))
    );
    // The container comes after the messages. So each body still continues the one before.
    let messages = |body: &str| body.replace(&format!(r#","container":"{ID}""#), "").replace("]}]}", "");
    for pair in bodies.windows(2) {
        let (before, after) = (messages(pair[0]), messages(pair[1]));
        assert!(after.starts_with(&before) && after.len() > before.len(), "{before}\n{after}");
    }
}

#[tokio::test]
async fn a_user_defined_container_takes_precedence() {
    let skills = json!([{"type": "anthropic", "skill_id": "xlsx", "version": "latest"}]);
    let wishes = |container: Value| ModelOptions::new("m").with_field("container", container).unwrap();
    for (named, first, then) in [
        (json!("mine"), json!("mine"), json!("mine")),
        (json!({"id": "mine"}), json!({"id": "mine"}), json!({"id": "mine"})),
        (json!({"skills": skills}), json!({"skills": skills}), json!({"id": ID, "skills": skills})),
    ] {
        let fake = start(FakeMessages::builder().turns([paused(), text_reply("Done.")])).await;
        let mut conversation = load(&Arc::new(MemoryEventLog::new())).await;
        answered(&mut conversation, &client(&fake, wishes(named)), "Compute.").await;
        assert_eq!(containers(&fake), [first, then]);
    }
}

#[tokio::test]
async fn the_container_is_replayed_strictly_and_scripts_set_and_expect_it() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("run.yaml");
    let fake = start(FakeMessages::builder().turns([paused(), text_reply("Done.")])).await;
    let recorder = Recorder::create(client(&fake, ModelOptions::new("m")), &recording).unwrap();
    answered(&mut load(&Arc::new(MemoryEventLog::new())).await, &recorder, "Compute.").await;
    recorder.finish().unwrap();
    let replay = ScriptedModel::from_file(&recording).unwrap().strict();
    let mut conversation = load(&Arc::new(MemoryEventLog::new())).await;
    answered(&mut conversation, &replay, "Compute.").await;
    assert_eq!(conversation.state().container(), Some(&ContainerId::new(ID)));

    // The same words over the wire, told by a script that expects what it gave.
    let script_text = script(
        "version: 1\nturns:\n- {content: One., container: c_1, expect: {container: null}}\n\
         - {content: Two., expect: {container: c_1}}\n- {content: Three., expect: {container: c_2}}\n",
    );
    let fake = start(FakeMessages::builder().script(script_text)).await;
    let model = client(&fake, ModelOptions::new("m"));
    let mut conversation = load(&Arc::new(MemoryEventLog::new())).await;
    answered(&mut conversation, &model, "1").await;
    answered(&mut conversation, &model, "2").await;
    let TurnOutcome::Finished(TurnStop::ModelFailed(error)) = turn(&mut conversation, &model, "3").await
    else {
        panic!("another container was expected");
    };
    assert!(error.message.contains("expect.container: `c_2` must be sent; sent was `c_1`"), "{error}");
}

#[tokio::test]
async fn a_container_that_expires_during_a_response_is_not_reused() {
    let turns = [paused(), FakeToolRun::new("ls").failing("container_expired").into(), text_reply("Again.")];
    let fake = start(FakeMessages::builder().turns(turns)).await;
    let model = client(&fake, ModelOptions::new("m"));
    let mut conversation = load(&Arc::new(MemoryEventLog::new())).await;
    answered(&mut conversation, &model, "Compute.").await;
    answered(&mut conversation, &model, "Again.").await;
    assert_eq!(containers(&fake), [Value::Null, json!(ID), Value::Null]);
    let requests = fake.requests();
    assert!(body(&requests[2]).contains("a fresh one takes its place"), "{}", body(&requests[2]));
}
