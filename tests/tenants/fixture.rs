//! A host with a directory of its own, and a model whose answers use 5,000 tokens each.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::model::Role;
use conjure::runtime::{Deadline, Timestamp};
use conjure::sandbox::NetworkPolicy;
use conjure::tenant::Budget;
use conjure::{
    Block, Clock, Config, Model, ProcessEnv, Request, Response, Runtime, RuntimeOptions, SessionSpec,
    Settings, StopReason, SystemClock, Usage, model_fn,
};
use tempfile::TempDir;

use crate::turns::tool_results;
pub(crate) use crate::turns::{ask, follow, say, soon, tenant, until};

/// What an answer uses. What is sent in these tests is far less, and what is reserved for an answer nothing.
pub(crate) const ANSWER: u64 = 5_000;

pub(crate) fn spec(whose: &str) -> SessionSpec {
    SessionSpec::new(tenant(whose)).without_skills()
}

/// With nothing reserved but for what is sent.
pub(crate) fn budget() -> Budget {
    Budget::default().with_reserved_output(0)
}

/// Asked `$ COMMAND`, it has that run, and then says what came of it; asked `for ever`, it has commands run without end; asked
/// anything else, it repeats it. It checks that what it is sent is a valid history.
pub(crate) fn model() -> impl Model {
    model_fn(|request: Request| async move { Ok(answer(&request)) })
}

pub(crate) fn answer(request: &Request) -> Response {
    let roles: Vec<Role> = request.messages.iter().map(|message| message.role).collect();
    assert!(roles.iter().step_by(2).all(|role| *role == Role::User), "{roles:?}");
    assert!(roles.iter().skip(1).step_by(2).all(|role| *role == Role::Assistant), "{roles:?}");
    let last = request.messages.last().unwrap();
    let said = request.messages.iter().filter(|message| message.role == Role::User);
    let asked = said.map(|message| message.text()).rfind(|text| !text.is_empty()).unwrap();
    // A text that follows the results of an ended turn starts the next turn.
    let results = tool_results(last).filter(|_| last.text().is_empty());
    let wants = asked.strip_prefix("$ ").filter(|_| results.is_none()).map(str::to_owned);
    let number = request.messages.len();
    let wants = wants.or_else(|| (asked == "for ever").then(|| format!("echo {number}")));
    let (content, stop_reason) = match (wants, results) {
        (Some(command), _) => {
            let input = serde_json::json!({"command": command, "description": "as it was asked"});
            let id = format!("toolu_{number}");
            (Block::tool_use(id, "bash_tool", &input), StopReason::ToolUse)
        }
        (None, Some(results)) => (Block::text(format!("it says: {results}")), StopReason::EndTurn),
        (None, None) => (Block::text(format!("heard: {asked}")), StopReason::EndTurn),
    };
    Response {
        usage: Usage { input_tokens: ANSWER - 1, output_tokens: 1, ..Usage::default() },
        ..Response::new(vec![content], stop_reason)
    }
}

/// A host: its data directory, which goes with it.
pub(crate) struct Host {
    dir: TempDir,
    kind: ExecutorKind,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::of(ExecutorKind::Jail)
    }

    pub(crate) fn of(kind: ExecutorKind) -> Self {
        // Where no jail can be made, the kind that does without.
        let is_possible = kind != ExecutorKind::Jail || test_support::has_user_namespaces();
        let kind = if is_possible { kind } else { ExecutorKind::Local };
        Self { dir: tempfile::tempdir().unwrap(), kind }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn config(&self) -> Config {
        self.config_with(NetworkPolicy::None)
    }

    pub(crate) fn config_with(&self, network: NetworkPolicy) -> Config {
        let settings = Settings {
            executor: Some(self.kind),
            data: Some(self.data()),
            skill_paths: Some(Vec::new()),
            network: Some(network),
            ..Settings::default()
        };
        Config::from_layers(settings, &ProcessEnv::from_process(), None).unwrap()
    }

    pub(crate) fn options(&self) -> RuntimeOptions {
        RuntimeOptions::from(self.config()).model("echo", model())
    }

    pub(crate) async fn start(&self, options: RuntimeOptions) -> Runtime {
        Runtime::spawn(options).await.unwrap()
    }
}

/// A clock that shows what it is told; deadlines are the machine's.
#[derive(Debug, Clone)]
pub(crate) struct HandClock(Arc<Mutex<u64>>);

impl HandClock {
    /// It shows this day of 2026, counted from 0.
    pub(crate) fn at(day: u64) -> Self {
        let clock = Self(Arc::default());
        clock.jump(day);
        clock
    }

    pub(crate) fn jump(&self, day: u64) {
        *self.0.lock().unwrap() = 1_767_225_600_000 + day * 86_400_000;
    }
}

impl Clock for HandClock {
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_millis(*self.0.lock().unwrap())
    }

    fn deadline(&self, after: Duration) -> Deadline {
        SystemClock.deadline(after)
    }

    fn remaining(&self, deadline: Deadline) -> Duration {
        SystemClock.remaining(deadline)
    }

    fn sleep_until(
        &self,
        deadline: Deadline,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        SystemClock.sleep_until(deadline)
    }
}
