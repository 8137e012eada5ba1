//! What a runtime counts, for Prometheus: `GET /metrics`. The library counts by the `metrics` facade; which recorder keeps that is
//! the host's choice, made before the runtime is spawned.
//!
//! ```text
//! cargo run -p examples --example prometheus                 # lets two tenants talk, prints what was counted, and ends
//! cargo run -p examples --example prometheus 127.0.0.1:9464  # serves
//! ```
//!
//! A runtime with warm pools (`RuntimeOptions::pool`) reports them as well: `conjure_pool_claims_total` by `outcome` gives their hit rate.
//!
//! Labels have few values: only the first tenants have series of their own (`MetricsOptions::tenants`), all others are `other`.

use std::error::Error;
use std::future::IntoFuture as _;
use std::io::Write as _;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use conjure::metrics::{MetricsOptions, names};
use conjure::model::parse_response;
use conjure::tool::{CallConcurrency, CallTraits};
use conjure::{
    Clock as _, Config, Request, Runtime, RuntimeOptions, SessionSpec, SystemClock, TenantId, ToolDefinition,
    ToolOutput, model_fn, tool_fn,
};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;

/// Asks a tool once, and answers.
async fn answer(request: Request) -> Result<conjure::Response, conjure::ModelError> {
    let body = match request.call {
        1 => serde_json::json!({
            "stop_reason": "tool_use", "usage": {"input_tokens": 12, "output_tokens": 5},
            "content": [{"type": "tool_use", "id": format!("toolu_{}", request.messages.len()), "name": "clock", "input": {}}],
        }),
        _ => serde_json::json!({
            "stop_reason": "end_turn", "usage": {"input_tokens": 30, "output_tokens": 7},
            "content": [{"type": "text", "text": "It is late."}],
        }),
    };
    Ok(parse_response(&body.to_string()).unwrap_or_else(|error| unreachable!("it is an answer: {error}")))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    names::describe();
    let clock = ToolDefinition {
        name: "clock".to_owned(),
        description: "The time of the day.".to_owned(),
        input_schema: serde_json::json!({"type": "object", "properties": {}}),
    };
    let traits = CallTraits { concurrency: CallConcurrency::Shared, idempotent: true };
    let clock = tool_fn(clock, traits, |_, _| async { ToolOutput::text("23:59") });
    let options = RuntimeOptions::from(Config::default())
        .model("clockwatcher", model_fn(answer))
        .tool(clock)
        .metrics(MetricsOptions { tenants: 1, ..MetricsOptions::default() });
    let runtime = Runtime::spawn(options).await?;
    for tenant in ["acme", "globex", "initech"] {
        let session = runtime.open(SessionSpec::new(TenantId::new(tenant)?).without_skills()).await?;
        session.send("What time is it?").await?.end().await?;
    }

    if let Some(address) = std::env::args().nth(1) {
        let kept = prometheus.clone();
        let router = Router::new().route("/metrics", get(move || async move { kept.render() }));
        let listener = TcpListener::bind(address).await?;
        writeln!(std::io::stdout(), "http://{}/metrics", listener.local_addr()?)?;
        tokio::select! {
            served = axum::serve(listener, router).into_future() => served?,
            interrupted = tokio::signal::ctrl_c() => interrupted?,
        }
    } else {
        let page = prometheus.render();
        for line in page.lines().filter(|line| !line.contains("duration") && !line.is_empty()) {
            writeln!(std::io::stdout(), "{line}")?;
        }
        assert!(page.contains(r#"conjure_turns_total{tenant="acme",stop="answered"} 1"#), "{page}");
        assert!(page.contains(r#"conjure_turns_total{tenant="other",stop="answered"} 2"#), "{page}");
    }
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
    Ok(())
}
