//! A fake of the Gemini service as a program of its own.
//!
//!     cargo run -p conjure-gemini --features fake --example fake_gemini -- --script FILE [--port N] [--key K] …
//!
//! It prints its base URL as its first line and serves until it is killed.

#[path = "../../../examples/fake_program/mod.rs"]
mod program;

use std::error::Error;

use conjure_conversation::ApiErrorKind;
use conjure_conversation::scripted::Script;
use conjure_gemini::fake::{FakeGemini, Refusal, Reply};

const USAGE: &str = "\
usage: fake_gemini --script FILE [OPTIONS]

  --script FILE          the script that is played to every model
  --script MODEL=FILE    the script that is played to this model; may be repeated
  --port N               listen at this port of 127.0.0.1 (default: a free one)
  --key KEY              accept this key only; may be repeated (default: every key)
  --model NAME           know this model only; may be repeated (default: every model)
  --call-ids yes         give ids to calls (default: give none, as the service often does)
  --fault FAULT          answer the first request so; may be repeated, for the second and so on:
                         overloaded, rate-limit, api-error, timeout, authentication, html, empty, silence, hang-up,
                         endless
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Some(options) = program::options(USAGE)? else { return Ok(()) };
    // It may serve for long, and nobody can ask it for what it was sent.
    let mut builder = FakeGemini::builder().keep(0);
    for (name, value) in &options {
        builder = match name.as_str() {
            "--script" => match value.split_once('=') {
                Some((model, file)) => builder.script_for(model, Script::from_file(file)?),
                None => builder.script(Script::from_file(value)?),
            },
            "--port" => builder.port(value.parse()?),
            "--key" => builder.key(value),
            "--model" => builder.model(value),
            "--call-ids" if value == "yes" => builder.with_call_ids(),
            "--call-ids" => return Err("`--call-ids` is `yes`, or is left out".into()),
            "--fault" => builder.faults([fault(value)?]),
            _ => return Err(format!("`{name}` is not an option\n\n{USAGE}").into()),
        };
    }
    let fake = builder.start().await?;
    program::serve(&fake.base_url()).await
}

fn fault(name: &str) -> Result<Reply, String> {
    let error = |kind| Refusal::new(kind, "a fault that was asked for");
    Ok(match name {
        "overloaded" => Reply::error(error(ApiErrorKind::Overloaded)),
        "rate-limit" => {
            Reply::error(error(ApiErrorKind::RateLimit).with_retry_delay(std::time::Duration::from_secs(1)))
        }
        "api-error" => Reply::error(error(ApiErrorKind::Api)),
        "timeout" => Reply::error(error(ApiErrorKind::Timeout)),
        "authentication" => Reply::error(error(ApiErrorKind::Authentication)),
        "html" => Reply::html(502),
        "empty" => Reply::empty(),
        "silence" => Reply::silence(),
        "hang-up" => Reply::hang_up(),
        "endless" => Reply::endless_text(),
        _ => return Err(format!("`{name}` is not a fault\n\n{USAGE}")),
    })
}
