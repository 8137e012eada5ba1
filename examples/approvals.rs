//! A person decides on what a model wants to run. The wait takes no thread and no connection, and survives a restart.
//!
//! ```text
//! cargo run -p examples --example approvals
//! ```

use std::error::Error;
use std::io::Write as _;
use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::conversation::Decision;
use conjure::model::ScriptedModel;
use conjure::session::{RequiredNeed, SessionStopReason};
use conjure::tool::{Authorization, ToolCall};
use conjure::{
    Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, Session, SessionEventKind, SessionSpec,
    Settings, SystemClock, TenantId, TurnEvent, TurnHandle, Update, approver_fn,
};

/// Shows what happens, and asks whenever somebody must be asked.
async fn follow(session: &Session, mut turn: TurnHandle) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    while let Some(event) = turn.next().await {
        let TurnEvent::Update(Update::Recorded(event)) = event? else { continue };
        match event.kind {
            SessionEventKind::AgentToolUse { name, input, .. } => writeln!(out, "{name}: {input}")?,
            SessionEventKind::SessionStatusIdle {
                stop_reason: SessionStopReason::RequiresAction { actions, .. },
                ..
            } => {
                // Here a real host shows each to somebody, who decides now or tomorrow.
                for action in actions {
                    if let RequiredNeed::Approval { reason } = action.need {
                        writeln!(out, "  {reason}: yes")?;
                        session.decide_event(&action.event_id, Decision::Allow).await?;
                    }
                }
            }
            SessionEventKind::AgentMessage { content } => {
                writeln!(out, "{}", conjure::Message::assistant(content).text())?;
            }
            _ => {}
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let settings = Settings {
        executor: Some(ExecutorKind::Local),
        skill_paths: Some(vec!["fixtures/skills".into()]),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
    // Reading is free; whatever runs or writes is asked for.
    let approver = approver_fn(|call: ToolCall| async move {
        match call.name.as_str() {
            "view" | "skills_load" | "skills_read" => Authorization::Allow,
            name => Authorization::Ask { reason: format!("the model wants to use `{name}`") },
        }
    });
    let model = ScriptedModel::from_file("fixtures/scripts/sales-report.yaml")?;
    let options = RuntimeOptions::from(config).model("scripted", model).approver(approver);
    let runtime = Runtime::spawn(options).await?;

    let dir = tempfile::tempdir()?;
    std::fs::copy("fixtures/data/sales.csv", dir.path().join("sales.csv"))?;
    let spec = SessionSpec::new(TenantId::new("acme")?).skills(["sales-report"]).workspace(dir.path());
    let session = runtime.open(spec).await?;
    let turn = session.send("Which region grew fastest?").await?;
    follow(&session, turn).await?;
    assert!(dir.path().join("sales-report.md").is_file());
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
    Ok(())
}
