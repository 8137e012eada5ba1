//! `cargo bench --bench model_call`: what a streamed model call costs in CPU time, ours and the official SDK's.
//!
//! One fake of the Messages service, in a process of its own, answers both sides over loopback HTTP with the same
//! bytes, each event flushed by itself; each side keeps its connection. Ours is the client as the loop uses it, drained
//! to the whole answer, in a task on a runtime of one thread, as a turn is one (the future of `block_on` itself would ask
//! the system for events each time the connection's task hands it one); the other is `anthropic`'s `messages.stream`, iterated to its final
//! message. What is counted is the CPU time (user and system) of the whole process of a side, in batches that take
//! turns; the figures are the medians of the batches. Excluded: the fake's own process, starting and importing, and
//! TLS, which neither side speaks on loopback.
//!
//! The SDK's interpreter is `CONJURE_ORACLE_PYTHON`, else `python3`. Without `anthropic` in it only our side is
//! measured, which is said, unless `CONJURE_TEST_REQUIRE=all`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints")]
#![expect(
    clippy::disallowed_methods,
    reason = "it starts the fake and the SDK, and reads the settings of the oracle"
)]

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use conjure_anthropic::fake::{FakeMessages, Reply};
use conjure_anthropic::{Client, Config, Messages, ModelOptions};
use conjure_base::TurnId;
use conjure_conversation::{Block, Message, Model as _, ModelEvent, Request};
use futures_util::StreamExt as _;
use rustix::time::{ClockId, clock_gettime};
use secrecy::SecretString;
use serde_json::json;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The argument under which this program is the fake.
const SERVE: &str = "serve-the-fake";
const KEY: &str = "sk-bench-0123456789";
const CALLS: u32 = 100;
const BATCHES: usize = 9;

/// Each case: its name, the model under which the fake plays it, and into how many pieces its words are split.
const CASES: [(&str, &str, usize); 2] = [("streamed-cpu", "short", 10), ("streamed-cpu-long", "long", 100)];

const SDK: &str = r#"
import sys, time, anthropic
url, key, model, calls = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
client = anthropic.Anthropic(base_url=url, api_key=key)
def call():
    with client.messages.stream(model=model, max_tokens=8192, messages=[{"role": "user", "content": "Hi"}]) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "tool_use" and message.content[1].input["command"]
call()
print("ready", flush=True)
for _ in sys.stdin:
    before = time.process_time()
    for _ in range(calls):
        call()
    print(time.process_time() - before, flush=True)
"#;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if std::env::args().any(|argument| argument == SERVE) {
        return runtime.block_on(serve());
    }
    let (_fake, url) = start_fake()?;
    let python = oracle()?;
    for (case, model, pieces) in CASES {
        measure(&runtime, case, model, pieces, &url, python.as_deref())?;
    }
    Ok(())
}

/// Is the fake, until its standard input ends: so it cannot outlive the benchmark.
async fn serve() -> Result<()> {
    let mut builder = FakeMessages::builder().keep(0);
    for (_, model, pieces) in CASES {
        builder = builder.turns_for(model, [Reply::blocks(words()?).with_pieces(pieces)]);
    }
    let fake = builder.start().await?;
    println!("{}", fake.base_url());
    let mut nothing = [0; 1];
    tokio::io::AsyncReadExt::read(&mut tokio::io::stdin(), &mut nothing).await?;
    fake.stop().await;
    Ok(())
}

/// A text and a tool call, as an answer in the middle of a turn has them.
fn words() -> Result<Vec<Block>> {
    let text =
        "The table has four regions and twelve months; I compute the growth of each with a short script. ";
    let command = "python3 scripts/growth.py sales.csv --by region --from 2025-01 --to 2025-12 ".repeat(8);
    let call = json!({
        "type": "tool_use",
        "id": "toolu_1",
        "name": "bash_tool",
        "input": {"command": command, "description": "Compute growth by region"},
    });
    Ok(vec![Block::text(text.repeat(8)), Block::from_json(call.to_string())?])
}

fn start_fake() -> Result<(KillOnDrop, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = KillOnDrop(command.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let stdout = child.0.stdout.take().ok_or("the fake has no output")?;
    let mut url = String::new();
    BufReader::new(stdout).read_line(&mut url)?;
    Ok((child, url.trim().to_owned()))
}

/// A process that ends with us.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn oracle() -> Result<Option<String>> {
    let python = std::env::var("CONJURE_ORACLE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let imported = Command::new(&python).args(["-c", "import anthropic"]).stderr(Stdio::null()).status();
    if imported.is_ok_and(|status| status.success()) {
        return Ok(Some(python));
    }
    let message = format!(
        "`{python}` has no `anthropic`: install PyPI `anthropic==2.11.0` and set CONJURE_ORACLE_PYTHON"
    );
    if std::env::var("CONJURE_TEST_REQUIRE").as_deref() == Ok("all") {
        return Err(message.into());
    }
    eprintln!("SKIPPED: the SDK's side: {message}");
    Ok(None)
}

fn measure(
    runtime: &tokio::runtime::Runtime,
    case: &str,
    model: &str,
    pieces: usize,
    url: &str,
    python: Option<&str>,
) -> Result<()> {
    let messages = {
        // The client keeps its connections within the runtime.
        let _within = runtime.enter();
        let config = Config::new(SecretString::from(KEY)).with_base_url(url);
        Client::new(&config)?.messages(ModelOptions::new(model))?
    };
    let mut sdk = python.map(|python| Sdk::start(python, url, model)).transpose()?;
    let events = runtime.block_on(call(&messages))?;
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        let before = cpu_time();
        runtime.block_on(runtime.spawn(batch(messages.clone())))??;
        ours.push((cpu_time() - before).as_secs_f64() * 1000.0 / f64::from(CALLS));
        if let Some(sdk) = &mut sdk {
            other.push(sdk.batch()? * 1000.0 / f64::from(CALLS));
        }
    }
    println!(
        "{case}: {events} previews, texts in {pieces} pieces, {BATCHES} batches of {CALLS} calls, CPU ms a call"
    );
    let ours = summary("ours", ours);
    if other.is_empty() {
        println!("RESULT goal=model_call case={case} ours={ours:.3} unit=ms");
    } else {
        let other = summary("anthropic (Python)", other);
        println!(
            "RESULT goal=model_call case={case} ours={ours:.3} other={other:.3} unit=ms ratio={:.3}",
            ours / other
        );
    }
    Ok(())
}

async fn batch(messages: Messages) -> Result<()> {
    for _ in 0..CALLS {
        call(&messages).await?;
    }
    Ok(())
}

/// One call, to its whole answer. How many previews there were.
async fn call(messages: &Messages) -> Result<usize> {
    let request = Request {
        turn: TurnId::FIRST,
        call: 1,
        instructions: Vec::new(),
        tools: [].into(),
        messages: vec![Message::user(vec![Block::text("Hi")]).into()],
        container: None,
        hosted: [].into(),
    };
    let mut stream = messages.stream(request);
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

/// The SDK in a process of its own; it makes a batch of calls for each line that it is sent.
struct Sdk {
    _child: KillOnDrop,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Sdk {
    fn start(python: &str, url: &str, model: &str) -> Result<Self> {
        let mut command = Command::new(python);
        command.args(["-c", SDK, url, KEY, model, &CALLS.to_string()]).env("NO_PROXY", "*");
        let mut child = KillOnDrop(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let stdin = child.0.stdin.take().ok_or("the SDK has no input")?;
        let stdout = BufReader::new(child.0.stdout.take().ok_or("the SDK has no output")?);
        let mut sdk = Self { _child: child, stdin, stdout };
        sdk.line()?;
        Ok(sdk)
    }

    fn batch(&mut self) -> Result<f64> {
        self.stdin.write_all(b"go\n")?;
        Ok(self.line()?.trim().parse()?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err("the SDK ended; its error stands above".into());
        }
        Ok(line)
    }
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
    println!("  {name:20} min {:.3}  median {median:.3}  max {:.3}", values[0], values[values.len() - 1]);
    median
}
