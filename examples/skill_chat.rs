//! A chat with skills over the Messages API (specification 17.2): one function that answers a question within fifteen
//! model calls and a minute.
//!
//! ```text
//! ANTHROPIC_API_KEY=… cargo run -p examples --example skill_chat      # the service; ANTHROPIC_BASE_URL names another
//! cargo run -p examples --example skill_chat                          # without a key: a fake of it, which plays a script
//! ```

use std::error::Error;
use std::io::Write as _;
use std::time::Duration;

use conjure::anthropic::{self, Client, Messages};
use conjure::config::ExecutorKind;
use conjure::conversation::{LoopOptions, final_text, loop_options};
use conjure::model::Script;
use conjure::session::ContextOptions;
use conjure::{
    Block, Clock as _, Config, Message, Model, ProcessEnv, Settings, SystemClock, Workbench, load, run_loop,
};
use conjure_anthropic::fake::FakeMessages;

/// Where the skills are, and what they work on.
const SKILLS: &str = "fixtures/skills";
const DATA: &str = "fixtures/data/sales.csv";

/// Answers a question with the help of the skills, each time in a sandbox of its own.
async fn chat(model: &dyn Model, config: &Config, question: &str) -> Result<String, conjure::Error> {
    let workbench = Workbench::open(load(SKILLS)?.skills, config, ContextOptions::default()).await?;
    if let Some(context) = workbench.context() {
        context.workspace().add_file(DATA.as_ref())?;
    }
    let messages = vec![Message::user(vec![Block::text(question)])];
    let instructions = "You are a helpful assistant.";
    let options =
        LoopOptions { deadline: SystemClock.deadline(Duration::from_secs(60)), ..loop_options(config) };
    let outcome = run_loop(messages, &workbench, instructions, model, options).await;
    // Also after a failure: nothing that was started stays.
    workbench.close().await;
    final_text(&outcome?)
}

/// A model of the service that the environment names, or of a fake that ends with the returned value.
async fn model(
    config: &Config,
    environment: &ProcessEnv,
) -> Result<(Messages, Option<FakeMessages>), Box<dyn Error>> {
    let options = anthropic::options(config, "claude-sonnet-4-5");
    if let Some(key) = environment.api_key() {
        return Ok((Client::new(&anthropic::config(config, key))?.messages(options)?, None));
    }
    let script = Script::from_file("fixtures/scripts/sales-report.yaml")?;
    let fake = FakeMessages::builder().script(script).start().await?;
    let service = anthropic::config(config, "no-key-is-needed".into()).with_base_url(fake.base_url());
    Ok((Client::new(&service)?.messages(options)?, Some(fake)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let environment = ProcessEnv::from_process();
    let settings =
        Settings { executor: Some(ExecutorKind::Local), max_iterations: Some(15), ..Settings::default() };
    let config = Config::from_layers(settings, &environment, None)?;
    let (model, _fake) = model(&config, &environment).await?;
    let answer = chat(&model, &config, "Which region grew fastest in sales.csv?").await?;
    writeln!(std::io::stdout(), "{answer}")?;
    Ok(())
}
