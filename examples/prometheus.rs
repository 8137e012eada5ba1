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
use conjure::model::Usage;
use conjure::tool::{CallConcurrency, CallTraits};
use conjure::{
    Block, Clock as _, Config, Request, Response, Runtime, RuntimeOptions, SessionSpec, StopReason,
    SystemClock, TenantId, ToolDefinition, ToolOutput, model_fn, tool_fn,
};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;

/// The model: it calls a tool once, and then answers.
async fn answer(request: Request) -> Result<Response, conjure::ModelError> {
    let usage = |input_tokens, output_tokens| Usage { input_tokens, output_tokens, ..Usage::default() };
    Ok(match request.call {
        1 => {
            let id = format!("toolu_{}", request.messages.len());
            let call = Block::tool_use(id, "clock", &serde_json::json!({}));
            Response { usage: usage(12, 5), ..Response::new(vec![call], StopReason::ToolUse) }
        }
        _ => Response { usage: usage(30, 7), ..Response::text("It is late.") },
    })
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
