//! Outputs that skill manifests declare, compared with the files that a session produced (ADR-002, `outputs`).

use conjure::artifact::OutputMatch;
use conjure::config::ExecutorKind;
use conjure::model::parse_response;
use conjure::session::SkillActivation;
use conjure::{Request, Runtime, model_fn};

use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant};

/// A skill that makes `reports/*.md`, as it says, and `raw.csv`, which it says but does not do.
fn write_manifest(fixture: &Fixture) {
    let manifest = "manifest_version: \"1.0\"\noutputs:\n  files:\n    - pattern: \"reports/*.md\"\n      description: The report.\n    - \
                    pattern: raw.csv\n";
    std::fs::write(fixture.skill("greeting").join("skill.manifest.yaml"), manifest).unwrap();
}

#[tokio::test]
async fn outputs_are_matched_to_skill_manifests_also_after_a_restart() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    write_manifest(&fixture);
    let runtime = fixture.start().await;
    let session = runtime.open(spec().activation(SkillActivation::View)).await.unwrap();
    let id = session.id();
    ask(&session, "$ mkdir reports && echo hello > reports/today.md").await;
    check(&runtime, id).await;
    assert!(runtime.outputs(&tenant("globex"), id).await.is_err(), "no other tenant may read it");
    runtime.shutdown(soon()).await.unwrap();

    // The skill is what it was when the session was opened.
    std::fs::remove_dir_all(fixture.skill("greeting")).unwrap();
    let runtime = fixture.start().await;
    check(&runtime, id).await;
    runtime.shutdown(soon()).await.unwrap();
}

async fn check(runtime: &Runtime, id: conjure::SessionId) {
    let outputs = runtime.outputs(&tenant("acme"), id).await.unwrap();
    let found: Vec<_> = outputs.iter().map(|output| (output.pattern.as_str(), &output.found)).collect();
    let report = OutputMatch::Files(vec!["reports/today.md".into()]);
    assert_eq!(found, [("reports/*.md", &report), ("raw.csv", &OutputMatch::Missing)]);
    assert_eq!(outputs[0].description.as_deref(), Some("The report."));
    assert_eq!(outputs[0].skill, "greeting");
}

/// Asked to load, it loads the skill; asked anything else, it is done.
fn loading() -> impl conjure::Model {
    model_fn(|request: Request| async move {
        let answer = match request.messages.last().map(|last| last.text()).as_deref() {
            Some("load") => {
                r#"{"content":[{"type":"tool_use","id":"toolu_1","name":"skills_load","input":{"names":["greeting"]}}],
                    "stop_reason":"tool_use"}"#
            }
            _ => r#"{"content":[{"type":"text","text":"Done."}],"stop_reason":"end_turn"}"#,
        };
        Ok(parse_response(answer).unwrap())
    })
}

#[tokio::test]
async fn only_loaded_skills_must_produce_their_outputs() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    write_manifest(&fixture);
    let runtime = Runtime::spawn(fixture.options().model("loading", loading())).await.unwrap();
    let session = runtime.open(spec().model("loading")).await.unwrap();
    let outputs = async || runtime.outputs(&tenant("acme"), session.id()).await.unwrap();
    ask(&session, "hello").await;
    assert_eq!(outputs().await, []);
    ask(&session, "load").await;
    let missing: Vec<_> = outputs().await.into_iter().map(|output| output.found).collect();
    assert_eq!(missing, [OutputMatch::Missing, OutputMatch::Missing]);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_session_without_manifests_expects_nothing() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    for spec in [spec(), spec().without_skills()] {
        let session = runtime.open(spec).await.unwrap();
        ask(&session, "$ echo hello > x").await;
        assert_eq!(runtime.outputs(&tenant("acme"), session.id()).await.unwrap(), []);
    }
    runtime.shutdown(soon()).await.unwrap();
}
