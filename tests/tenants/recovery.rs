//! Calls of the model that are broken off: a tenant that never lets one end spends all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conjure::conversation::{Limit, TurnStop};
use conjure::model::{ModelErrorKind, ModelEvent, ModelStream};
use conjure::tenant::{CostLimit, Period, Price, Quota};
use conjure::{
    Model, ModelError, Request, Runtime, Session, SessionError, TenantPolicy, TurnEvent, TurnHandle, Update,
    Usage,
};
use futures_util::{StreamExt as _, stream};

use crate::fixture::{Host, budget, follow, soon, spec, tenant};

/// What the service says when it begins to answer, and how many bytes it then says.
const INPUT: u64 = 4_000;
const BYTES: usize = 4_000;
/// What a call that is broken off then is charged for: a token for each four bytes.
const BROKEN_OFF: u64 = INPUT + 1_000;

/// Begins to answer, and never ends; said `fail`, it fails at once; said `break`, when it has begun. It counts its calls.
#[derive(Default)]
struct Endless {
    calls: Arc<AtomicUsize>,
}

impl Model for Endless {
    fn stream(&self, request: Request) -> ModelStream {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let asked = request.messages.last().unwrap().text();
        // Behind what was not answered.
        let asked = asked.lines().last().unwrap_or_default();
        let failed = || Err(ModelError::new(ModelErrorKind::Truncated, "the test ended it"));
        let used = Usage { input_tokens: INPUT, output_tokens: 1, ..Usage::default() };
        let text = ModelEvent::TextDelta { index: 0, text: "x".repeat(BYTES) };
        let begun = [ModelEvent::Sent, ModelEvent::UsageReported(used), ModelEvent::Started, text].map(Ok);
        match asked {
            "fail" => stream::iter([Ok(ModelEvent::Sent), failed()]).boxed(),
            "break" => stream::iter(begun).chain(stream::iter([failed()])).boxed(),
            _ => stream::iter(begun).chain(stream::pending()).boxed(),
        }
    }
}

async fn start(host: &Host, policy: TenantPolicy) -> (Runtime, Arc<AtomicUsize>) {
    let model = Endless::default();
    let calls = Arc::clone(&model.calls);
    let options = host.options().model("endless", model).default_model("endless");
    (host.start(options.tenant(tenant("acme"), policy)).await, calls)
}

async fn spent(runtime: &Runtime, quota: Quota) -> u64 {
    let usage = runtime.tenant(&tenant("acme")).await.unwrap().usage;
    assert_eq!((usage.reserved_tokens, usage.reserved_cost_micros), (0, 0), "nothing is under way");
    usage.spent.iter().find(|spent| spent.quota == quota).unwrap().used
}

const TOKENS: Quota = Quota::Tokens(Period::Total);

/// The model has shown all that it will show.
async fn begun(turn: &mut TurnHandle) {
    loop {
        let event = turn.next().await.unwrap().unwrap();
        if let TurnEvent::Update(Update::Preview(ModelEvent::TextDelta { .. })) = event {
            return;
        }
    }
}

/// Says something, and interrupts the answer.
async fn interrupted(session: &Session) -> Result<(), SessionError> {
    let mut turn = session.send("go on").await?;
    begun(&mut turn).await;
    session.interrupt().await.unwrap();
    let (stop, _) = follow(&mut turn).await;
    assert_eq!(stop, TurnStop::Interrupted);
    Ok(())
}

#[tokio::test]
async fn a_tenant_that_interrupts_every_call_spends_its_budget() {
    let host = Host::new();
    let policy = || TenantPolicy::new().budget(budget().tokens(Period::Total, 3 * BROKEN_OFF + 2_000));
    let (runtime, calls) = start(&host, policy()).await;
    // In a session of its own each time, as in one.
    let first = runtime.open(spec("acme")).await.unwrap();
    interrupted(&first).await.unwrap();
    assert_eq!(spent(&runtime, TOKENS).await, BROKEN_OFF);
    interrupted(&first).await.unwrap();
    assert_eq!((spent(&runtime, TOKENS).await, calls.load(Ordering::SeqCst)), (2 * BROKEN_OFF, 2));
    let second = runtime.open(spec("acme")).await.unwrap();
    interrupted(&second).await.unwrap();
    let third = runtime.open(spec("acme")).await.unwrap();
    assert_eq!(spent(&runtime, TOKENS).await, 3 * BROKEN_OFF);
    // What little is left is less than what this asks for.
    let refused = third.send("x".repeat(9_000)).await.map(drop).unwrap_err();
    let SessionError::Quota(exceeded) = &refused else { panic!("{refused}") };
    assert_eq!(exceeded.quota, TOKENS);
    assert_eq!((spent(&runtime, TOKENS).await, calls.load(Ordering::SeqCst)), (3 * BROKEN_OFF, 3));
    runtime.shutdown(soon()).await.unwrap();
    // It is in the journal.
    let (runtime, _) = start(&host, policy()).await;
    assert_eq!(spent(&runtime, TOKENS).await, 3 * BROKEN_OFF);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_call_is_charged_though_its_session_is_deleted_under_it() {
    let host = Host::new();
    let (runtime, _) = start(&host, TenantPolicy::new()).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let mut turn = session.send("go on").await.unwrap();
    begun(&mut turn).await;
    runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!(spent(&runtime, TOKENS).await, BROKEN_OFF);
    // With the tenant goes what it has spent, also by calls that were under way.
    let session = runtime.open(spec("acme")).await.unwrap();
    let mut turn = session.send("go on").await.unwrap();
    begun(&mut turn).await;
    runtime.delete_tenant(&tenant("acme")).await.unwrap();
    assert_eq!(spent(&runtime, TOKENS).await, 0);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_call_is_charged_though_the_runtime_ends_under_it() {
    let host = Host::new();
    let (runtime, _) = start(&host, TenantPolicy::new()).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let mut turn = session.send("go on").await.unwrap();
    begun(&mut turn).await;
    runtime.shutdown(soon()).await.unwrap();
    // The turn goes on there, so only what was there before it can be told.
    let options = host.options().model("endless", Endless::default()).default_model("endless");
    let runtime = host.start(options).await;
    let usage = runtime.tenant(&tenant("acme")).await.unwrap().usage;
    let used = usage.spent.iter().find(|spent| spent.quota == TOKENS).unwrap().used;
    assert_eq!(used, BROKEN_OFF);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_call_that_fails_is_free_until_its_answer_has_begun() {
    let host = Host::new();
    // 4,000 tokens in at 2 dollars a million, and 1,000 out at 10.
    let money = CostLimit { micros: 1_000_000, price: Price { input: 2_000_000, output: 10_000_000 } };
    let policy = TenantPolicy::new().budget(budget().money(Period::Day, money));
    let (runtime, calls) = start(&host, policy).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let failed = async |words: &str| {
        let (stop, _) = follow(&mut session.send(words).await.unwrap()).await;
        assert!(matches!(stop, TurnStop::ModelFailed(_)), "{stop}");
        let money = spent(&runtime, Quota::Cost(Period::Day)).await;
        (spent(&runtime, TOKENS).await, money)
    };
    assert_eq!(failed("fail").await, (0, 0));
    assert_eq!(failed("break").await, (BROKEN_OFF, 8_000 + 10_000));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    runtime.shutdown(soon()).await.unwrap();
}

/// In mid-turn: the limit that ends it is the tenant's.
#[tokio::test]
async fn sessions_see_what_each_others_interrupted_calls_have_spent() {
    let host = Host::new();
    let policy =
        TenantPolicy::new().budget(budget().tokens(Period::Total, BROKEN_OFF).with_reserved_output(3_000));
    let (runtime, _) = start(&host, policy).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let other = runtime.open(spec("acme")).await.unwrap();
    let mut turn = session.send("go on").await.unwrap();
    begun(&mut turn).await;
    // Both do not fit at once, so it waits for what the first has reserved to come back.
    let mut waiting = other.send("me, too").await.unwrap();
    session.interrupt().await.unwrap();
    assert_eq!(follow(&mut turn).await.0, TurnStop::Interrupted);
    assert_eq!(follow(&mut waiting).await.0, TurnStop::Limit(Limit::TenantTokens));
    runtime.shutdown(soon()).await.unwrap();
}
