//! The cases, and the fakes of the services in a process of their own.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use conjure_anthropic::fake::{self as messages, FakeMessages};
use conjure_conversation::Block;
use conjure_gemini::fake::{self as gemini, FakeGemini};
use conjure_openai::fake::{self as openai, FakeOpenAi};
use serde_json::json;
use test_support::KillOnDrop;

use crate::Result;

/// The argument under which this program is the fakes.
pub(crate) const SERVE: &str = "serve-the-fakes";
pub(crate) const KEY: &str = "sk-bench-0123456789";

/// What a service speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Messages,
    Chat,
    Responses,
    Gemini,
}

/// One case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) wire: Wire,
    pub(crate) model: &'static str,
    /// Into how many pieces each text is split.
    pub(crate) pieces: usize,
}

pub(crate) const CASES: [Case; 8] = [
    Case::new("streamed-cpu", Wire::Messages, 10),
    Case::new("streamed-cpu-long", Wire::Messages, 100),
    Case::new("chat-streamed-cpu", Wire::Chat, 10),
    Case::new("chat-streamed-cpu-long", Wire::Chat, 100),
    Case::new("responses-streamed-cpu", Wire::Responses, 10),
    Case::new("responses-streamed-cpu-long", Wire::Responses, 100),
    Case::new("gemini-streamed-cpu", Wire::Gemini, 10),
    Case::new("gemini-streamed-cpu-long", Wire::Gemini, 100),
];

impl Case {
    const fn new(name: &'static str, wire: Wire, pieces: usize) -> Self {
        Self { name, wire, model: "bench-model", pieces }
    }
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

/// A running fake.
enum Fake {
    Messages(FakeMessages),
    OpenAi(FakeOpenAi),
    Gemini(FakeGemini),
}

impl Fake {
    async fn start(case: Case) -> Result<Self> {
        let (words, pieces) = (words()?, case.pieces);
        Ok(match case.wire {
            Wire::Messages => {
                let reply = messages::Reply::blocks(words).with_pieces(pieces);
                Self::Messages(FakeMessages::builder().keep(0).turns([reply]).start().await?)
            }
            Wire::Chat | Wire::Responses => {
                let reply = openai::Reply::blocks(words).with_pieces(pieces);
                Self::OpenAi(FakeOpenAi::builder().keep(0).turns([reply]).start().await?)
            }
            Wire::Gemini => {
                let reply = gemini::Reply::blocks(words).with_pieces(pieces);
                Self::Gemini(FakeGemini::builder().keep(0).turns([reply]).start().await?)
            }
        })
    }

    fn base_url(&self) -> String {
        match self {
            Self::Messages(fake) => fake.base_url(),
            Self::OpenAi(fake) => fake.base_url(),
            Self::Gemini(fake) => fake.base_url(),
        }
    }
}

/// Is the fakes, one for each case, until its standard input ends: so they cannot outlive the benchmark.
pub(crate) async fn serve() -> Result<()> {
    let mut fakes = Vec::new();
    for case in CASES {
        let fake = Fake::start(case).await?;
        println!("{}", fake.base_url());
        fakes.push(fake);
    }
    let mut nothing = [0; 1];
    tokio::io::AsyncReadExt::read(&mut tokio::io::stdin(), &mut nothing).await?;
    Ok(())
}

/// Starts the process of the fakes. Returns the base URL of each case's.
pub(crate) fn start_fakes() -> Result<(KillOnDrop, Vec<String>)> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = KillOnDrop(command.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let stdout = child.0.stdout.take().ok_or("the fakes have no output")?;
    let urls: Vec<String> =
        BufReader::new(stdout).lines().take(CASES.len()).collect::<std::io::Result<_>>()?;
    if urls.len() < CASES.len() {
        return Err("the fakes ended; their error stands above".into());
    }
    Ok((child, urls))
}
