//! Runs of an agent as tasks, for clients with that extension: the scenarios of the official conformance suite by their names.

use serde_json::{Value, json};

use crate::served::Client;
use crate::wire_headers::NEWEST;

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// A client that has the extension.
struct TaskClient(Client);

impl TaskClient {
    fn start() -> Self {
        Self(Client::start())
    }

    async fn ask(&mut self, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": NEWEST,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}},
        });
        let answer = self.0.ask_with(method, params).await;
        assert!(!answer.to_string().contains("requestState"), "{answer}");
        answer
    }

    async fn run(&mut self, prompt: &str) -> Value {
        let params = json!({"name": "run_agent", "arguments": {"prompt": prompt}});
        self.ask("tools/call", params).await["result"].clone()
    }

    async fn task(&mut self, id: &Value) -> Value {
        self.ask("tasks/get", json!({"taskId": id})).await["result"].clone()
    }

    /// The task, once it has ended.
    async fn ended(&mut self, id: &Value) -> Value {
        for _ in 0..100_000 {
            let task = self.task(id).await;
            if task["status"] != "working" {
                return task;
            }
            tokio::task::yield_now().await;
        }
        Value::Null
    }
}

#[tokio::test]
async fn tasks_lifecycle() {
    let mut client = TaskClient::start();
    let listed =
        client.ask("tools/call", json!({"name": "skill_list", "arguments": {}})).await["result"].clone();
    assert!(listed["content"].is_array() && listed.get("taskId").is_none(), "{listed}");

    let waiting = client.run("wait").await;
    assert_eq!(
        (&waiting["resultType"], &waiting["status"]),
        (&json!("task"), &json!("working")),
        "{waiting}"
    );
    let task = client.task(&waiting["taskId"]).await;
    assert_eq!(task["taskId"], waiting["taskId"], "{task}");
    assert_eq!((&task["resultType"], &task["status"]), (&json!("complete"), &json!("working")), "{task}");

    let answered = client.run("hello").await;
    let task = client.ended(&answered["taskId"]).await;
    assert_eq!(task["status"], "completed", "{task}");
    assert_eq!(task["result"]["content"][0]["text"], "You said: hello", "{task}");
    assert_eq!(task["statusMessage"], "one; three", "{task}");

    // An agent that fails is a result of the tool.
    let failed = client.run("fail").await;
    let task = client.ended(&failed["taskId"]).await;
    assert_eq!((&task["status"], &task["result"]["isError"]), (&json!("completed"), &json!(true)), "{task}");
    assert_eq!(task["result"]["content"][0]["text"], "it failed", "{task}");

    let told = client.ask("tasks/cancel", json!({"taskId": waiting["taskId"]})).await;
    assert_eq!(told["result"], json!({"resultType": "complete"}), "{told}");
    let task = client.ended(&waiting["taskId"]).await;
    assert_eq!((&task["status"], &task["statusMessage"]), (&json!("cancelled"), &json!("it was stopped")));
    // Once more changes nothing.
    client.ask("tasks/cancel", json!({"taskId": waiting["taskId"]})).await;
    assert_eq!(client.task(&waiting["taskId"]).await["status"], "cancelled");
    client.0.check().await;
}

#[tokio::test]
async fn tasks_capability_negotiation() {
    let mut client = TaskClient::start();
    let found = client.ask("server/discover", json!({})).await["result"]["capabilities"].clone();
    assert!(found["extensions"][EXTENSION].is_object() && found.get("tasks").is_none(), "{found}");
    let task = client.run("wait").await["taskId"].clone();

    // Without the extension, the call has the answer, and no task can be asked for.
    let params = json!({"name": "run_agent", "arguments": {"prompt": "hello"}});
    let answer = client.0.ask("tools/call", params).await["result"].clone();
    assert_eq!(answer["content"][0]["text"], "You said: hello", "{answer}");
    assert!(answer.get("taskId").is_none(), "{answer}");
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let params = json!({"taskId": task, "inputResponses": {}});
        let refused = client.0.ask(method, params).await;
        assert_eq!(refused["error"]["code"], -32021, "{method}: {refused}");
    }
    client.0.check().await;
}

#[tokio::test]
async fn tasks_wire_fields() {
    let mut client = TaskClient::start();
    let task = client.run("hello").await;
    for (name, is_it) in
        [("ttlMs", task["ttlMs"].is_u64()), ("pollIntervalMs", task["pollIntervalMs"].is_u64())]
    {
        assert!(is_it, "{name}: {task}");
    }
    assert!(task["createdAt"].is_string() && task["lastUpdatedAt"].is_string(), "{task}");
    for former in ["ttl", "pollInterval", "task"] {
        assert!(task.get(former).is_none(), "{former}: {task}");
    }
    let ended = client.ended(&task["taskId"]).await;
    assert!(!ended.to_string().contains("related-task"), "{ended}");
    client.0.check().await;
}

#[tokio::test]
async fn tasks_dispatch_and_envelope() {
    let mut client = TaskClient::start();
    for removed in ["tasks/list", "tasks/result"] {
        let answer = client.ask(removed, json!({"taskId": "x"})).await;
        assert_eq!(answer["error"]["code"], -32601, "{removed}: {answer}");
    }
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let answer = client.ask(method, json!({"taskId": "none", "inputResponses": {}})).await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
    // The older form of the wish makes no task of a tool that has none.
    let params = json!({"name": "text", "arguments": {}, "task": {"ttl": 60_000}});
    let answer = client.ask("tools/call", params).await["result"].clone();
    assert_eq!((&answer["resultType"], &answer["content"][0]["text"]), (&json!("complete"), &json!("words")));

    // Nothing is asked for, so each answer to it is one too many.
    let task = client.run("wait").await["taskId"].clone();
    let params = json!({"taskId": task, "inputResponses": {"none": {"action": "accept"}}});
    assert_eq!(client.ask("tasks/update", params).await["result"], json!({"resultType": "complete"}));
    assert_eq!(client.task(&task).await["status"], "working");
    client.0.check().await;
}

/// With too many tasks, a call waits for the answer.
#[tokio::test]
async fn a_client_has_so_many_tasks_at_once() {
    let mut client = TaskClient::start();
    let mut tasks = Vec::new();
    for _ in 0..32 {
        tasks.push(client.run("wait").await["taskId"].clone());
    }
    assert!(tasks.iter().all(Value::is_string), "{tasks:?}");
    let answer = client.run("hello").await;
    assert_eq!(answer["content"][0]["text"], "You said: hello", "{answer}");
    client.ask("tasks/cancel", json!({"taskId": tasks[0]})).await;
    client.ended(&tasks[0]).await;
    assert_eq!(client.run("hello").await["resultType"], "task");
    client.0.check().await;
}
