//! What a host's subscriber sees of whole turns: spans by the names of the GenAI conventions, each with whose it is above it, and
//! the audit log. A process of its own, as what is listened to is decided for a whole process.

#![expect(clippy::unwrap_used, reason = "these are tests, which fail by panic")]

use std::collections::{BTreeMap, HashMap};
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::conversation::TurnStop;
use conjure::model::{ApiErrorKind, ModelErrorKind, parse_response};
use conjure::{
    Block, Clock as _, Config, Model, ModelError, ProcessEnv, Request, Response, Runtime, RuntimeOptions,
    SessionSpec, Settings, StopReason, SystemClock, TenantId, model_fn,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

const SECRET: &str = "hunter2-secret";

/// A span: its name, its parent's, and its fields.
#[derive(Debug, Default)]
struct Span {
    name: &'static str,
    parent: Option<usize>,
    fields: BTreeMap<&'static str, String>,
}

#[derive(Default)]
struct Seen {
    spans: Vec<Span>,
    /// Where those are that are open, by their numbers.
    places: HashMap<u64, usize>,
    /// The audit log.
    audit: Vec<BTreeMap<&'static str, String>>,
    /// All that was told, in any span or event.
    all: String,
}

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Seen>>);

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>, &'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = writeln!(self.1, "{}={value:?}", field.name());
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

/// Spans of actors are `ractor`'s.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("conjure")
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let seen = &mut *self.0.lock().unwrap();
        let parent = context.span(id).and_then(|span| span.parent()).map(|parent| parent.id());
        let parent = parent.and_then(|id| seen.places.get(&id.into_u64()).copied());
        let mut new = Span { name: attributes.metadata().name(), parent, ..Span::default() };
        attributes.record(&mut Fields(&mut new.fields, &mut seen.all));
        if is_ours(attributes.metadata()) {
            seen.places.insert(id.into_u64(), seen.spans.len());
            seen.spans.push(new);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let seen = &mut *self.0.lock().unwrap();
        if let Some(place) = seen.places.get(&id.into_u64()) {
            values.record(&mut Fields(&mut seen.spans[*place].fields, &mut seen.all));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let seen = &mut *self.0.lock().unwrap();
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields, &mut seen.all));
        if event.metadata().target() == "conjure::audit" {
            seen.audit.push(fields);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        // Its number goes to another one.
        self.0.lock().unwrap().places.remove(&id.into_u64());
    }
}

impl Seen {
    /// The names from the outermost span to this one.
    fn path(&self, span: &Span) -> String {
        let above = span.parent.map(|parent| self.path(&self.spans[parent]) + " > ");
        above.unwrap_or_default() + span.name
    }

    /// The spans of this name, each with what these fields hold.
    fn of<'s>(&'s self, name: &str, fields: &[&str]) -> Vec<Vec<&'s str>> {
        let mut held = Vec::new();
        for span in self.spans.iter().filter(|span| span.name == name) {
            let field = |field: &&str| span.fields.get(*field).map_or("-", String::as_str);
            held.push(fields.iter().map(field).collect());
        }
        held
    }
}

/// Calls tools that end well, badly and not in time, and fails when it is asked to.
fn model() -> impl Model {
    model_fn(|request: Request| async move {
        let words = request.messages.last().map(|message| message.text()).unwrap_or_default();
        if words == "fail" {
            return Err(ModelError::new(ModelErrorKind::Api(ApiErrorKind::Overloaded), "try later"));
        }
        let bash = |id: &str, command: &str| {
            let input = serde_json::json!({"command": command, "description": "d"});
            serde_json::json!({"type": "tool_use", "id": id, "name": "bash_tool", "input": input})
        };
        let content = match request.call {
            1 => serde_json::json!([
                bash("toolu_well", &format!("echo canary-output {SECRET}")),
                bash("toolu_badly", "exit 3"),
                bash("toolu_late", "sleep 1000"),
            ]),
            _ => serde_json::json!([{"type": "text", "text": "canary-answer"}]),
        };
        let stop = if request.call == 1 { "tool_use" } else { "end_turn" };
        let body = serde_json::json!({
            "id": "msg_1", "model": "echo-1", "stop_reason": stop, "content": content,
            "usage": {"input_tokens": 7, "output_tokens": 5},
        });
        Ok(parse_response(&body.to_string()).unwrap())
    })
}

#[tokio::test]
async fn an_embedder_sees_whose_each_call_was_and_how_it_ended_and_no_content_and_no_secret() {
    let collector = Collector::default();
    let guard = tracing::subscriber::set_default(Registry::default().with(collector.clone()));
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        executor: Some(if test_support::has_user_namespaces() {
            ExecutorKind::Jail
        } else {
            ExecutorKind::Local
        }),
        data: Some(dir.path().join("data")),
        skill_paths: Some(Vec::new()),
        // Far more than the calls need that end by themselves.
        tool_timeout: Some(Duration::from_secs(10)),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None).unwrap();
    let runtime = Runtime::spawn(RuntimeOptions::from(config).model("echo", model())).await.unwrap();
    let spec = SessionSpec::new(TenantId::new("acme").unwrap()).secret("API_KEY", SECRET);
    let session = runtime.open(spec).await.unwrap();
    let answered = session.send("canary-question").await.unwrap().end().await.unwrap();
    assert!(matches!(answered, TurnStop::Answered(_)), "{answered:?}");
    let failed = session.send("fail").await.unwrap().end().await.unwrap();
    assert!(matches!(failed, TurnStop::ModelFailed(_)), "{failed:?}");
    let id = session.id().to_string();
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(300))).await.unwrap();
    drop(guard);

    let seen = collector.0.lock().unwrap();
    let mut paths: Vec<String> = seen.spans.iter().map(|span| seen.path(span)).collect();
    paths.retain(|path| path.contains("invoke_agent"));
    paths.sort_unstable();
    let agent = "session > invoke_agent";
    let (chat, tool) = (format!("{agent} > chat"), format!("{agent} > execute_tool"));
    let expected: [&str; 8] = [agent, agent, &chat, &chat, &chat, &tool, &tool, &tool];
    assert_eq!(paths, expected);
    let whose = ["conjure.tenant", "conjure.session", "conjure.incarnation", "gen_ai.conversation.id"];
    for session in seen.of("session", &whose) {
        assert_eq!(session, ["acme", &id, "1", &id]);
    }
    assert_eq!(
        seen.of("invoke_agent", &["gen_ai.operation.name", "conjure.turn"]),
        [["invoke_agent", "1"], ["invoke_agent", "2"]]
    );
    let answer = [
        "gen_ai.operation.name",
        "gen_ai.response.model",
        "gen_ai.response.id",
        "gen_ai.response.finish_reasons",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "error.type",
    ];
    assert_eq!(
        seen.of("chat", &answer),
        [
            ["chat", "echo-1", "msg_1", "tool_use", "7", "5", "-"],
            ["chat", "echo-1", "msg_1", "end_turn", "7", "5", "-"],
            ["chat", "-", "-", "-", "-", "-", "Api(Overloaded)"],
        ]
    );
    let call = [
        "gen_ai.operation.name",
        "gen_ai.tool.name",
        "gen_ai.tool.call.id",
        "process.exit.code",
        "error.type",
    ];
    let mut calls = seen.of("execute_tool", &call);
    calls.sort_unstable();
    assert_eq!(
        calls,
        [
            ["execute_tool", "bash_tool", "toolu_badly", "3", "tool_error"],
            ["execute_tool", "bash_tool", "toolu_late", "-", "timed_out"],
            ["execute_tool", "bash_tool", "toolu_well", "0", "-"],
        ]
    );

    let audit = |field: &str| seen.audit.iter().map(|told| told[field].as_str()).collect::<Vec<_>>();
    assert_eq!(audit("tenant"), ["acme"; 3]);
    assert_eq!(audit("session"), [id.as_str(); 3]);
    let mut outcomes: Vec<_> = audit("call_id").into_iter().zip(audit("outcome")).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, [("toolu_badly", "error"), ("toolu_late", "timed_out"), ("toolu_well", "ok")]);
    // What was run is in the audit log, and no other content is anywhere.
    assert!(seen.all.contains("canary-output [REDACTED:API_KEY]"), "{}", seen.all);
    for content in [SECRET, "canary-question", "canary-answer"] {
        assert!(!seen.all.contains(content), "{content} is in {}", seen.all);
    }
}

const INPUT: &str = "canary-of-an-input";
const VARIABLE: &str = "canary-of-a-variable";

/// Loads the skill, runs its script, and is done.
fn runs_the_script() -> impl Model {
    model_fn(|request: Request| async move {
        let call = |id: &str, name: &str, input: serde_json::Value| {
            Response::new(vec![Block::tool_use(id, name, &input)], StopReason::ToolUse)
        };
        Ok(match request.call {
            1 => call("toolu_load", "skills_load", serde_json::json!({"names": ["greeting"]})),
            2 => call("toolu_run", "skills_run_script", serde_json::json!({"path": "scripts/run.sh"})),
            _ => Response::text("Done."),
        })
    })
}

/// What a manifest calls sensitive is in no span and no event, whatever a script does with it.
#[tokio::test]
async fn an_embedder_sees_no_sensitive_input_and_no_sensitive_variable() {
    let collector = Collector::default();
    let guard = tracing::subscriber::set_default(Registry::default().with(collector.clone()));
    let dir = tempfile::tempdir().unwrap();
    let skill = dir.path().join("skills/greeting");
    std::fs::create_dir_all(skill.join("scripts")).unwrap();
    for (path, text) in [
        ("SKILL.md", "---\nname: greeting\ndescription: Greets people.\n---\nRun the script.\n"),
        (
            "skill.manifest.yaml",
            "manifest_version: \"1.0\"\ninputs:\n  required:\n    - {name: api_key, sensitive: true}\nenv:\n  required:\n    - \
             {name: HOUSE, sensitive: true}\n",
        ),
        (
            "scripts/run.sh",
            "echo \"received ${#CONJURE_INPUT_API_KEY} ${#HOUSE}\"; env; echo \"$HOUSE\" >&2; exit 3\n",
        ),
    ] {
        std::fs::write(skill.join(path), text).unwrap();
    }
    let settings = Settings {
        executor: Some(if test_support::has_user_namespaces() {
            ExecutorKind::Jail
        } else {
            ExecutorKind::Local
        }),
        data: Some(dir.path().join("data")),
        skill_paths: Some(vec![dir.path().join("skills")]),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None).unwrap();
    let options = RuntimeOptions::from(config).model("echo", runs_the_script());
    let runtime = Runtime::spawn(options).await.unwrap();
    let acme = TenantId::new("acme").unwrap();
    let spec = SessionSpec::new(acme.clone()).input("api_key", INPUT).environment("HOUSE", VARIABLE);
    let session = runtime.open(spec).await.unwrap();
    let answered = session.send("go").await.unwrap().end().await.unwrap();
    assert!(matches!(answered, TurnStop::Answered(_)), "{answered:?}");
    let told = format!("{:?}", runtime.events(&acme, session.id(), 0).await.unwrap());
    // One to which an input is missing is refused, with its name alone.
    let refused =
        runtime.open(SessionSpec::new(acme).skills(["greeting"]).environment("HOUSE", VARIABLE)).await;
    let refused = refused.unwrap_err();
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(300))).await.unwrap();
    drop(guard);
    let received = format!("received {} {}", INPUT.len(), VARIABLE.len());
    assert!(told.contains(&received), "{told}");
    let seen = collector.0.lock().unwrap();
    assert!(seen.spans.iter().any(|span| span.name == "execute_tool"));
    for text in [&seen.all, &told, &format!("{refused} {refused:?}")] {
        assert!(!text.contains(INPUT) && !text.contains(VARIABLE), "{text}");
    }
}
