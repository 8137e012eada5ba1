//! A fake of the Messages service as a program of its own.
//!
//!     cargo run -p conjure-anthropic --features fake --example fake_messages -- --script FILE [--port N] [--key K] …
//!
//! It prints its base URL as its first line and serves until it is killed.

#[path = "../../../examples/fake_program/mod.rs"]
mod program;

use std::error::Error;
use std::time::Duration;

use conjure_anthropic::ApiProfile;
use conjure_anthropic::fake::{FakeMessages, RateLimit, Refusal, Reply};
use conjure_conversation::ApiErrorKind;
use conjure_conversation::scripted::Script;

const USAGE: &str = "\
usage: fake_messages --script FILE [OPTIONS]

  --script FILE          the script that is played to every model
  --script MODEL=FILE    the script that is played to this model; may be repeated
  --port N               listen at this port of 127.0.0.1 (default: a free one)
  --key KEY              let this key in only; may be repeated (default: every key)
  --model NAME           know this model only; may be repeated (default: every model)
  --profile PROFILE      `beta` or `current` (default: both)
  --containers SECONDS   mind containers, each of which lives so long after its last use (default: do not)
  --rate N/SECONDS       so many requests of a key in so many seconds
  --fault FAULT          answer the first request so; may be repeated, for the second and so on:
                         overloaded, rate-limit, api-error, timeout, authentication, html, empty, silence, hang-up,
                         endless
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Some(options) = program::options(USAGE)? else { return Ok(()) };
    // It may serve for long, and nobody can ask it for what it was sent.
    let mut builder = FakeMessages::builder().keep(0);
    for (name, value) in &options {
        builder = match name.as_str() {
            "--script" => match value.split_once('=') {
                Some((model, file)) => builder.script_for(model, Script::from_file(file)?),
                None => builder.script(Script::from_file(value)?),
            },
            "--port" => builder.port(value.parse()?),
            "--key" => builder.key(value),
            "--model" => builder.model(value),
            "--profile" => builder.profile(match value.as_str() {
                "beta" => ApiProfile::Beta,
                "current" => ApiProfile::Current,
                _ => return Err("`--profile` is `beta` or `current`".into()),
            }),
            "--rate" => {
                let (requests, seconds) = value.split_once('/').ok_or("`--rate` is N/SECONDS")?;
                let window = Duration::from_secs(seconds.parse()?);
                builder.rate_limit(RateLimit { requests: requests.parse()?, window })
            }
            "--containers" => builder.hosting_for(Duration::from_secs(value.parse()?)),
            "--fault" => builder.faults([fault(value)?]),
            _ => return Err(format!("`{name}` is not an option\n\n{USAGE}").into()),
        };
    }
    let fake = builder.start().await?;
    program::serve(&fake.base_url()).await
}

fn fault(name: &str) -> Result<Reply, String> {
    let error = |kind| Reply::error(Refusal::new(kind, "a fault that was asked for"));
    Ok(match name {
        "overloaded" => error(ApiErrorKind::Overloaded),
        "rate-limit" => error(ApiErrorKind::RateLimit).with_header("retry-after", "1"),
        "api-error" => error(ApiErrorKind::Api),
        "timeout" => error(ApiErrorKind::Timeout),
        "authentication" => error(ApiErrorKind::Authentication),
        "html" => Reply::html(502),
        "empty" => Reply::empty(),
        "silence" => Reply::silence(),
        "hang-up" => Reply::hang_up(),
        "endless" => Reply::endless_text(),
        _ => return Err(format!("`{name}` is not a fault\n\n{USAGE}")),
    })
}
