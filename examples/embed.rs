//! The shortest program that embeds Conjure: a runtime, a session, a question, an answer.
//!
//! The model's words come from a script here, so that no key is needed. With a key in `ANTHROPIC_API_KEY`, leave `.model(…)` out and name
//! one of the service: `.default_model("claude-sonnet-4-5")`.
//!
//! ```text
//! cargo run -p examples --example embed
//! ```

use std::io::Write as _;
use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::model::ScriptedModel;
use conjure::{
    Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, SessionSpec, Settings, SystemClock, TenantId,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings {
        skill_paths: Some(vec!["fixtures/skills".into()]),
        executor: Some(ExecutorKind::Local),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
    let script = ScriptedModel::from_file("fixtures/scripts/minimal-skill.yaml")?;
    let runtime = Runtime::spawn(RuntimeOptions::from(config).ephemeral().model("scripted", script)).await?;
    let spec = SessionSpec::new(TenantId::new("acme")?)
        .skills(["minimal-skill"])
        .activation(conjure::session::SkillActivation::View);
    let session = runtime.open(spec).await?;
    let answer = session.ask("Greet me.").await?;
    writeln!(std::io::stdout(), "{}", answer.text)?;
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
    Ok(())
}
