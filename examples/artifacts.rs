//! Gives a session a file, data and a URL, asks about them by name, and reads what was produced: `cargo run -p examples --example artifacts`.
//!
//! It needs no network and no key: the model's words come from a script, and the URL leads to a server on this machine, which the host
//! permits explicitly.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::net::SocketAddr;
use std::time::Duration;

use conjure::artifact::{AddressPolicy, Egress, EgressPolicy, HttpFetch, RegistrationSource};
use conjure::config::{ArtifactSettings, ExecutorKind};
use conjure::model::{Script, ScriptFormat, ScriptedModel};
use conjure::{
    Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, SessionSpec, Settings, SystemClock, TenantId,
};
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const WORDS: &str = r#"
version: 1
turns:
  - expect: {system: {contains: ["file://sales_data", "file://config"]}}
    content:
      - {tool_use: {name: view, input: {path: "file://config"}}}
  - expect: {results: [{contains: "north", is_error: false}]}
    content:
      - tool_use:
          name: bash_tool
          input: {command: "grep north \"$ARTIFACT_SALES_DATA\" > north.csv; cat north.csv", description: filter}
  - content: "The north sold 12."
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let uploaded = dir.path().join("sales_2024.csv");
    std::fs::write(&uploaded, "region,total\nnorth,12\nsouth,7\n")?;
    let address = serve(r#"{"region": "north"}"#).await?;

    let settings = Settings {
        executor: Some(ExecutorKind::Local), // trusted commands only: it isolates nothing
        skill_paths: Some(vec!["fixtures/skills".into()]),
        data: Some(dir.path().join("data")),
        // By default only `https` is fetched, and `localhost` is blocked.
        artifacts: Some(ArtifactSettings {
            allowed_schemes: Some(vec!["http".to_owned()]),
            blocked_hosts: Some(Vec::new()),
            ..ArtifactSettings::default()
        }),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;

    // No private address is dialled, either. This host permits that of its own server, and no other.
    let options = config.artifacts().ok_or("artifacts are switched off")?;
    let addresses = AddressPolicy::public_only().with_allowed([address.ip().to_string().parse()?]);
    let way_out = Egress::new(EgressPolicy::Full).with_addresses(addresses);
    let fetch = HttpFetch::new(options.into(), way_out, std::sync::Arc::new(SystemClock))?;

    let model = ScriptedModel::new(Script::from_text(WORDS, ScriptFormat::Yaml, "this example")?);
    let runtime = Runtime::spawn(RuntimeOptions::from(config).model("scripted", model).fetch(fetch)).await?;
    let tenant = TenantId::new("acme")?;
    let session = runtime
        .open(SessionSpec::new(tenant.clone()).artifact("sales_data", RegistrationSource::file(&uploaded)))
        .await?;

    // At any time, also while a turn runs. The URL is fetched when somebody first wants it.
    let artifacts = session.artifacts();
    let url = RegistrationSource::url(format!("http://{address}/config.json"));
    assert_eq!(artifacts.register("config", url).await?.size(), None);

    let mut turn = session.send("Analyse file://sales_data as file://config says.").await?;
    while let Some(event) = turn.next().await {
        event?;
    }
    println!("{}", session.snapshot().await?.last_text);
    for artifact in artifacts.list().await? {
        println!("file://{}  {}  {:?} bytes", artifact.name, artifact.content_type, artifact.size());
    }

    // What the turn produced can be read, and be another session's artifact.
    let files = session.files().await?;
    let mut content = session.open_file(&files[0]).await?;
    while let Some(piece) = content.stream.next().await {
        print!("{}: {}", files[0].name, String::from_utf8_lossy(&piece?));
    }
    let other = runtime.open(SessionSpec::new(tenant)).await?;
    other.artifacts().register("north", session.store_file(&files[0]).await?).await?;
    assert_eq!(other.artifacts().resolve("file://north").await?.size, 9);

    runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
    Ok(())
}

/// A server that says the same to everybody.
async fn serve(body: &'static str) -> std::io::Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let serving = async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
            let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    };
    drop(tokio_util::task::TaskTracker::new().spawn(serving));
    Ok(address)
}
