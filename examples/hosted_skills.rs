//! Skills that the vendor runs in containers of its own (ADR-0011): a session is used as any other, pauses are told, and the files that
//! were made are downloaded. Nothing runs here: no sandbox, no container.
//!
//! ```text
//! ANTHROPIC_API_KEY=… cargo run -p examples --example hosted_skills      # the service; ANTHROPIC_BASE_URL names another
//! cargo run -p examples --example hosted_skills                          # without a key: a fake of it, which makes two files
//! ```

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::time::Duration;

use conjure::anthropic::SecretString;
use conjure::hosted::HostedSkill;
use conjure::{
    Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, SessionEventKind, SessionSpec, Settings,
    StopReason, SystemClock, TenantId, TurnEvent, Update,
};
use conjure_anthropic::fake::{FakeMessages, FakeToolRun};
use futures_util::TryStreamExt as _;

/// The service that the environment names, or a fake of it, which ends with the returned value.
async fn service(
    environment: &ProcessEnv,
    settings: &mut Settings,
) -> Result<(SecretString, Option<FakeMessages>), Box<dyn Error>> {
    if let Some(key) = environment.api_key() {
        return Ok((key, None));
    }
    let turns = [
        FakeToolRun::new("python /skills/xlsx/make.py").paused().into(),
        FakeToolRun::new("python /skills/xlsx/make.py")
            .with_file("sales.xlsx", "a table")
            .with_file("sales.pptx", "a slide")
            .saying("The north grew fastest: see sales.xlsx and sales.pptx.")
            .into(),
    ];
    let fake = FakeMessages::builder().hosting().turns(turns).start().await?;
    settings.base_url = Some(fake.base_url());
    Ok(("no-key-is-needed".into(), Some(fake)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let data = tempfile::tempdir()?;
    let environment = ProcessEnv::from_process();
    let mut settings = Settings { data: Some(data.path().join("data")), ..Settings::default() };
    let (key, _fake) = service(&environment, &mut settings).await?;
    let config = Config::from_layers(settings, &environment, None)?;
    let runtime = Runtime::spawn(RuntimeOptions::from(config).anthropic(key)).await?;

    let skills = [HostedSkill::anthropic("xlsx"), HostedSkill::anthropic("pptx")];
    let spec = SessionSpec::new(TenantId::new("acme")?).model("claude-sonnet-4-5").hosted(skills);
    let session = runtime.open(spec).await?;

    let mut turn = session.send("Which region grew fastest? Make a table and a slide of it.").await?;
    let mut pauses = 0;
    while let Some(event) = turn.next().await {
        match event? {
            TurnEvent::Update(Update::Recorded(event)) => match event.kind {
                SessionEventKind::ModelRequestEnd { stop_reason: Some(StopReason::PauseTurn), .. } => {
                    pauses += 1;
                    println!("paused (attempt {pauses}), going on …");
                }
                SessionEventKind::SessionContainerLost { container_id } => {
                    println!("the container {container_id} has expired; a fresh one takes its place");
                }
                _ => {}
            },
            TurnEvent::Ended { stop, .. } => println!("ended: {stop}"),
            _ => {}
        }
    }
    println!("{}", session.snapshot().await?.last_text);

    // Wherever they lie: these are the vendor's.
    for file in session.files().await? {
        let content = session.open_file(&file).await?;
        let bytes: Vec<u8> = content.stream.map_ok(|piece| piece.to_vec()).try_concat().await?;
        std::fs::write(data.path().join(&content.name), &bytes)?;
        println!("{} ({}, {} bytes, {})", content.name, content.content_type, bytes.len(), file.source);
    }
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
    Ok(())
}
