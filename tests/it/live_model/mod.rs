//! `conjure run --model`: the command against a fake of the service, over HTTP.

mod caching;
mod conversation;
mod failures;

use conjure_anthropic::fake::{FakeMessages, FakeMessagesBuilder, RecordedRequest, Reply};
use conjure_conversation::{Block, ToolCall};
use serde_json::Value;

use crate::support::Conjure;

/// No key of anybody, and long enough to be found wherever it leaks.
const KEY: &str = "sk-ant-canary-0123456789";

/// A model with a known price.
const MODEL: &str = "claude-sonnet-4-5";

/// A fake, and the Tokio runtime that it runs in.
struct Service {
    fake: FakeMessages,
    // Dropped after the fake.
    runtime: tokio::runtime::Runtime,
}

impl Service {
    fn start(builder: FakeMessagesBuilder) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let fake = runtime.block_on(builder.start()).unwrap();
        Self { fake, runtime }
    }

    /// A service that answers with these turns.
    fn of(turns: impl IntoIterator<Item = Reply>) -> Self {
        Self::start(FakeMessages::builder().turns(turns))
    }

    /// A service that answers every request with this, whatever was before.
    fn always(reply: &Reply) -> Self {
        Self::start(FakeMessages::builder().faults(std::iter::repeat_n(reply.clone(), 20)))
    }

    /// A run against it, without a prompt.
    fn run(&self) -> Conjure {
        Conjure::new(["run", "--sandbox", "local", "--model", MODEL])
            .env("ANTHROPIC_API_KEY", KEY)
            .env("ANTHROPIC_BASE_URL", self.fake.base_url())
    }

    fn until_received(&self, count: u64) {
        self.runtime.block_on(self.fake.until_received(count));
    }

    fn requests(&self) -> Vec<RecordedRequest> {
        self.fake.requests()
    }
}

fn json(request: &RecordedRequest) -> Value {
    serde_json::from_slice(request.body()).unwrap()
}

fn says(text: &str) -> Reply {
    Reply::blocks(vec![Block::text(text)])
}

/// A block in its exact JSON text.
fn raw(json: &str) -> Block {
    Block::from_json(json).unwrap()
}

fn bash(id: &str, command: &str) -> Block {
    let input = serde_json::json!({"command": command, "description": "x"});
    let call = ToolCall::new(id, "bash_tool", &input);
    raw(&format!(r#"{{"type":"tool_use","id":"{id}","name":"bash_tool","input":{}}}"#, call.input.get()))
}
