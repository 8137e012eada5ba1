//! The fixtures of the repository: each script plays to its end with the real scripts of its skill, and the README
//! says what is true. (The whole program plays them too, in its own tests; here the tools are a few lines.)

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tempfile::tempdir;

use super::{answer, first_message, request};
use crate::run_loop;
use crate::scripted::{Recorder, Script, ScriptFormat, ScriptedModel};
use crate::{
    Authorization, Block, CallConcurrency, CallContext, CallTraits, Composer, LoopOptions, LoopOutcome,
    Message, Model, PromptPrefix, SessionView, ToolCall, ToolResult, ToolRunOutcome, ToolRunner, TurnOutcome,
    TurnStop,
};

fn fixtures() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")).unwrap()
}

fn script(name: &str) -> PathBuf {
    fixtures().join("scripts").join(name)
}

/// The list of the fixtures' skills for the model.
struct Skills;

impl Composer for Skills {
    fn compose(&self, _: &SessionView) -> PromptPrefix {
        let mut block = "<available_skills>\n".to_owned();
        for name in ["log-analyzer", "minimal-skill", "sales-report", "test-skill"] {
            let location = fixtures().join("skills").join(name).join("SKILL.md");
            block += &format!(
                "<skill>\n<name>\n{name}\n</name>\n<location>\n{}\n</location>\n</skill>\n",
                location.display()
            );
        }
        PromptPrefix { instructions: vec![block + "</available_skills>"], tools: request(Vec::new()).tools }
    }
}

/// The two tools that the scripts call, in a directory.
struct Tools(PathBuf);

impl ToolRunner for Tools {
    fn traits(&self, _: &ToolCall) -> CallTraits {
        CallTraits { concurrency: CallConcurrency::Shared, idempotent: false }
    }

    fn authorize<'a>(&'a self, _: &'a ToolCall, _: &'a SessionView) -> BoxFuture<'a, Authorization> {
        Box::pin(async { Authorization::Allow })
    }

    fn run<'a>(&'a self, call: &'a ToolCall, _: CallContext) -> BoxFuture<'a, ToolRunOutcome> {
        let input = call.input_value();
        let text = |field: &str| input.get(field).and_then(Value::as_str).unwrap().to_owned();
        let (ok, output) = match call.name.as_str() {
            "view" => match fs::read_to_string(text("path")) {
                Ok(content) => (true, content),
                Err(error) => (false, error.to_string()),
            },
            _ => bash(&text("command"), &self.0),
        };
        let result =
            if ok { ToolResult::text_result(&call.id, output) } else { ToolResult::error(&call.id, output) };
        Box::pin(async { result.into() })
    }
}

#[expect(clippy::disallowed_methods, reason = "the fixtures' scripts are run, and this room has no sandbox")]
fn bash(command: &str, dir: &Path) -> (bool, String) {
    let output = Command::new("bash").args(["-c", command]).current_dir(dir).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Plays a conversation in `dir`.
async fn play(model: &dyn Model, dir: &Path) -> LoopOutcome {
    let question = Message::user(vec![Block::text("Which region grew fastest?")]);
    let tools = Tools(dir.to_owned());
    let outcome = run_loop(vec![question], model, &Skills, &tools, LoopOptions::default()).await.unwrap();
    assert!(matches!(outcome.stop, TurnOutcome::Finished(TurnStop::Answered(_))), "{:?}", outcome.stop);
    outcome
}

/// The final text of a fixture's script, with this file in the working directory.
async fn final_text(name: &str, file: Option<(&str, &str)>) -> String {
    let dir = tempdir().unwrap();
    if let Some((name, content)) = file {
        fs::write(dir.path().join(name), content).unwrap();
    }
    play(&ScriptedModel::from_file(script(name)).unwrap(), dir.path()).await.text()
}

fn data(name: &str) -> String {
    fs::read_to_string(fixtures().join("data").join(name)).unwrap()
}

#[tokio::test]
async fn the_sales_report_answers_with_the_figures_of_its_file() {
    let text = final_text("sales-report-view.yaml", Some(("sales.csv", &data("sales.csv")))).await;
    assert_eq!(
        text,
        "Africa grew fastest: +20.2 %, from 89,948.39 in 2023 to 108,101.28 in 2024. The slowest was North America with \
         +5.4 %; all regions together changed by +9.9 %. The whole table is in sales-report.md."
    );
    let other = "year,region,revenue\n2023,Mars,100\n2024,Mars,150\n2023,Venus,10\n2024,Venus,5\n";
    let text = final_text("sales-report-view.yaml", Some(("sales.csv", other))).await;
    assert_eq!(
        text,
        "Mars grew fastest: +50.0 %, from 100.00 in 2023 to 150.00 in 2024. The slowest was Venus with -50.0 %; all \
         regions together changed by +40.9 %. The whole table is in sales-report.md."
    );
}

#[tokio::test]
async fn the_log_analyzer_answers_with_the_counts_of_its_file() {
    let text = final_text("log-analyzer.yaml", Some(("app.log", &data("app.log")))).await;
    for part in [
        "occurs 25 times",
        "connection pool exhausted after <n> ms",
        "47 errors and 29 warnings in 439 lines",
    ] {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

#[tokio::test]
async fn the_skills_of_the_specification_answer() {
    assert_eq!(
        final_text("test-skill.yaml", None).await,
        r#"The helper said "Hello world!", and its documentation promises "Hello world!"."#
    );
    assert_eq!(final_text("minimal-skill.yaml", None).await, "The smallest skill says hello.");
}

#[tokio::test]
async fn a_real_run_is_recorded_and_replayed_strictly() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("recorded.yaml");
    fs::write(dir.path().join("sales.csv"), data("sales.csv")).unwrap();
    let live =
        Recorder::create(ScriptedModel::from_file(script("sales-report-view.yaml")).unwrap(), &path).unwrap();
    let response = play(&live, dir.path()).await;
    live.finish().unwrap();
    // Strict: each request of the second run has the digest of the first one's, results of tools included.
    let replay = ScriptedModel::from_file(&path).unwrap().strict();
    let second = play(&replay, dir.path()).await;
    assert_eq!(second.messages, response.messages);
    assert_eq!(replay.position(), replay.script().len());
}

#[test]
fn every_fixture_is_named_like_its_file_and_contains_no_figures() {
    let mut names = Vec::new();
    for entry in fs::read_dir(fixtures().join("scripts")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let script = Script::from_file(&path).unwrap();
            assert_eq!(script.name(), path.file_stem().and_then(|stem| stem.to_str()));
            names.push(script.name().map(str::to_owned));
        }
    }
    assert_eq!(names.len(), 7, "{names:?}");
    for name in ["sales-report.yaml", "sales-report-attached.yaml", "sales-report-view.yaml"] {
        let text = fs::read_to_string(script(name)).unwrap();
        for region in data("sales.csv").lines().skip(1).filter_map(|line| line.split(',').nth(1)) {
            assert!(!text.contains(region), "{name}: {region}");
        }
    }
}

#[tokio::test]
async fn the_example_of_the_readme_plays() {
    let readme = fs::read_to_string(script("README.md")).unwrap();
    let (_, after) = readme.split_once("```yaml\n").unwrap();
    let (example, _) = after.split_once("```").unwrap();
    let model = ScriptedModel::new(Script::from_text(example, ScriptFormat::Yaml, "README.md").unwrap());
    let response = answer(&model, request(vec![first_message()])).await;
    assert_eq!(response.content.len(), 2);
}
