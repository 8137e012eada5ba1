//! A fake of OpenAI's two APIs as a program of its own.
//!
//!     cargo run -p conjure-openai --features fake --example fake_openai -- --script FILE [--port N] [--key K] …
//!
//! It prints its base URL as its first line and serves until it is killed.

#[path = "../../../examples/fake_program/mod.rs"]
mod program;

use std::error::Error;

use conjure_conversation::ApiErrorKind;
use conjure_conversation::scripted::Script;
use conjure_openai::fake::{FakeError, FakeOpenAi, Reply};

const USAGE: &str = "\
usage: fake_openai --script FILE [OPTIONS]

  --script FILE    the script that is played
  --port N         listen at this port of 127.0.0.1 (default: a free one)
  --key KEY        accept this key only; may be repeated (default: every key)
  --model NAME     know this model only; may be repeated (default: every model)
  --fault FAULT    answer the first request so; may be repeated, for the second and so on:
                   overloaded, rate-limit, quota, api-error, hang-up, silence
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Some(options) = program::options(USAGE)? else { return Ok(()) };
    // It may serve for long, and nobody can ask it for what it was sent.
    let mut builder = FakeOpenAi::builder().keep(0);
    for (name, value) in &options {
        builder = match name.as_str() {
            "--script" => builder.script(Script::from_file(value)?),
            "--port" => builder.port(value.parse()?),
            "--key" => builder.key(value),
            "--model" => builder.model(value),
            "--fault" => builder.faults([fault(value)?]),
            _ => return Err(format!("`{name}` is not an option\n\n{USAGE}").into()),
        };
    }
    let fake = builder.start().await?;
    program::serve(&fake.base_url()).await
}

fn fault(name: &str) -> Result<Reply, String> {
    let error = |kind: ApiErrorKind| Reply::error(FakeError::new(&kind, "a fault that was asked for"));
    Ok(match name {
        "overloaded" => error(ApiErrorKind::Overloaded),
        "rate-limit" => error(ApiErrorKind::RateLimit).with_header("retry-after", "1"),
        "quota" => error(ApiErrorKind::Billing),
        "api-error" => error(ApiErrorKind::Api),
        "hang-up" => Reply::hang_up(),
        "silence" => Reply::silence(),
        _ => return Err(format!("`{name}` is not a fault\n\n{USAGE}")),
    })
}
