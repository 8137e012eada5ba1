//! [`Sdk`]: the other side, a vendor's Python SDK in a process of its own.
//!
//! Each program makes one call to be ready, then a batch of calls for each line that it is sent. It tells the CPU time of the batch. Of
//! an answer it keeps what a loop needs: the text and the calls.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use test_support::KillOnDrop;

use crate::Result;
use crate::service::{Case, KEY, Wire};

/// What all programs begin with.
const BEGINNING: &str = "\
import json, sys, time
url, key, model, calls = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
";

/// What all programs end with. Each defines `call`, which returns the input of the tool.
const END: &str = r#"
def checked():
    assert call()["command"]
checked()
print("ready", flush=True)
for _ in sys.stdin:
    before = time.process_time()
    for _ in range(calls):
        checked()
    print(time.process_time() - before, flush=True)
"#;

/// `messages.stream`, to its final message.
const MESSAGES: &str = r#"
import anthropic
client = anthropic.Anthropic(base_url=url, api_key=key)
def call():
    with client.messages.stream(model=model, max_tokens=8192, messages=[{"role": "user", "content": "Hi"}]) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "tool_use"
    return message.content[1].input
"#;

/// `chat.completions.create`, whose chunks are joined by hand: that is less work for it than its `stream`.
const CHAT: &str = r#"
import openai
client = openai.OpenAI(base_url=url, api_key=key)
def call():
    text, arguments, reason = [], [], None
    stream = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hi"}],
        stream=True, stream_options={"include_usage": True})
    for chunk in stream:
        for choice in chunk.choices:
            if choice.delta.content:
                text.append(choice.delta.content)
            for piece in choice.delta.tool_calls or []:
                arguments.append(piece.function.arguments or "")
            reason = choice.finish_reason or reason
    assert reason == "tool_calls" and "".join(text)
    return json.loads("".join(arguments))
"#;

/// `responses.create`, whose last event has the whole answer.
const RESPONSES: &str = r#"
import openai
client = openai.OpenAI(base_url=url, api_key=key)
def call():
    for event in client.responses.create(model=model, input="Hi", stream=True, store=False):
        last = event
    assert last.type == "response.completed" and last.response.output_text
    return json.loads(last.response.output[1].arguments)
"#;

/// `generate_content_stream`, whose pieces are joined by hand.
const GEMINI: &str = r#"
from google import genai
client = genai.Client(api_key=key, http_options={"base_url": url.removesuffix("/v1")})
def call():
    text, calls = [], []
    for piece in client.models.generate_content_stream(model=model, contents="Hi"):
        for part in piece.candidates[0].content.parts or []:
            if part.text:
                text.append(part.text)
            if part.function_call:
                calls.append(part.function_call)
    assert piece.candidates[0].finish_reason == "STOP" and "".join(text)
    return calls[0].args
"#;

/// Of a wire: the SDK's name, its package with the version, how it is imported, and its program.
const fn program(wire: Wire) -> (&'static str, &'static str, &'static str, &'static str) {
    match wire {
        Wire::Messages => ("anthropic (Python)", "anthropic==2.11.0", "import anthropic", MESSAGES),
        Wire::Chat => ("openai (Python)", "openai==3.54.0", "import openai", CHAT),
        Wire::Responses => ("openai (Python)", "openai==3.54.0", "import openai", RESPONSES),
        Wire::Gemini => ("google-genai (Python)", "google-genai==3.4.0", "from google import genai", GEMINI),
    }
}

/// A running SDK.
pub(crate) struct Sdk {
    pub(crate) name: &'static str,
    _child: KillOnDrop,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Sdk {
    /// Starts the SDK of this case's wire. `None`, with a note, if it is not installed.
    pub(crate) fn start(case: &Case, url: &str, calls: u32) -> Result<Option<Self>> {
        let (name, package, import, program) = program(case.wire);
        let python = std::env::var("CONJURE_ORACLE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let imported = Command::new(&python).args(["-c", import]).stderr(Stdio::null()).status();
        if !imported.is_ok_and(|status| status.success()) {
            let message =
                format!("`{python}` has no `{name}`: install PyPI `{package}` and set CONJURE_ORACLE_PYTHON");
            if std::env::var("CONJURE_TEST_REQUIRE").as_deref() == Ok("all") {
                return Err(message.into());
            }
            eprintln!("SKIPPED: the SDK's side of {}: {message}", case.name);
            return Ok(None);
        }
        let mut command = Command::new(&python);
        let source = [BEGINNING, program, END].concat();
        command.args(["-c", &source, url, KEY, case.model, &calls.to_string()]).env("NO_PROXY", "*");
        let mut child = KillOnDrop(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let stdin = child.0.stdin.take().ok_or("the SDK has no input")?;
        let stdout = BufReader::new(child.0.stdout.take().ok_or("the SDK has no output")?);
        let mut sdk = Self { name, _child: child, stdin, stdout };
        sdk.line()?;
        Ok(Some(sdk))
    }

    /// Makes a batch of calls. Returns its CPU time in seconds.
    pub(crate) fn batch(&mut self) -> Result<f64> {
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
