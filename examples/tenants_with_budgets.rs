//! Two tenants with budgets of tokens: one uses its own up in the midst of a turn, the other does not notice. Raising the budget
//! lets the first go on with what waited.
//!
//! ```text
//! cargo run -p examples --example tenants_with_budgets
//! ```
//!
//! The model's words come from this file, and each of its answers says that it used 1,000 tokens.

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use conjure::conversation::{Limit, TurnStop};
use conjure::model::{BlockKind, Usage};
use conjure::tenant::{Budget, Period, Quota};
use conjure::tool::{CallConcurrency, CallTraits};
use conjure::{
    Block, Clock as _, Config, Request, Response, Runtime, RuntimeError, RuntimeOptions, SessionError,
    SessionSpec, StopReason, SystemClock, TenantId, TenantPolicy, Tool, ToolDefinition, ToolOutput,
    TurnEvent, TurnHandle, model_fn, tool_fn,
};
use tokio::sync::Semaphore;

/// The model: asked to count, it calls a tool again and again. Asked anything else, it answers.
fn answer(request: &Request) -> Response {
    let said = request.messages.last().and_then(|message| message.content.last()).map(Block::kind);
    let response = match said {
        Some(BlockKind::Text(text)) if text != "Count." => Response::text(format!("I heard: {text}")),
        _ => {
            let id = format!("toolu_{}", request.messages.len());
            Response::new(vec![Block::tool_use(id, "next", &serde_json::json!({}))], StopReason::ToolUse)
        }
    };
    Response { usage: Usage { input_tokens: 990, output_tokens: 10, ..Usage::default() }, ..response }
}

/// A tool that returns the next number, as soon as somebody listens.
fn next(listened_to: Arc<Semaphore>) -> impl Tool {
    let definition = ToolDefinition {
        name: "next".to_owned(),
        description: "The next number.".to_owned(),
        input_schema: serde_json::json!({"type": "object"}),
    };
    let traits = CallTraits { concurrency: CallConcurrency::Exclusive, idempotent: true };
    tool_fn(definition, traits, move |_, _| {
        let listened_to = Arc::clone(&listened_to);
        async move {
            let _permit = listened_to.acquire().await;
            ToolOutput::text("one more")
        }
    })
}

/// Follows a turn to its end.
async fn follow(turn: &mut TurnHandle) -> Result<TurnStop, SessionError> {
    loop {
        match turn.next().await {
            Some(Ok(TurnEvent::Ended { stop, .. })) => return Ok(stop),
            Some(event) => drop(event?),
            None => return Err(SessionError::Lost),
        }
    }
}

/// How many tokens a tenant has spent.
async fn spent(runtime: &Runtime, tenant: &TenantId) -> Result<u64, RuntimeError> {
    let usage = runtime.tenant(tenant).await?.usage;
    let total = usage.spent.iter().find(|spent| spent.quota == Quota::Tokens(Period::Total));
    Ok(total.map_or(0, |total| total.used))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    let [acme, globex] = [TenantId::new("acme")?, TenantId::new("globex")?];
    // Of an answer nothing is reserved before it is there: so each tenant may go beyond its budget by what one answer is.
    let tokens = |most| {
        TenantPolicy::new().budget(Budget::default().with_reserved_output(0).tokens(Period::Total, most))
    };
    let listened_to = Arc::new(Semaphore::new(0));
    let options = RuntimeOptions::from(Config::default())
        .model("counting", model_fn(|request| async move { Ok(answer(&request)) }))
        .tool(next(Arc::clone(&listened_to)))
        .tenant(acme.clone(), tokens(5_000))
        .tenant(globex.clone(), tokens(100_000));
    let runtime = Runtime::spawn(options).await?;
    let open = |tenant: &TenantId| runtime.open(SessionSpec::new(tenant.clone()).without_skills());
    let (first, second) = (open(&acme).await?, open(&globex).await?);

    // It would go on for ever. What is said meanwhile waits.
    let mut counting = first.send("Count.").await?;
    let mut waiting = first.send("And then?").await?;
    listened_to.add_permits(1);
    let stop = follow(&mut counting).await?;
    writeln!(out, "acme: {stop}, at {} tokens", spent(&runtime, &acme).await?)?;
    assert_eq!(stop, TurnStop::Limit(Limit::TenantTokens));
    // A new turn is refused, with what would help.
    match open(&acme).await?.send("Hello!").await {
        Err(error @ SessionError::Quota(_)) => writeln!(out, "acme: {error}")?,
        _ => return Err("it was not refused".into()),
    }

    let stop = follow(&mut second.send("Hello!").await?).await?;
    writeln!(out, "globex: {stop}, at {} tokens", spent(&runtime, &globex).await?)?;

    runtime.set_tenant(&acme, tokens(50_000))?;
    let stop = follow(&mut waiting).await?;
    writeln!(out, "acme, with more: {stop}")?;
    assert!(matches!(stop, TurnStop::Answered(_)));
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
    Ok(())
}
