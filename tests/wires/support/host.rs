//! [`Host`]: a runtime whose models are behind services of one or more wires, and tools of which every run is noted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::tool::{Authorization, CallConcurrency, CallTraits, ToolCall};
use conjure::{
    Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, SessionSpec, Settings, SystemClock, Tool,
    ToolDefinition, ToolOutput, approver_fn, tool_fn,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::support::test_wire::TestService;
pub(crate) use crate::turns::{ask, follow, say, soon, tenant, until};

/// The tool whose calls are denied.
pub(crate) const FORBIDDEN: &str = "forbidden";

/// What the tools did.
#[derive(Debug, Clone)]
pub(crate) struct ToolLog {
    lines: Arc<Mutex<Vec<String>>>,
    /// Lets one call of `gate` through for each permit.
    gate: Arc<Semaphore>,
}

impl ToolLog {
    /// Each run of a tool with an effect, by its input's `text`.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub(crate) fn open_gate(&self) {
        self.gate.add_permits(1);
    }

    fn add(&self, input: &Value) -> String {
        let text = input["text"].as_str().unwrap_or_default().to_owned();
        self.lines.lock().unwrap().push(text.clone());
        text
    }
}

/// A host: its data directory, which goes with it, and its tools.
///
/// - `note` has an effect, and says so.
/// - `slow` is the same, after some milliseconds.
/// - `gate` is the same, once the test lets it through.
/// - `fail` fails, `panic` panics, `hang` never ends. `forbidden` is denied.
pub(crate) struct Host {
    dir: TempDir,
    tool_timeout: Duration,
    pub(crate) tools: ToolLog,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::with_tool_timeout(Duration::from_secs(60))
    }

    pub(crate) fn with_tool_timeout(tool_timeout: Duration) -> Self {
        let tools = ToolLog { lines: Arc::default(), gate: Arc::new(Semaphore::new(0)) };
        Self { dir: tempfile::tempdir().unwrap(), tool_timeout, tools }
    }

    pub(crate) fn config(&self) -> Config {
        let settings = Settings {
            executor: Some(ExecutorKind::Local),
            data: Some(self.dir.path().join("data")),
            skill_paths: Some(Vec::new()),
            tool_timeout: Some(self.tool_timeout),
            ..Settings::default()
        };
        Config::from_layers(settings, &ProcessEnv::from_process(), None).unwrap()
    }

    /// Options with these models: each a service's, under a name.
    pub(crate) fn options<'a>(
        &self,
        models: impl IntoIterator<Item = (&'a str, &'a TestService)>,
    ) -> RuntimeOptions {
        let mut options = RuntimeOptions::from(self.config())
            .approver(approver_fn(|call: ToolCall| async move { review(&call) }))
            .tool(self.tool("note", |log, input| async move { ToolOutput::text(noted(&log, &input)) }))
            .tool(self.tool("slow", |log, input| async move {
                let wait = Duration::from_millis(input["milliseconds"].as_u64().unwrap_or(20));
                SystemClock.sleep_until(SystemClock.deadline(wait)).await;
                ToolOutput::text(noted(&log, &input))
            }))
            .tool(self.tool("gate", |log, input| async move {
                let output = ToolOutput::text(noted(&log, &input));
                log.gate.acquire().await.unwrap().forget();
                output
            }))
            .tool(self.tool("fail", |_, _| async { ToolOutput::error("it failed") }))
            .tool(self.tool("panic", |_, _| async { panic!("the tool panics") }))
            .tool(self.tool("hang", |_, _| std::future::pending()))
            .tool(self.tool(FORBIDDEN, |log, input| async move { ToolOutput::text(noted(&log, &input)) }));
        for (name, service) in models {
            options = options.model(name, service.model());
        }
        options
    }

    /// A runtime in memory with this one model.
    pub(crate) async fn start(&self, service: &TestService) -> Runtime {
        Runtime::spawn(self.options([("model", service)]).ephemeral()).await.unwrap()
    }

    fn tool<R: Future<Output = ToolOutput> + Send + 'static>(
        &self,
        name: &str,
        run: impl Fn(ToolLog, Value) -> R + Send + Sync + 'static,
    ) -> impl Tool + 'static {
        let definition = ToolDefinition {
            name: name.to_owned(),
            description: "A tool of the test.".to_owned(),
            input_schema: json!({"type": "object", "properties": {"text": {"type": "string"}}}),
        };
        let traits = CallTraits { concurrency: CallConcurrency::Shared, idempotent: false };
        let log = self.tools.clone();
        tool_fn(definition, traits, move |input, _| run(log.clone(), input))
    }
}

fn noted(log: &ToolLog, input: &Value) -> String {
    format!("noted {}", log.add(input))
}

fn review(call: &ToolCall) -> Authorization {
    match call.name.as_str() {
        FORBIDDEN => Authorization::Deny { reason: "never".to_owned() },
        _ => Authorization::Allow,
    }
}

/// A session of a tenant that has the host's tools only.
pub(crate) fn spec() -> SessionSpec {
    SessionSpec::new(tenant("acme")).base_prompt("Be brief.").without_skills().without_sandbox()
}
