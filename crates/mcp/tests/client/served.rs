//! What the server answers, message by message: the scenarios of the official conformance suite by their names, over a pair of streams.
//! `docs/mcp-conformance.md` lists them. Each message of each conversation is one of the specification's schema.

use std::sync::Arc;

use conjure_conversation::{ResultContent, ToolCall, ToolDefinition, ToolResult};
use conjure_mcp::server::{AgentFuture, AgentRunner, ProgressFn, ServedClient, ToolFuture, ToolHost, serve};
use conjure_skill::{Mode, Skill};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::wire_headers::NEWEST;
use crate::wire_schema::{check, entry};

const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A schema with keywords that are easily lost.
fn rich_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "address", "type": "object", "properties": {"street": {"type": "string"}}}},
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}, "mail": {"type": "string"}},
        "allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["mail"]}]}],
        "if": {"required": ["address"]},
        "then": {"required": ["name"]},
        "else": {"required": ["mail"]},
        "additionalProperties": false,
    })
}

/// Tools that return each kind of content.
struct Contents;

impl ToolHost for Contents {
    fn definitions(&self) -> Arc<[ToolDefinition]> {
        let tool = |name: &str| ToolDefinition {
            name: name.to_owned(),
            description: "What it does.".to_owned(),
            input_schema: json!({"type": "object", "properties": {}}),
        };
        let rich = ToolDefinition { input_schema: rich_schema(), ..tool("rich") };
        ["text", "image", "document", "mixed", "fail"].map(tool).into_iter().chain([rich]).collect()
    }

    fn call<'a>(&'a self, calls: &'a [ToolCall]) -> ToolFuture<'a> {
        let call = &calls[0];
        let text = ResultContent::Text { text: "words".to_owned() };
        let image = ResultContent::Image { media_type: "image/png".to_owned(), data: IMAGE.to_owned() };
        let document =
            ResultContent::Document { media_type: "application/pdf".to_owned(), data: "JVBERi0=".to_owned() };
        let content = match call.name.as_str() {
            "text" => vec![text],
            "image" => vec![image],
            "document" => vec![document],
            _ => vec![text, image, document],
        };
        let result = match call.name.as_str() {
            "fail" => ToolResult::error(&call.id, "it failed"),
            _ => ToolResult { content, ..ToolResult::text_result(&call.id, "") },
        };
        Box::pin(async move { result })
    }
}

/// Says what it does three times, and answers. It also fails, and waits until it is stopped.
struct Agent;

impl AgentRunner for Agent {
    fn run<'a>(&'a self, prompt: String, progress: ProgressFn, cancel: CancellationToken) -> AgentFuture<'a> {
        Box::pin(async move {
            ["one", "two", "three"].map(str::to_owned).into_iter().for_each(&*progress);
            match prompt.as_str() {
                "fail" => Err("it failed".to_owned()),
                "wait" => {
                    cancel.cancelled().await;
                    Err("it was stopped".to_owned())
                }
                _ => Ok(format!("You said: {prompt}")),
            }
        })
    }
}

/// A client that writes its messages by hand, and keeps all of both sides.
pub(crate) struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    output: WriteHalf<DuplexStream>,
    number: u64,
    entries: Vec<Value>,
    /// The notifications since the last request.
    told: Vec<Value>,
    _serving: JoinSet<()>,
    _skills: TempDir,
}

impl Client {
    pub(crate) fn start() -> Self {
        Self::start_with("---\nname: report\ndescription: Writes reports.\n---\nWrite it.\n")
    }

    /// Serves a skill with this `SKILL.md`.
    fn start_with(manual: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("report");
        std::fs::create_dir_all(root.join("assets")).unwrap();
        std::fs::write(root.join("SKILL.md"), manual).unwrap();
        std::fs::write(root.join("assets/logo.bin"), [0xff, 0xfe, 0]).unwrap();
        let skill = Arc::new(Skill::load(&root, Mode::Strict).unwrap());
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let streams = tokio::io::split(theirs);
            let client = ServedClient::new([skill], Arc::new(Contents), Some(Arc::new(Agent)));
            serve(client, streams, CancellationToken::new()).await.unwrap();
        });
        let (input, output) = tokio::io::split(ours);
        let lines = BufReader::new(input).lines();
        let (entries, told) = (Vec::new(), Vec::new());
        Self { lines, output, number: 0, entries, told, _serving: serving, _skills: dir }
    }

    /// Sends a request, and returns what answers it. `_meta` is what each request must have.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.ask_in(NEWEST, method, params).await
    }

    pub(crate) async fn ask_in(&mut self, version: &str, method: &str, mut params: Value) -> Value {
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!(version);
        meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "test", "version": "1"});
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        self.ask_with(method, params).await
    }

    pub(crate) async fn ask_with(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params});
        self.output.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        self.told.clear();
        loop {
            let line = self.lines.next_line().await.unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            let answers = message.get("method").is_none().then_some(method);
            self.entries.push(entry("server", answers, &message));
            if answers.is_some() {
                assert_eq!(message["id"], self.number, "{message}");
                return message;
            }
            self.told.push(message);
        }
    }

    /// The content of a tool's result.
    async fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": name, "arguments": arguments})).await["result"].clone()
    }

    /// Everything that the server sent fits the schema.
    pub(crate) async fn check(self) {
        check(&self.entries).await;
    }
}

/// Each request tells everything: the server has no state of a client.
#[tokio::test]
async fn server_stateless() {
    let mut client = Client::start();
    // The first message need not be `server/discover`.
    let listed = client.ask("tools/list", json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    let found = client.ask("server/discover", json!({})).await;
    assert_eq!(found["result"]["supportedVersions"].as_array().unwrap().last().unwrap(), NEWEST, "{found}");
    let offered: Vec<&str> =
        found["result"]["capabilities"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(offered, ["extensions", "prompts", "resources", "tools"], "{found}");
    assert_eq!(found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "conjure", "{found}");
    for answer in [&listed, &found] {
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    }

    let unknown = client.ask_in("1999-01-01", "tools/list", json!({})).await;
    assert_eq!(unknown["error"]["code"], -32022, "{unknown}");
    assert_eq!(unknown["error"]["data"]["requested"], "1999-01-01", "{unknown}");
    assert!(unknown["error"]["data"]["supported"].as_array().unwrap().contains(&json!(NEWEST)), "{unknown}");
    let version = ("io.modelcontextprotocol/protocolVersion", json!(NEWEST));
    let capabilities = ("io.modelcontextprotocol/clientCapabilities", json!({}));
    for missing in [
        json!({}),
        json!({"_meta": {version.0: version.1}}),
        json!({"_meta": {capabilities.0: capabilities.1}}),
    ] {
        let answer = client.ask_with("server/discover", missing.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{missing}: {answer}");
    }
    let meta = json!({version.0: version.1, capabilities.0: capabilities.1});
    let nameless = client.ask_with("server/discover", json!({"_meta": meta})).await;
    assert!(nameless["result"].is_object(), "who the client is may stay open: {nameless}");
    for removed in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "unknown/method",
    ] {
        let answer = client.ask(removed, json!({})).await;
        assert_eq!(answer["error"]["code"], -32601, "{removed}: {answer}");
    }
    client.check().await;
}

#[tokio::test]
async fn tools_list() {
    let mut client = Client::start();
    let listed = client.ask("tools/list", json!({})).await;
    for tool in listed["result"]["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        assert!((1..=128).contains(&name.len()) && name.chars().all(fits), "{tool}");
        assert!(!tool["description"].as_str().unwrap().is_empty(), "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
    }
    client.check().await;
}

/// The schema of a tool reaches the client with all its keywords.
#[tokio::test]
async fn json_schema_2020_12() {
    let mut client = Client::start();
    let listed = client.ask("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let rich = tools.iter().find(|tool| tool["name"] == "rich").unwrap();
    assert_eq!(rich["inputSchema"], rich_schema());
    client.check().await;
}

#[tokio::test]
async fn tools_call() {
    let mut client = Client::start();
    let text = json!({"type": "text", "text": "words"});
    let image = json!({"type": "image", "data": IMAGE, "mimeType": "image/png"});
    let blob = json!({"uri": "conjure://result", "mimeType": "application/pdf", "blob": "JVBERi0="});
    let document = json!({"type": "resource", "resource": blob});
    // tools-call-simple-text, -image, -embedded-resource and -mixed-content.
    for (name, content) in [
        ("text", json!([text])),
        ("image", json!([image])),
        ("document", json!([document])),
        ("mixed", json!([text, image, document])),
    ] {
        let result = client.call(name, json!({})).await;
        assert_eq!(result["content"], content, "{name}");
        assert_ne!(result["isError"], true, "{name}");
    }
    client.check().await;
}

#[tokio::test]
async fn tools_call_error() {
    let mut client = Client::start();
    let failed = client.call("fail", json!({})).await;
    assert_eq!((&failed["isError"], &failed["content"][0]["text"]), (&json!(true), &json!("it failed")));
    let unknown = client.ask("tools/call", json!({"name": "none", "arguments": {}})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    client.check().await;
}

#[tokio::test]
async fn tools_call_with_progress() {
    let mut client = Client::start();
    let params =
        json!({"name": "run_agent", "arguments": {"prompt": "hello"}, "_meta": {"progressToken": "p1"}});
    let answer = client.ask("tools/call", params).await;
    assert_eq!(answer["result"]["content"][0]["text"], "You said: hello");
    let progress: Vec<(&Value, f64)> = client
        .told
        .iter()
        .map(|told| (&told["params"]["progressToken"], told["params"]["progress"].as_f64().unwrap()))
        .collect();
    assert_eq!(progress, [(&json!("p1"), 1.0), (&json!("p1"), 2.0), (&json!("p1"), 3.0)]);
    client.check().await;
}

#[tokio::test]
async fn resources() {
    let mut client = Client::start();
    // resources-list
    let listed = client.ask("resources/list", json!({})).await;
    let uris: Vec<&str> = listed["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| resource["uri"].as_str().unwrap())
        .collect();
    assert_eq!(uris, ["skill://report/SKILL.md", "skill://report/assets/logo.bin"]);
    // resources-read-text and -binary
    let text = client.ask("resources/read", json!({"uri": uris[0]})).await["result"]["contents"][0].clone();
    assert_eq!(text["uri"], uris[0]);
    assert!(text["text"].as_str().unwrap().contains("Write it."), "{text}");
    let binary = client.ask("resources/read", json!({"uri": uris[1]})).await["result"]["contents"][0].clone();
    assert_eq!((&binary["uri"], &binary["blob"]), (&json!(uris[1]), &json!("//4A")));
    // Skills, which are an extension.
    assert_eq!(client.ask("skills/list", json!({})).await["result"]["skills"].as_array().unwrap().len(), 1);
    client.check().await;
}

#[tokio::test]
async fn sep_2164_resource_not_found() {
    let mut client = Client::start();
    for uri in ["test://none", "skill://report/none.md", "skill://other/SKILL.md"] {
        let answer = client.ask("resources/read", json!({"uri": uri})).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["error"]["data"]["uri"], uri, "{answer}");
    }
    client.check().await;
}

#[tokio::test]
async fn prompts() {
    let mut client = Client::start();
    // prompts-list
    let listed = client.ask("prompts/list", json!({})).await;
    let prompt = &listed["result"]["prompts"][0];
    assert_eq!((&prompt["name"], &prompt["description"]), (&json!("report"), &json!("Writes reports.")));
    // prompts-get-simple
    let message = client.ask("prompts/get", json!({"name": "report"})).await["result"]["messages"][0].clone();
    assert_eq!(message["role"], "user");
    assert!(message["content"]["text"].as_str().unwrap().contains("Write it."), "{message}");
    client.check().await;
}

#[tokio::test]
async fn hidden_text_of_a_skill_is_not_told() {
    let hidden = "\u{e0041}\u{202e}";
    let mut client = Client::start_with(&format!(
        "---\nname: report\ndescription: Writes {hidden}reports.\n---\nWrite {hidden}it.\n"
    ));
    let answers = [
        client.ask("prompts/list", json!({})).await,
        client.ask("prompts/get", json!({"name": "report"})).await,
        client.ask("skills/list", json!({})).await,
        client.call("skill_list", json!({})).await,
        client.call("skill_read", json!({"skill": "report"})).await,
    ];
    for answer in answers {
        let text = answer.to_string();
        assert!(text.contains("Writes reports.") && !text.contains(['\u{e0041}', '\u{202e}']), "{text}");
    }
}

/// How long what is listed may be kept, and by whom.
#[tokio::test]
async fn caching() {
    let mut client = Client::start();
    for (method, params) in [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "skill://report/SKILL.md"})),
    ] {
        let answer = client.ask(method, params).await;
        assert!(answer["result"]["ttlMs"].is_u64(), "{method}: {answer}");
        assert!(
            ["public", "private"].map(Value::from).contains(&answer["result"]["cacheScope"]),
            "{method}: {answer}"
        );
    }
    client.check().await;
}
