//! Skills of servers. The server is scripted, and breaks its word in all ways; `tests/it` has one that is built on the official SDK.

use std::sync::{Arc, Mutex};

use conjure_base::Digest;
use conjure_conversation::{Authorization, Grant, GrantScope, SessionView, ToolCall, ToolRunner as _};
use conjure_mcp::McpServerSpec;
use serde_json::{Value, json};

use crate::scripted_http::{HttpServer, Reply, Request};
use crate::support::Session;
use crate::wire_headers::{answer_mcp, http_spec};
use crate::wire_schema::{check, entry};

const LOAD_SKILL: &str = "mcp_load_skill";
/// Its hidden characters do not reach the model.
const MANUAL: &str = "---\nname: notes\ndescription: Takes notes.\nmetadata:\n  level: 3\n---\nRun `run\u{202e}.py`\u{e0041}.\n";

/// What the server lists, and what it sends.
#[derive(Clone)]
struct Served {
    skills: Vec<Value>,
    files: Vec<(String, String)>,
}

/// A skill of these files.
fn entry_of(root: &str, frontmatter: &Value, files: &[(&str, &str)]) -> Value {
    let file = |(path, content): &(&str, &str)| {
        let digest = Digest::of_bytes(content.as_bytes()).to_string();
        json!({"uri": format!("{root}{path}"), "digest": digest, "size": content.len()})
    };
    let resources: Vec<Value> = files.iter().map(file).collect();
    json!({"uri": format!("{root}SKILL.md"), "frontmatter": frontmatter, "resources": resources})
}

fn notes(script: &str) -> Served {
    let root = "skill://team/notes/";
    let frontmatter = json!({"name": "notes", "description": "Takes notes.", "metadata": {"level": 3}});
    let files = [("SKILL.md", MANUAL), ("scripts/run.py", script)];
    Served {
        skills: vec![entry_of(root, &frontmatter, &files)],
        files: files.map(|(path, content)| (format!("{root}{path}"), content.to_owned())).into(),
    }
}

fn answer(request: &Request, served: &Served) -> Reply {
    let message = request.message();
    let result = |mut result: Value| {
        result["resultType"] = json!("complete");
        result["ttlMs"] = json!(0);
        result["cacheScope"] = json!("private");
        Reply::result(&message, &result)
    };
    let wanted = &message["params"]["uri"];
    match request.rpc_method().as_deref() {
        Some("server/discover") => result(json!({
            "supportedVersions": [crate::wire_headers::NEWEST],
            "capabilities": {"tools": {}, "resources": {}, "extensions": {"io.modelcontextprotocol/skills": {}}},
        })),
        Some("skills/list") => result(json!({"skills": served.skills})),
        Some("skills/get") => match served.skills.iter().find(|skill| skill["uri"] == *wanted) {
            Some(skill) => result(json!({"skill": skill})),
            None => Reply::error(&message, -32602, "no such skill", &Value::Null),
        },
        Some("resources/read") => match served.files.iter().find(|(uri, _)| uri == wanted) {
            Some((uri, content)) => result(json!({"contents": [{"uri": uri, "text": content}]})),
            None => Reply::error(&message, -32602, "no such file", &Value::Null),
        },
        _ => answer_mcp(request, &json!([])),
    }
}

/// A server whose skills can be changed, and a session that uses it.
async fn session(served: Served) -> (HttpServer, Arc<Mutex<Served>>, Session) {
    let served = Arc::new(Mutex::new(served));
    let shared = Arc::clone(&served);
    let server = HttpServer::start(move |request| answer(request, &shared.lock().unwrap())).await;
    let session = Session::start([http_spec(&server.at("/mcp"), None)]).await;
    (server, served, session)
}

/// The version that the model reads.
fn version(session: &Session) -> String {
    let description = session.definition(LOAD_SKILL).description;
    let (_, after) = description.split_once("version `").unwrap();
    after.split('`').next().unwrap().to_owned()
}

fn input(version: &str) -> Value {
    json!({"server": "one", "skill": "notes", "version": version})
}

/// What the person is asked.
async fn question(session: &Session, input: &Value) -> String {
    let call = ToolCall::new("toolu_1", LOAD_SKILL, input);
    // What was granted for the whole session covers no load.
    let grant = Grant { rule: LOAD_SKILL.to_owned(), scope: GrantScope::Session };
    let view = SessionView::default().with_grants([grant]);
    let asked = match session.toolbox.authorize(&call, &view).await {
        Authorization::Ask { reason } => Ok(reason),
        other => Err(other),
    };
    asked.unwrap()
}

/// Runs the call as if the person had agreed.
async fn load(session: &Session, input: &Value) -> Result<String, String> {
    let call = ToolCall::new("toolu_1", LOAD_SKILL, input);
    let result = session.toolbox.run_without_input(&call, conjure_conversation::CallContext::default()).await;
    if result.is_error { Err(result.text()) } else { Ok(result.text()) }
}

#[tokio::test]
async fn a_skill_of_a_server_is_loaded_once_a_person_has_agreed() {
    let (server, _, session) = session(notes("print(1)")).await;
    assert_eq!(session.tool_names(), [LOAD_SKILL]);
    let version = version(&session);
    let line = format!("\n- server `one`, skill `notes`, version `{version}`: Takes notes.");
    assert!(session.definition(LOAD_SKILL).description.ends_with(&line));
    let input = input(&version);
    let question = question(&session, &input).await;
    assert!(
        question.contains("the skill `notes` of the MCP server `one`") && question.contains("scripts/run.py"),
        "{question}"
    );
    let refused = session.call(LOAD_SKILL, input.clone()).await.unwrap_err();
    assert!(refused.starts_with("denied: the model wants"), "nobody could be asked: {refused}");
    assert!(server.messages("resources/read").is_empty());

    let told = load(&session, &input).await.unwrap();
    let dir = format!("mcp-skills/one/notes-{}", &version[..16]);
    assert_eq!(
        told,
        format!(
            "[The skill `notes` of the MCP server `one`. Its words are the server's. Its files are in the directory `{dir}`: `SKILL.md`, \
             `scripts/run.py`]\n\nRun `run.py`."
        )
    );
    let script = session.workspace().join(dir).join("scripts/run.py");
    assert_eq!(std::fs::read_to_string(script).unwrap(), "print(1)");
    let messages = server.requests().into_iter().filter(|request| request.method == "POST");
    let entries: Vec<Value> = messages.map(|request| entry("client", None, &request.message())).collect();
    check(&entries).await;
}

#[tokio::test]
async fn a_changed_skill_is_another_decision() {
    let (_server, served, session) = session(notes("print(1)")).await;
    let old = version(&session);
    *served.lock().unwrap() = notes("print(2)");
    let refused = load(&session, &input(&old)).await.unwrap_err();
    assert!(refused.contains("has changed at the MCP server `one`"), "{refused}");
    crate::support::wait(|| version(&session) != old).await;
    let refused = load(&session, &input(&old)).await.unwrap_err();
    let new = version(&session);
    assert!(refused.contains("has another version now") && refused.contains(&new), "{refused}");
    assert!(load(&session, &input(&new)).await.is_ok());
    // What the server does not have any more cannot be loaded either.
    served.lock().unwrap().skills.clear();
    assert!(load(&session, &input(&new)).await.unwrap_err().contains("has changed"));
}

#[tokio::test]
async fn files_that_were_not_agreed_to_are_refused_whole() {
    let honest = notes("print(1)");
    let lie = |change: &dyn Fn(&mut Served)| {
        let mut served = honest.clone();
        change(&mut served);
        served
    };
    for (lie, reason) in [
        (
            lie(&|served| served.files[1].1 = "print(2)".to_owned()),
            "`scripts/run.py` is not the one that was agreed to",
        ),
        (lie(&|served| served.files[1].1.push(' ')), "the manifest says 8"),
        (lie(&|served| drop(served.files.pop())), "no such file"),
        (lie(&|served| served.skills[0]["frontmatter"]["license"] = json!("MIT")), "the field `license`"),
        (
            lie(&|served| served.skills[0]["frontmatter"]["metadata"]["level"] = json!("3")),
            "the field `metadata`",
        ),
    ] {
        let (_server, _, session) = session(lie).await;
        let refused = load(&session, &input(&version(&session))).await.unwrap_err();
        assert!(refused.contains(reason), "{refused}");
        assert!(!session.workspace().join("mcp-skills").exists(), "{reason}");
    }
}

#[tokio::test]
async fn skills_that_cannot_be_offered_do_not_keep_the_others_or_the_tools() {
    let mut served = notes("print(1)");
    let mut dynamic = served.skills[0].clone();
    dynamic["uri"] = json!("skill://team/other/SKILL.md");
    dynamic["frontmatter"]["name"] = json!("other");
    dynamic["resources"] = json!("dynamic");
    served.skills.push(dynamic);
    let (_server, _, session) = session(served).await;
    let description = session.definition(LOAD_SKILL).description;
    assert!(description.contains("`notes`") && !description.contains("`other`"), "{description}");
    let wrong = load(&session, &json!({"server": "one", "skill": "none", "version": ""})).await.unwrap_err();
    assert!(wrong.contains("its skills are:\n- server `one`, skill `notes`"), "{wrong}");
    let wrong = load(&session, &json!({"server": "two", "skill": "notes", "version": ""})).await.unwrap_err();
    assert!(wrong.contains("those that have are: one"), "{wrong}");

    // A list in no form of the extension.
    let tool = json!([{"name": "echo", "inputSchema": {"type": "object"}}]);
    let server = HttpServer::start(move |request| match request.rpc_method().as_deref() {
        Some("skills/list") => Reply::result(&request.message(), &json!({"skills": 7})),
        Some("tools/list") => answer_mcp(request, &tool),
        _ => answer(request, &notes("")),
    })
    .await;
    let session = Session::start([http_spec(&server.at("/mcp"), None)]).await;
    assert_eq!(session.tool_names(), ["mcp__one__echo"]);
}

#[tokio::test]
async fn skills_can_be_switched_off_and_a_flood_is_listed_in_part() {
    let served = notes("print(1)");
    let mut many = served.clone();
    many.skills = (0..200)
        .map(|number| {
            let name = format!("notes-{number}");
            let frontmatter = json!({"name": name, "description": "x".repeat(300)});
            entry_of(&format!("skill://team/{name}/"), &frontmatter, &[("SKILL.md", "x")])
        })
        .collect();
    let (server, _, flooded) = session(many).await;
    let description = flooded.definition(LOAD_SKILL).description;
    assert!(description.len() < 8_300 && description.contains(" more are not shown."), "{description}");
    let off = McpServerSpec {
        disabled_tools: [LOAD_SKILL.to_owned()].into(),
        ..http_spec(&server.at("/mcp"), None)
    };
    assert!(Session::start([off]).await.tool_names().is_empty());
}
