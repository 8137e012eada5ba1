//! `cargo bench --bench model_call`: what a streamed model call costs in CPU time, ours and the vendor's SDK's, on each wire.
//!
//! Fakes of the services, in a process of their own, answer both sides over loopback HTTP with the same bytes, each event flushed by
//! itself; each side keeps its connection. Ours is the client as the loop uses it, drained to the whole answer, in a task on a runtime of
//! one thread, as a turn is one (the future of `block_on` itself would ask the system for events each time the connection's task hands it
//! one). The other is the vendor's Python SDK, iterated to the text and the call of the answer: `anthropic` for Messages, `openai` for
//! Chat and Responses, `google-genai` for Gemini. What is counted is the CPU time (user and system) of the whole process of a side, in
//! batches that take turns; the figures are the medians of the batches. Excluded: the fakes' own process, starting and importing, and TLS,
//! which neither side speaks on loopback.
//!
//! The wires send different amounts for the same answer: Responses tells it in pieces and twice as a whole, Gemini tells a call in one piece.
//!
//! The SDKs' interpreter is `CONJURE_ORACLE_PYTHON`, else `python3`. Where it lacks an SDK, only our side is measured, which is said,
//! unless `CONJURE_TEST_REQUIRE=all`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints")]
#![expect(
    clippy::disallowed_methods,
    reason = "it starts the fakes and the SDKs, and reads the settings of the oracle"
)]

mod sdk;
mod service;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use conjure_anthropic::{Client, Config, ModelOptions};
use conjure_conversation::{Block, Message, Model, ModelEvent, Request};
use conjure_gemini::{Gemini, KEY_HEADER};
use conjure_model_http::{HttpClient, HttpConfig, KeyHeader};
use conjure_openai::{Chat, Responses};
use futures_util::StreamExt as _;
use rustix::time::{ClockId, clock_gettime};
use secrecy::SecretString;

use sdk::Sdk;
use service::{CASES, Case, KEY, SERVE, Wire, serve, start_fakes};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CALLS: u32 = 100;
const BATCHES: usize = 9;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if std::env::args().any(|argument| argument == SERVE) {
        return runtime.block_on(serve());
    }
    let (_fakes, urls) = start_fakes()?;
    for (case, url) in CASES.iter().zip(&urls) {
        measure(&runtime, case, url)?;
    }
    Ok(())
}

/// Our client of a case's service.
fn client(case: &Case, url: &str) -> Result<Arc<dyn Model>> {
    let key = SecretString::from(KEY);
    let http = |key, header| HttpClient::new(&HttpConfig::new(url).with_key(key, header));
    Ok(match case.wire {
        Wire::Messages => {
            let client = Client::new(&Config::new(key).with_base_url(url))?;
            Arc::new(client.messages(ModelOptions::new(case.model))?)
        }
        Wire::Chat => Arc::new(Chat::new(http(key, KeyHeader::Bearer)?, Chat::options(case.model))),
        Wire::Responses => {
            Arc::new(Responses::new(http(key, KeyHeader::Bearer)?, Responses::options(case.model)))
        }
        Wire::Gemini => Arc::new(Gemini::new(http(key, KEY_HEADER)?, Gemini::options(case.model))),
    })
}

fn measure(runtime: &tokio::runtime::Runtime, case: &Case, url: &str) -> Result<()> {
    let model = {
        // The client keeps its connections within the runtime.
        let _within = runtime.enter();
        client(case, url)?
    };
    let mut sdk = Sdk::start(case, url, CALLS)?;
    let events = runtime.block_on(call(&*model))?;
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        let before = cpu_time();
        runtime.block_on(runtime.spawn(batch(Arc::clone(&model))))??;
        ours.push((cpu_time() - before).as_secs_f64() * 1000.0 / f64::from(CALLS));
        if let Some(sdk) = &mut sdk {
            other.push(sdk.batch()? * 1000.0 / f64::from(CALLS));
        }
    }
    let Case { name, pieces, .. } = case;
    println!(
        "{name}: {events} previews, texts in {pieces} pieces, {BATCHES} batches of {CALLS} calls, CPU ms a call"
    );
    let ours = summary("ours", ours);
    match sdk {
        None => println!("RESULT goal=model_call case={name} ours={ours:.3} unit=ms"),
        Some(sdk) => {
            let other = summary(sdk.name, other);
            println!(
                "RESULT goal=model_call case={name} ours={ours:.3} other={other:.3} unit=ms ratio={:.3}",
                ours / other
            );
        }
    }
    Ok(())
}

async fn batch(model: Arc<dyn Model>) -> Result<()> {
    for _ in 0..CALLS {
        call(&*model).await?;
    }
    Ok(())
}

/// One call, to its whole answer. How many previews there were.
async fn call(model: &dyn Model) -> Result<usize> {
    let request = Request::new(vec![Message::user(vec![Block::text("Hi")]).into()]);
    let mut stream = model.stream(request);
    let mut previews = 0;
    while let Some(event) = stream.next().await {
        match event? {
            ModelEvent::Finished(response) if response.content.len() == 2 => return Ok(previews),
            ModelEvent::Finished(response) => return Err(format!("another answer: {response:?}").into()),
            _ => previews += 1,
        }
    }
    Err("the stream ended without an answer".into())
}

/// The CPU time of this process, user and system, as `getrusage` has it, but finer.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Prints the least, the median and the most, and returns the median.
fn summary(name: &str, mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let median = values[values.len() / 2];
    println!("  {name:21} min {:.3}  median {median:.3}  max {:.3}", values[0], values[values.len() - 1]);
    median
}
