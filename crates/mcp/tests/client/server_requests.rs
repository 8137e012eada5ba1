//! What servers ask this client in the middle of a call: older ones by requests that hold the call open, newer ones by its answer. All servers
//! here are of the official SDK.

use std::sync::{Arc, Mutex};

use conjure_conversation::{Message, Response, Role};
use conjure_mcp::{McpServerSpec, Sampler, SamplingRequest};
use futures_util::future::BoxFuture;
use serde_json::json;
use test_support::Python;

use crate::elicitation::{accept, asked, ended, message, python_server, sdk_session};
use crate::support::{Session, wait as wait_async};

/// The older server, or `None` where its SDK is not there.
async fn older() -> Option<McpServerSpec> {
    let check = "import mcp.server.fastmcp";
    let python = Python::find("CONJURE_ORACLE_PYTHON_MCP_1", check, "`mcp` before 2").await?;
    Some(python_server(&python, "older_server.py"))
}

async fn older_session() -> Option<Session> {
    Some(Session::start([older().await?]).await)
}

#[tokio::test]
async fn a_question_of_an_older_server_holds_its_call_open() {
    let Some(session) = older_session().await else { return };
    let tool = "mcp__git__delete_branch";
    let first = asked(&session, tool, json!({}), None).await;
    assert_eq!((first.asked_by.as_str(), message(&first)), ("git", "Which branch?"));
    let second = asked(&session, tool, json!({}), accept(&first, json!({"name": "old"}))).await;
    assert_eq!(message(&second), "Why old?", "the same call went on");
    let text = ended(&session, tool, json!({}), accept(&second, json!({"reason": "merged"}))).await;
    assert_eq!(text, "deleted old: merged");

    // An answer is good once, and only where the call is held.
    for session in [Some(&session), older_session().await.as_ref()].into_iter().flatten() {
        let text = ended(session, tool, json!({}), accept(&first, json!({"name": "old"}))).await;
        assert!(text.contains("held its call open"), "{text}");
    }
}

#[tokio::test]
async fn several_calls_are_held_and_each_gets_its_own_answer() {
    let Some(session) = older_session().await else { return };
    let tool = "mcp__git__delete_branch";
    let one = asked(&session, tool, json!({}), None).await;
    let other = asked(&session, tool, json!({}), None).await;
    for (request, name) in [(other, "second"), (one, "first")] {
        let why = asked(&session, tool, json!({}), accept(&request, json!({"name": name}))).await;
        let text = ended(&session, tool, json!({}), accept(&why, json!({"reason": "r"}))).await;
        assert_eq!(text, format!("deleted {name}: r"));
    }
    // The oldest of too many is given up.
    let mut held = Vec::new();
    for _ in 0..17 {
        held.push(asked(&session, tool, json!({}), None).await);
    }
    let given_up = ended(&session, tool, json!({}), accept(&held[0], json!({"name": "old"}))).await;
    assert!(given_up.contains("held its call open"), "{given_up}");
    asked(&session, tool, json!({}), accept(&held[1], json!({"name": "old"}))).await;
}

/// The protocol does not say which call a question belongs to.
#[tokio::test]
async fn a_question_while_several_calls_run_is_declined() {
    let Some(older) = older().await else { return };
    let session = Session::start([McpServerSpec { parallel_calls: true, ..older }]).await;
    let started = session.workspace().join("started");
    let (waited, beside) = futures_util::join!(
        ended(&session, "mcp__git__wait_for_question", json!({"started": started}), None),
        async {
            wait_async(|| started.exists()).await;
            ended(&session, "mcp__git__ask_beside", json!({}), None).await
        }
    );
    assert_eq!((waited.as_str(), beside.as_str()), ("asked", "decline"));
}

/// Another session of the same process would be asked.
#[tokio::test]
async fn a_shared_program_asks_nobody() {
    let Some(older) = older().await else { return };
    let session = Session::start([McpServerSpec { shared: true, ..older }]).await;
    let text = ended(&session, "mcp__git__delete_branch", json!({}), None).await;
    assert_eq!(text, "nothing deleted");
}

#[tokio::test]
async fn the_model_is_asked_only_while_a_call_runs_and_not_for_ever() {
    let Some(older) = older().await else { return };
    let sampler = Arc::new(EchoSampler::default());
    let session = Session::with_sampler([older], Arc::clone(&sampler) as _).await;
    let tool = "mcp__git__sample_after";
    let refused = async |when: &str| {
        // The call has ended, or waits for a person, before the server asks.
        std::fs::write(session.workspace().join(format!("{when}.go")), "").unwrap();
        let done = session.workspace().join(format!("{when}.done"));
        wait_async(|| done.exists()).await;
        let said = std::fs::read_to_string(&done).unwrap();
        assert_eq!(said.matches("while no call of it runs").count(), 3, "{when}: {said}");
    };
    let input = |when: &str| json!({"when": when, "told": session.workspace().join(when)});
    assert_eq!(ended(&session, tool, input("ended"), None).await, "ended");
    refused("ended").await;
    let request = asked(&session, tool, input("held"), None).await;
    refused("held").await;
    let answer = accept(&request, json!({"name": "old"}));
    assert_eq!(ended(&session, tool, input("held"), answer).await, "ended");
    assert!(sampler.0.lock().unwrap().is_empty(), "the model was not asked");
    // With this one, three calls were begun.
    let text = ended(&session, "mcp__git__sample_often", json!({"times": 100}), None).await;
    assert!(text.starts_with("60: ") && text.contains("more than 20 times for a call"), "{text}");
}

#[tokio::test]
async fn a_program_is_told_of_the_directories_that_it_may_work_in() {
    let Some(session) = older_session().await else { return };
    let text = ended(&session, "mcp__git__roots", json!({}), None).await;
    let workspace = format!("file://{}", session.workspace().display());
    assert_eq!(text.trim_end_matches('/'), workspace);
    let Some(newest) = sdk_session("asking_server.py").await else { return };
    let text = ended(&newest, "mcp__git__roots", json!({}), None).await;
    assert_eq!(text.trim_end_matches('/'), format!("file://{}", newest.workspace().display()));
}

/// Answers with what it was asked.
#[derive(Debug, Default)]
struct EchoSampler(Mutex<Vec<SamplingRequest>>);

impl Sampler for EchoSampler {
    fn sample(&self, request: SamplingRequest) -> BoxFuture<'_, Result<Response, String>> {
        let text = request.messages.iter().map(|message| message.text()).collect::<Vec<_>>().join("|");
        self.0.lock().unwrap().push(request);
        Box::pin(async move { Ok(Response { model: Some("tiny".to_owned()), ..Response::text(text) }) })
    }
}

#[tokio::test]
async fn a_server_asks_the_model_where_that_is_permitted() {
    let Some(older) = older().await else { return };
    let refused = ended(&Session::start([older.clone()]).await, "mcp__git__sample", json!({}), None).await;
    assert!(refused.contains("`sampling`"), "{refused}");

    let sampler = Arc::new(EchoSampler::default());
    let session = Session::with_sampler([older], Arc::clone(&sampler) as _).await;
    let text = ended(&session, "mcp__git__sample", json!({}), None).await;
    assert_eq!(text, "tiny endTurn: one\ntwo|three|four");
    let request = sampler.0.lock().unwrap().pop().unwrap();
    let roles: Vec<Role> = request.messages.iter().map(|message: &Arc<Message>| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::User], "they alternate");
    assert_eq!(request.instructions.as_deref(), Some("Be brief."));
    assert_eq!((request.max_tokens, request.temperature), (10, Some(0.5)));
    assert_eq!(request.stop_sequences, ["."]);
    let refused = ended(&session, "mcp__git__sample", json!({"last": "assistant"}), None).await;
    assert!(refused.contains("must be the user's"), "{refused}");

    // A server of the newest revision asks by the answer of its call.
    let check = "import mcp.server.mcpserver";
    let Some(python) = Python::find("CONJURE_ORACLE_PYTHON_MCP", check, "`mcp` 2.3.0").await else { return };
    let newest = python_server(&python, "asking_server.py");
    let session = Session::with_sampler([newest], sampler).await;
    let text = ended(&session, "mcp__git__sample", json!({}), None).await;
    assert_eq!(text, "hi");
}
