//! A skill with requirements is loaded when they are met, and otherwise rejected with everything missing (ADR-002).

use conjure::config::ExecutorKind;
use conjure::model::{BlockKind, parse_response};
use conjure::{Message, Model, Request, Runtime, Session, model_fn};

use crate::runtime::fixture::{Fixture, say, soon, spec};

/// Asks for an input, two commands, a file and a variable.
const MANIFEST: &str = r#"
manifest_version: "1.0"
inputs:
  required:
    - name: day
      schema: {type: string, pattern: '^\d{4}$'}
env:
  required:
    - name: HOUSE
preconditions:
  commands:
    - cmd: sh
    - cmd: no-such-command
  files:
    - path: scripts/run.sh
    - path: templates/none.md
"#;

/// The same, as far as it is there.
fn satisfiable_manifest() -> String {
    let is_there = |line: &&str| !line.contains("no-such-command") && !line.contains("none.md");
    MANIFEST.lines().filter(is_there).map(|line| format!("{line}\n")).collect()
}

/// Loads the skill, and says what came of it.
fn loading() -> impl Model {
    model_fn(|request: Request| async move {
        let answer = match result(request.messages.last().unwrap()) {
            None => {
                let id = format!("toolu_{}", request.messages.len());
                serde_json::json!({
                    "content": [{"type": "tool_use", "id": id, "name": "skills_load", "input": {"names": ["greeting"]}}],
                    "stop_reason": "tool_use",
                })
            }
            Some(result) => {
                serde_json::json!({"content": [{"type": "text", "text": result}], "stop_reason": "end_turn"})
            }
        };
        Ok(parse_response(&answer.to_string()).unwrap())
    })
}

fn result(message: &Message) -> Option<String> {
    message.content.iter().find_map(|block| match block.kind() {
        BlockKind::ToolResult { text, .. } => Some(text.clone()),
        _ => None,
    })
}

fn fixture(manifest: &str) -> Fixture {
    let fixture = Fixture::new(ExecutorKind::Jail);
    std::fs::write(fixture.skill("greeting").join("skill.manifest.yaml"), manifest).unwrap();
    fixture
}

async fn start(fixture: &Fixture) -> Runtime {
    Runtime::spawn(fixture.options().model("loading", loading())).await.unwrap()
}

async fn active(session: &Session) -> usize {
    session.snapshot().await.unwrap().active_skills.len()
}

#[tokio::test]
async fn a_rejected_skill_reports_everything_missing() {
    let fixture = fixture(MANIFEST);
    let runtime = start(&fixture).await;
    let session = runtime.open(spec().model("loading")).await.unwrap();
    let (_, text) = say(&session, "go").await;
    for missing in ["`day`", "`no-such-command`", "templates/none.md", "`HOUSE`", "cannot run here", "hint: "]
    {
        assert!(text.contains(missing), "{missing}: {text}");
    }
    assert!(!text.contains("`sh`") && !text.contains("scripts/run.sh"), "{text}");
    assert_eq!(active(&session).await, 0);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_skill_is_loaded_when_complete_and_rejected_without_an_input() {
    let fixture = fixture(&satisfiable_manifest());
    let runtime = start(&fixture).await;
    let new_spec = || spec().model("loading").environment("HOUSE", "red");
    let session = runtime.open(new_spec().input("day", "2026")).await.unwrap();
    let (_, text) = say(&session, "go").await;
    assert!(text.contains(r#""name":"greeting""#), "{text}");
    assert_eq!(active(&session).await, 1);
    let session = runtime.open(new_spec()).await.unwrap();
    let (_, text) = say(&session, "go").await;
    assert!(text.contains("`day`") && !text.contains("HOUSE"), "{text}");
    assert_eq!(active(&session).await, 0);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_script_has_the_defaults_of_its_own_skill() {
    let fixture = fixture(
        "manifest_version: \"1.0\"\ninputs: {required: [{name: topic, schema: {type: integer, default: 5}}, {name: day}]}\n",
    );
    std::fs::write(fixture.skill("greeting").join("scripts/run.sh"), "env\n").unwrap();
    fixture.write_skill("other", "Has a default of the same name.", "env");
    let other = "manifest_version: \"1.0\"\ninputs: {optional: [{name: topic, schema: {default: session}}, {name: day, \
                 schema: {default: today}}]}\n";
    std::fs::write(fixture.skill("other").join("skill.manifest.yaml"), other).unwrap();
    let running = model_fn(|request: Request| async move {
        let call = |name: &str, input: serde_json::Value| {
            let id = format!("toolu_{}", request.messages.len());
            let block = serde_json::json!({"type": "tool_use", "id": id, "name": name, "input": input});
            serde_json::json!({"content": [block], "stop_reason": "tool_use"})
        };
        let last = request.messages.last().unwrap();
        let answer = match result(last) {
            None => call("skills_load", serde_json::json!({"names": [last.text()]})),
            Some(result) if result.contains("exit_code") || !result.contains("\"name\"") => {
                serde_json::json!({"content": [{"type": "text", "text": result}], "stop_reason": "end_turn"})
            }
            Some(_) => call("skills_run_script", serde_json::json!({"path": "scripts/run.sh"})),
        };
        Ok(parse_response(&answer.to_string()).unwrap())
    });
    let runtime = Runtime::spawn(fixture.options().model("running", running)).await.unwrap();
    let session = runtime.open(spec().model("running")).await.unwrap();
    let (_, text) = say(&session, "other").await;
    assert!(text.contains("CONJURE_INPUT_TOPIC=session\\n") && text.contains("INPUT_DAY=today\\n"), "{text}");
    // No default of another skill is what a skill requires.
    let (_, text) = say(&session, "greeting").await;
    assert!(text.contains("`day`") && !text.contains("`topic`"), "{text}");
    let session = runtime.open(spec().model("running").input("day", "1")).await.unwrap();
    let (_, text) = say(&session, "greeting").await;
    assert!(text.contains("CONJURE_INPUT_TOPIC=5\\n") && text.contains("INPUT_DAY=1\\n"), "{text}");
    runtime.shutdown(soon()).await.unwrap();
}
