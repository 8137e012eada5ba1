use std::collections::VecDeque;

use super::*;
use crate::hosted::{HostedSkill, container_config};

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn answer(stop: &str, container: Option<&str>, content: Vec<Value>) -> Value {
    let mut answer = json!({"type": "message", "role": "assistant", "content": content, "stop_reason": stop});
    if let Some(id) = container {
        answer["container"] = json!({"id": id, "expires_at": "2026-11-22T00:00:00Z", "skills": []});
    }
    answer
}

fn produced_block(file: &str) -> Value {
    json!({"type": "bash_code_execution_tool_result", "tool_use_id": "s", "content": {
        "type": "bash_code_execution_result", "stdout": "", "stderr": "", "return_code": 0,
        "content": [{"type": "bash_code_execution_output", "file_id": file}]}})
}

/// What the calls of a run were given, and what it came to.
type Ran = (Vec<(Vec<Value>, Value)>, Result<ResumedResponse, ResumeError<String>>);

async fn run_loop(container: Value, options: ResumeOptions<'_>, answers: Vec<Result<Value, String>>) -> Ran {
    let mut answers: VecDeque<_> = answers.into();
    let mut requests = Vec::new();
    let user = vec![json!({"role": "user", "content": "Go."})];
    let run = run_until_complete(user, container, options, async |messages, container| {
        requests.push((messages, container));
        answers.pop_front().unwrap()
    })
    .await;
    assert!(answers.is_empty(), "no call was left out");
    (requests, run)
}

fn skills() -> Value {
    container_config(&[HostedSkill::anthropic("xlsx")]).unwrap()
}

#[tokio::test]
async fn a_paused_response_is_resumed_in_its_container_and_reported() {
    let call = json!({"type": "server_tool_use", "id": "s", "name": "bash_code_execution", "input": {"z": 1, "a": 2}});
    let mut reported = Vec::new();
    let options = ResumeOptions::new().on_pause(|response, attempt| {
        reported.push((response["container"]["id"].clone(), attempt));
    });
    let answers = vec![
        Ok(answer("pause_turn", Some("c_1"), vec![text("I begin."), call.clone()])),
        // The service does not say it again: it is told nevertheless.
        Ok(answer("pause_turn", None, vec![produced_block("file_1")])),
        Ok(answer(
            "end_turn",
            Some("c_1"),
            vec![produced_block("file_2"), produced_block("file_1"), text("Done.")],
        )),
    ];
    let (requests, run) = run_loop(skills(), options, answers).await;
    let run = run.unwrap();
    assert_eq!(reported, [(json!("c_1"), 1), (json!("c_1"), 2)]);

    let user = json!({"role": "user", "content": "Go."});
    let assistant = |content: Value| json!({"role": "assistant", "content": content});
    let first = json!([text("I begin."), call]);
    let second = json!([text("I begin."), call, produced_block("file_1")]);
    let all = json!([
        text("I begin."),
        call,
        produced_block("file_1"),
        produced_block("file_2"),
        produced_block("file_1"),
        text("Done.")
    ]);
    let again = with_container_id(skills(), &ContainerId::new("c_1"));
    assert_eq!(
        requests,
        [
            (vec![user.clone()], skills()),
            (vec![user.clone(), assistant(first)], again.clone()),
            (vec![user.clone(), assistant(second)], again),
        ]
    );
    assert_eq!(run.messages, [user, assistant(all)]);
    assert_eq!(run.files, [FileId::new("file_1"), FileId::new("file_2")]);
    assert_eq!((run.attempts, run.container), (3, Some(ContainerId::new("c_1"))));
    assert_eq!(run.response["stop_reason"], "end_turn");
}

#[tokio::test]
async fn an_existing_container_is_used_until_a_new_one_replaces_it() {
    let before = with_container_id(skills(), &ContainerId::new("c_0"));
    let answers =
        vec![Ok(answer("compaction", Some("c_1"), vec![text("…")])), Ok(answer("end_turn", None, vec![]))];
    let (requests, run) = run_loop(before, ResumeOptions::new(), answers).await;
    assert_eq!(requests[0].1["id"], "c_0");
    assert_eq!(requests[1].1, with_container_id(skills(), &ContainerId::new("c_1")));
    assert_eq!(run.unwrap().container, Some(ContainerId::new("c_1")));
    // An id alone is a container too.
    let (requests, run) =
        run_loop(json!("c_9"), ResumeOptions::new(), vec![Ok(answer("refusal", None, vec![]))]).await;
    assert_eq!(requests[0].1, json!("c_9"));
    let run = run.unwrap();
    assert_eq!((run.container, run.messages.len()), (Some(ContainerId::new("c_9")), 1));
}

#[tokio::test]
async fn too_many_pauses_are_an_error_with_the_run_so_far() {
    for (options, maximum) in [(ResumeOptions::new(), 10), (ResumeOptions::new().with_maximum(3), 3)] {
        let pause = || Ok(answer("pause_turn", Some("c_1"), vec![produced_block("file_1")]));
        let (requests, run) = run_loop(skills(), options, (0..maximum).map(|_| pause()).collect()).await;
        assert_eq!(requests.len(), maximum as usize);
        let Err(ResumeError::MaximumExceeded { attempts, maximum: limit, paused }) = run else {
            panic!("{run:?}");
        };
        assert_eq!((attempts, limit), (maximum, maximum));
        assert_eq!(paused.container["id"], "c_1");
        assert_eq!(paused.messages[1]["content"].as_array().unwrap().len(), maximum as usize);
        assert_eq!(paused.files, [FileId::new("file_1")]);
    }
    let (requests, run) = run_loop(skills(), ResumeOptions::new().with_maximum(0), vec![]).await;
    let error = run.unwrap_err().to_string();
    assert!(requests.is_empty() && error.contains("0 calls of at most 0"), "{error}");
}

#[tokio::test]
async fn a_failed_call_returns_the_container_and_the_history() {
    let answers = vec![
        Ok(answer("pause_turn", Some("c_1"), vec![produced_block("file_1")])),
        Err("no network".to_owned()),
    ];
    let (_, run) = run_loop(skills(), ResumeOptions::new(), answers).await;
    let error = run.unwrap_err();
    assert_eq!(error.to_string(), "call 2 failed: no network");
    let ResumeError::Call { attempt: 2, paused, .. } = error else { panic!("{error:?}") };
    assert_eq!((paused.container["id"].as_str(), paused.messages.len()), (Some("c_1"), 2));

    for invalid in [json!({"type": "error", "error": {}}), json!("text"), json!({"content": "text"})] {
        let (_, run) = run_loop(skills(), ResumeOptions::new(), vec![Ok(invalid)]).await;
        assert!(matches!(run, Err(ResumeError::NotAMessage { attempt: 1, .. })), "{run:?}");
    }
}

#[tokio::test]
async fn a_run_can_be_awaited_by_any_task() {
    let mut reported = 0;
    let options = ResumeOptions::new().on_pause(|_, _| reported += 1);
    let user = vec![json!({"role": "user", "content": "Go."})];
    let call = async |_, _| {
        tokio::task::yield_now().await;
        Ok::<_, String>(answer("end_turn", None, vec![text("Done.")]))
    };
    let running: futures_util::future::BoxFuture<'_, _> =
        Box::pin(run_until_complete(user, skills(), options, call));
    assert_eq!(running.await.unwrap().messages.len(), 2);
}
