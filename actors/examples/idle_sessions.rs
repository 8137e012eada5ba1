//! What an idle session costs: memory of the process for each session that is live and does nothing.
//!
//! `cargo run --release -p conjure-actors --example idle_sessions [SESSIONS]`. Sessions are opened in one process, over a journal
//! in memory, with a model and no tools; each has had one turn, and its handle is dropped. `journal` is what their records take
//! in that journal, measured by the same events without sessions; it is not part of `session`.

#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::error::Error;
use std::sync::Arc;

use conjure_actors::journal::OpenJournal;
use conjure_actors::runtime::{NewSession, SessionRuntime, TreeOptions};
use conjure_actors::session::{EVENT_KIND, SessionComponents, SessionFactory, SessionSetup};
use conjure_actors::supervision::Failure;
use conjure_base::{Clock, Redactor, SessionId, SystemClock, TenantId};
use conjure_conversation::{
    Authorization, CallConcurrency, CallContext, CallTraits, Composer, EVENT_FORMAT, Model, PromptPrefix,
    Request, SessionView, ToolCall, ToolResult, ToolRunOutcome, ToolRunner, model_fn, parse_response,
};
use conjure_journal::{Epoch, Journal, LeaseOwner, MemoryJournal, NewEvent, PageLimit, SessionKey};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// All of them have the same, as those of a host have.
struct Parts {
    model: Arc<dyn Model>,
    composer: Arc<dyn Composer>,
}

struct NoTools;

impl ToolRunner for NoTools {
    fn traits(&self, _: &ToolCall) -> CallTraits {
        CallTraits { concurrency: CallConcurrency::Shared, idempotent: true }
    }

    fn authorize<'a>(&'a self, _: &'a ToolCall, _: &'a SessionView) -> BoxFuture<'a, Authorization> {
        std::future::ready(Authorization::Allow).boxed()
    }

    fn run<'a>(&'a self, call: &'a ToolCall, _: CallContext) -> BoxFuture<'a, ToolRunOutcome> {
        std::future::ready(ToolResult::error(&call.id, "there are no tools").into()).boxed()
    }
}

impl SessionFactory for Parts {
    fn build<'a>(
        &'a self,
        _: SessionSetup<'a>,
    ) -> BoxFuture<'a, std::result::Result<SessionComponents, Failure>> {
        let parts = SessionComponents {
            model: Arc::clone(&self.model),
            summarizer: None,
            composer: Arc::clone(&self.composer),
            tools: Arc::new(NoTools),
            redactor: Redactor::default(),
            executor: None,
            outputs: Vec::new(),
            artifacts: None,
            uploads: None,
            pre_call_hook: None,
        };
        std::future::ready(Ok(parts)).boxed()
    }
}

/// Bytes that the process has in memory.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}

#[tokio::main]
async fn main() -> Result<()> {
    let most: u64 = std::env::args().nth(1).map_or(Ok(10_000), |count| count.parse())?;
    let answer = parse_response(r#"{"content":[{"type":"text","text":"Four."}],"stop_reason":"end_turn"}"#)?;
    let model = model_fn(move |_: Request| std::future::ready(Ok(answer.clone())));
    let parts = Parts { model: Arc::new(model), composer: Arc::new(PromptPrefix::default()) };
    let journal = MemoryJournal::new();
    let opened = journal.clone();
    let open: Arc<OpenJournal> = Arc::new(move || {
        let journal: Arc<dyn Journal> = Arc::new(opened.clone());
        std::future::ready(Ok(journal)).boxed()
    });
    let tenant = TenantId::new("acme")?;
    let runtime =
        SessionRuntime::spawn(TreeOptions::new(open, Arc::new(parts), LeaseOwner::new("example")?)).await?;
    let mut last = None;
    let open_one = || async {
        let session = runtime.open(NewSession::new(tenant.clone())).await?;
        let id = session.id();
        session.send("What is two and two?").await?.end().await?;
        Ok::<_, Box<dyn Error>>(id)
    };
    for _ in 0..100 {
        last = Some(open_one().await?);
    }
    let key = SessionKey::new(tenant.clone(), last.ok_or("no session")?);
    let recorded = journal.read(&key, 0, PageLimit::default()).await?.events;
    let mut open_so_far = 0;
    let mut sessions = Vec::new();
    let before = resident()?;
    for count in [most / 10, most] {
        while open_so_far < count {
            open_one().await?;
            open_so_far += 1;
        }
        sessions.push((count, (resident()? - before) / count));
    }
    let before = resident()?;
    for _ in 0..most {
        let key = SessionKey::new(tenant.clone(), SessionId::random()?);
        journal.create(&key).await?;
        let events =
            recorded.iter().map(|event| NewEvent::new(EVENT_KIND, EVENT_FORMAT, event.body.to_vec()));
        journal.append(&key, 0, Epoch::NONE, events.collect()).await?;
    }
    let journal = (resident()? - before) / most;
    let health = runtime.health();
    println!(
        "live: {}, known: {}, journal: {journal} bytes each",
        health.live_sessions, health.known_sessions
    );
    for (count, bytes) in sessions {
        println!("sessions: {count}, session: {} bytes each", bytes.saturating_sub(journal));
    }
    runtime.shutdown(SystemClock.deadline(std::time::Duration::from_secs(60))).await?;
    Ok(())
}
