//! What a host's recorder of metrics is told of sessions, their turns, calls and sandboxes, and of gates. A process of its own, as
//! there is one recorder for a whole process.

#![expect(clippy::unwrap_used, reason = "these are tests, which fail by panic")]

use std::time::Duration;

use conjure::config::{ExecutorKind, PoolSettings};
use conjure::metrics::MetricsOptions;
use conjure::model::{ApiErrorKind, ModelErrorKind, parse_response};
use conjure::runtime::{AdmissionGate, Share};
use conjure::{
    Config, Model, ModelError, ProcessEnv, Request, Runtime, RuntimeOptions, Session, SessionSpec, Settings,
    model_fn,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use test_support::until;

#[path = "../it/support/turns.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod turns;

use turns::{soon, tenant};

/// Runs what it is told to, by a tool that it is told of or by one that nobody has.
fn model() -> impl Model {
    model_fn(|request: Request| async move {
        let words = request.messages.last().map(|message| message.text()).unwrap_or_default();
        if words == "fail" {
            return Err(ModelError::new(ModelErrorKind::Api(ApiErrorKind::Unknown("odd".to_owned())), "no"));
        }
        let content = match (words.split_once(' '), request.call) {
            (Some((tool, command)), 1) => {
                let input = serde_json::json!({"command": command, "description": "d"});
                serde_json::json!([{
                    "type": "tool_use", "id": format!("toolu_{}", request.messages.len()), "name": tool, "input": input,
                }])
            }
            _ => serde_json::json!([{"type": "text", "text": "done"}]),
        };
        let stop = if request.call == 1 && words.contains(' ') { "tool_use" } else { "end_turn" };
        let usage = serde_json::json!({
            "input_tokens": 7, "output_tokens": 5, "cache_read_input_tokens": 3,
        });
        let body = serde_json::json!({"stop_reason": stop, "content": content, "usage": usage});
        Ok(parse_response(&body.to_string()).unwrap())
    })
}

async fn say(session: &Session, words: &str) {
    session.send(words).await.unwrap().end().await.unwrap();
}

/// The value of this series; 0 where there is none.
fn value(handle: &PrometheusHandle, series: &str) -> f64 {
    let page = handle.render();
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

#[tokio::test]
async fn an_embedder_can_count_what_its_tenants_do_and_no_tenant_and_no_model_makes_series_without_end() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let handle = PrometheusBuilder::new().install_recorder().unwrap();
    conjure::metrics::names::describe();
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        executor: Some(ExecutorKind::Jail),
        data: Some(dir.path().join("data")),
        skill_paths: Some(Vec::new()),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None).unwrap();
    let gate = AdmissionGate::new("the sandboxes", 1, Share { waiting: 0, ..Share::default() });
    let options = RuntimeOptions::from(config.clone())
        .pool(PoolSettings { jail: Some(1), ..PoolSettings::default() })
        .model("echo", model())
        .sandbox_gate(gate)
        .sessions(|sessions| sessions.executors.pause_after = Some(Duration::from_millis(20)))
        .metrics(MetricsOptions { tenants: 2, tools: 1 });
    let runtime = Runtime::spawn(options).await.unwrap();
    let open =
        async |name: &str| runtime.open(SessionSpec::new(tenant(name)).without_skills()).await.unwrap();
    let check = |series: &str, expected: f64| {
        let found = value(&handle, series);
        assert!((found - expected).abs() < 1e-9, "{series} is {found}, not {expected}: {}", handle.render());
    };

    // A session that was closed says so before the place of its sandbox is free.
    let until_free = async || {
        let admitted = || value(&handle, r#"conjure_admission_admitted{gate="the sandboxes"}"#);
        until("no sandbox has a place", || admitted() < 0.5).await;
    };

    // A spare that is ready serves the first one.
    let ready = || runtime.pools().first().is_some_and(|pool| pool.ready == 1);
    until("a spare is ready", ready).await;
    let pool = runtime.pools()[0].name.clone();
    let of_pool = |metric: &str, labels: &str| format!(r#"{metric}{{pool="{pool}"{labels}}}"#);
    check(&of_pool("conjure_pool_ready", ""), 1.0);
    check(&of_pool("conjure_pool_starting", ""), 0.0);
    check(&of_pool("conjure_pool_items_total", r#",outcome="ready""#), 1.0);
    let acme = open("acme").await;
    say(&acme, "bash_tool echo hello").await;
    check(r#"conjure_turns_total{tenant="acme",stop="answered"}"#, 1.0);
    check(r#"conjure_turn_duration_seconds_count{tenant="acme"}"#, 1.0);
    check(r#"conjure_model_calls_total{tenant="acme",outcome="ok"}"#, 2.0);
    check(r#"conjure_model_call_duration_seconds_count{tenant="acme"}"#, 2.0);
    check(r#"conjure_tokens_total{tenant="acme",kind="input"}"#, 14.0);
    check(r#"conjure_tokens_total{tenant="acme",kind="output"}"#, 10.0);
    check(r#"conjure_tokens_total{tenant="acme",kind="cache_read"}"#, 6.0);
    check(r#"conjure_tool_calls_total{tenant="acme",tool="bash_tool",outcome="ok"}"#, 1.0);
    check(r#"conjure_tool_call_duration_seconds_count{tenant="acme",tool="bash_tool"}"#, 1.0);
    check(r#"conjure_sandboxes_live{tenant="acme"}"#, 1.0);
    check(r#"conjure_sandbox_starts_total{tenant="acme",outcome="ok"}"#, 1.0);
    check(r#"conjure_admission_admitted{gate="the sandboxes"}"#, 1.0);

    // Nobody uses it for a while; the call of the next turn has it go on.
    let is_paused = || value(&handle, r#"conjure_sandboxes_paused{tenant="acme"}"#) > 0.5;
    until("its sandbox is paused", is_paused).await;
    assert!(runtime.tree().to_string().contains("its sandbox is paused"), "{}", runtime.tree());
    check(r#"conjure_sandboxes_live{tenant="acme"}"#, 1.0);

    check(&of_pool("conjure_pool_claims_total", r#",outcome="hit""#), 1.0);
    check(&of_pool("conjure_pool_claims_total", r#",outcome="miss""#), 0.0);
    // The starts of each kind are counted by themselves.
    assert!(handle.render().contains(r#"conjure_admission_admitted{gate="the starts of jails"}"#));

    // What the model makes up has no series of its own, nor has a failure that the service makes up.
    say(&acme, "made_up_tool 1").await;
    check(r#"conjure_tool_calls_total{tenant="acme",tool="other",outcome="rejected"}"#, 1.0);
    say(&acme, "fail").await;
    check(r#"conjure_model_calls_total{tenant="acme",outcome="unknown"}"#, 1.0);
    check(r#"conjure_turns_total{tenant="acme",stop="model_failed"}"#, 1.0);

    // Another tenant finds no room for its sandbox.
    let globex = open("globex").await;
    check(r#"conjure_sessions_live{tenant="acme"}"#, 1.0);
    check(r#"conjure_sessions_live{tenant="globex"}"#, 1.0);
    say(&globex, "bash_tool echo hello").await;
    check(r#"conjure_sandbox_starts_total{tenant="globex",outcome="overloaded"}"#, 1.0);
    check(r#"conjure_admission_refused_total{gate="the sandboxes"}"#, 1.0);

    // Tenants beyond the bound are told together.
    acme.close().await.unwrap();
    until_free().await;
    let is_gone = || value(&handle, r#"conjure_sessions_live{tenant="acme"}"#) < 0.5;
    until("the session is gone", is_gone).await;
    check(r#"conjure_sandboxes_live{tenant="acme"}"#, 0.0);
    check(r#"conjure_sandboxes_paused{tenant="acme"}"#, 0.0);
    check(r#"conjure_sessions_live{tenant="acme"}"#, 0.0);
    for name in ["initech", "umbrella"] {
        let session = open(name).await;
        say(&session, "bash_tool true").await;
        session.close().await.unwrap();
    }
    check(r#"conjure_session_starts_total{tenant="other"}"#, 2.0);
    check(r#"conjure_turns_total{tenant="other",stop="answered"}"#, 2.0);
    assert!(!handle.render().contains("initech"), "{}", handle.render());

    // It is put away, and revived.
    say(&acme, "hello").await;
    check(r#"conjure_session_starts_total{tenant="acme"}"#, 2.0);
    assert!(value(&handle, "conjure_journal_events_total") > 20.0, "{}", handle.render());

    // Another runtime of the process, with a pool and a gate of the same names: they add up, and one leaves with its own.
    until_free().await;
    say(&acme, "bash_tool true").await;
    until("a spare is ready", ready).await;
    check(r#"conjure_admission_admitted{gate="the sandboxes"}"#, 1.0);
    let dir = tempfile::tempdir().unwrap();
    let config =
        config.with(Settings { data: Some(dir.path().join("data")), ..Settings::default() }).unwrap();
    let pool = PoolSettings { jail: Some(2), ..PoolSettings::default() };
    let other = Runtime::spawn(RuntimeOptions::from(config).pool(pool).model("echo", model())).await.unwrap();
    let session = other.open(SessionSpec::new(tenant("acme")).without_skills()).await.unwrap();
    say(&session, "bash_tool true").await;
    until("the other's spares are ready", || other.pools()[0].ready == 2).await;
    check(&of_pool("conjure_pool_ready", ""), 3.0);
    check(r#"conjure_admission_admitted{gate="the sandboxes"}"#, 2.0);
    other.shutdown(soon()).await.unwrap();
    check(&of_pool("conjure_pool_ready", ""), 1.0);
    check(r#"conjure_admission_admitted{gate="the sandboxes"}"#, 1.0);

    runtime.shutdown(soon()).await.unwrap();
    check(r#"conjure_sessions_live{tenant="acme"}"#, 0.0);
    check(r#"conjure_sessions_live{tenant="globex"}"#, 0.0);
    check(r#"conjure_admission_admitted{gate="the sandboxes"}"#, 0.0);
    check(&of_pool("conjure_pool_ready", ""), 0.0);
    check(&of_pool("conjure_pool_starting", ""), 0.0);
}
