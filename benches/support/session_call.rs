//! The first tool call of a session as its model sees it: from the answer that asks for it to the request that has its result,
//! through a runtime with a pool. So the session, its executor, the gates and two durable events of the journal are in it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use conjure::config::{ExecutorKind, PoolSettings};
use conjure::conversation::TurnStop;
use conjure::model::BlockKind;
use conjure::{
    Block, Clock as _, Config, Message, ProcessEnv, Request, Response, Runtime, RuntimeOptions, SessionSpec,
    Settings, StopReason, SystemClock, TenantId, Usage, model_fn,
};

use crate::harness::Result;
use crate::times::Times;

/// What the model knows of the call that is under way.
#[derive(Default)]
struct Watch {
    asked: Option<Instant>,
    took: Option<Duration>,
}

/// This many first calls of `program` in jails, each in its own session, which finds a warm sandbox.
pub(crate) async fn in_jails(program: &'static str, (warm_up, rounds): (usize, usize)) -> Result<Times> {
    let dir = tempfile::tempdir()?;
    let settings = Settings {
        executor: Some(ExecutorKind::Jail),
        data: Some(dir.path().join("data")),
        skill_paths: Some(Vec::new()),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
    let watch = Arc::new(Mutex::new(Watch::default()));
    let watched = Arc::clone(&watch);
    let model = model_fn(move |request: Request| {
        let response = answer(&request, program, &watched);
        async move { Ok(response) }
    });
    let pool = PoolSettings { jail: Some(1), ..PoolSettings::default() };
    let runtime = Runtime::spawn(RuntimeOptions::from(config).model("caller", model).pool(pool)).await?;
    let mut times = Times::default();
    for round in 0..warm_up + rounds {
        while runtime.pools().iter().any(|pool| pool.ready == 0 || pool.running_starts > 0) {
            SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(1))).await;
        }
        let session = runtime.open(SessionSpec::new(TenantId::new("acme")?).without_skills()).await?;
        let stop = session.send("go").await?.end().await?;
        let TurnStop::Answered(_) = stop else {
            return Err(format!("the turn ended otherwise: {stop}").into());
        };
        session.close().await?;
        let took = watch.lock().unwrap_or_else(PoisonError::into_inner).took.take();
        if round >= warm_up {
            times.add(took.ok_or("the model saw no result")?);
        }
    }
    let missed: u64 = runtime.pools().iter().map(|pool| pool.misses).sum();
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(60))).await?;
    if missed > 0 { Err(format!("{missed} sessions found no spare").into()) } else { Ok(times) }
}

fn answer(request: &Request, program: &str, watch: &Mutex<Watch>) -> Response {
    let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
    let is_result = |block: &Block| matches!(block.kind(), BlockKind::ToolResult { is_error: false, .. });
    let has_result =
        request.messages.last().is_some_and(|last: &Arc<Message>| last.content.iter().any(is_result));
    let (content, stop_reason) = if has_result {
        watch.took = watch.asked.take().map(|asked| asked.elapsed());
        (Block::text("done"), StopReason::EndTurn)
    } else {
        let input = serde_json::json!({"command": program, "description": "as it was asked"});
        watch.asked = Some(Instant::now());
        (Block::tool_use("toolu_1", "bash_tool", &input), StopReason::ToolUse)
    };
    let usage = Usage { input_tokens: 1, output_tokens: 1, ..Usage::default() };
    Response { usage, ..Response::new(vec![content], stop_reason) }
}
