//! Admission gates: a caller that waits may be dropped at any time, and no permit is lost.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::admission::{AdmissionGate, AdmittedModel, Overloaded, Permit, Share};
use conjure_base::{Clock as _, Deadline, SystemClock, TenantId};
use conjure_conversation::scripted::{Script, ScriptFormat, ScriptedModel};
use conjure_conversation::{
    HostedSupport, Model, ModelErrorKind, ModelEvent, ModelStream, Request, SideEffects,
};
use futures_util::{FutureExt as _, StreamExt as _};

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

/// Asks, and does not wait.
fn ask(gate: &AdmissionGate, tenant: &TenantId) -> Option<Result<Permit, Overloaded>> {
    gate.admit(tenant, Deadline::NEVER).now_or_never()
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_is_admitted_when_a_permit_is_released() {
    let gate = AdmissionGate::new("the sandboxes", 1, Share::default());
    let tenant = tenant("acme");
    let first = gate.admit(&tenant, Deadline::NEVER).await.unwrap();
    let mut second = Box::pin(gate.admit(&tenant, Deadline::NEVER));
    assert!((&mut second).now_or_never().is_none());
    assert_eq!((gate.load().admitted, gate.load().waiting), (1, 1));
    drop(first);
    let second = second.await.unwrap();
    assert_eq!((second.tenant(), gate.load().waiting), (Some(&tenant), 0));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_request_gets_a_retry_time() {
    let gate = AdmissionGate::new("the sandboxes", 1, Share { waiting: 1, ..Share::default() });
    let tenant = tenant("acme");
    let permit = gate.admit(&tenant, Deadline::NEVER).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(permit);
    let _permit = gate.admit(&tenant, Deadline::NEVER).await.unwrap();
    let waiting = gate.admit(&tenant, SystemClock.deadline(Duration::from_secs(9)));
    let (timed_out, refused) = tokio::join!(waiting, gate.admit(&tenant, Deadline::NEVER));
    let refused = refused.unwrap_err();
    assert_eq!(refused.retry_after, Some(Duration::from_secs(4)), "two rounds of the last duration");
    assert_eq!(
        refused.to_string(),
        "the sandboxes of the tenant `acme` are 1, and 1 more wait: try again in 4000 ms"
    );
    assert!(timed_out.unwrap_err().retry_after.is_some());
    assert_eq!(gate.load().waiting, 0, "who was there too long does not wait any more");

    gate.set_share(&tenant, Some(Share { admitted: 0, ..Share::default() }));
    let error = gate.admit(&tenant, Deadline::NEVER).await.unwrap_err();
    assert_eq!(error.retry_after, None);
    assert!(error.to_string().ends_with("the tenant's limit is zero"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn shares_and_capacity_change_at_work() {
    let gate = AdmissionGate::new("the sandboxes", 2, Share { admitted: 1, ..Share::default() });
    let (one, two) = (tenant("one"), tenant("two"));
    let permit = ask(&gate, &one).unwrap().unwrap();
    let mut more = Box::pin(gate.admit(&one, Deadline::NEVER));
    assert!((&mut more).now_or_never().is_none(), "its share is one");
    gate.set_share(&one, Some(Share { weight: NonZeroU32::MIN, admitted: 5, waiting: 5 }));
    let more = more.await.unwrap();
    let mut other = Box::pin(gate.admit(&two, Deadline::NEVER));
    assert!((&mut other).now_or_never().is_none());
    gate.set_capacity(3);
    let other = other.await.unwrap();
    gate.set_capacity(0);
    drop((permit, more, other));
    assert!(ask(&gate, &two).is_none());
    assert_eq!((gate.load().admitted, gate.load().waiting), (0, 0));
}

/// Many tasks request, await, abandon and release permits concurrently; in the end all permits are free.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_permit_is_lost_when_waiting_requests_are_dropped() {
    let gate = AdmissionGate::new("the sandboxes", 3, Share::default());
    let max = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0_u32..200 {
        let (gate, max) = (gate.clone(), Arc::clone(&max));
        tasks.spawn(async move {
            let tenant = tenant(["one", "two", "three"][number as usize % 3]);
            for round in 0..20 {
                let deadline =
                    SystemClock.deadline(Duration::from_micros(u64::from((number * 7 + round * 13) % 300)));
                if let Ok(permit) = gate.admit(&tenant, deadline).await {
                    max.fetch_max(gate.load().admitted, std::sync::atomic::Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    drop(permit);
                }
                // Polled once, and dropped.
                drop(ask(&gate, &tenant));
            }
        });
    }
    tasks.join_all().await;
    assert_eq!((gate.load().admitted, gate.load().waiting), (0, 0));
    assert!((1..=3).contains(&max.load(std::sync::atomic::Ordering::Relaxed)));
}

#[test]
fn an_admitted_model_reports_the_properties_of_its_model() {
    struct ModelWithSideEffects;
    impl Model for ModelWithSideEffects {
        fn stream(&self, _: Request) -> ModelStream {
            futures_util::stream::empty().boxed()
        }

        fn hosted_support(&self) -> HostedSupport {
            HostedSupport::Skills
        }

        fn side_effects(&self, _: &Request) -> SideEffects {
            SideEffects::Possible
        }
    }
    let gate = AdmissionGate::new("the model calls", 1, Share::default());
    let model = AdmittedModel::new(Arc::new(ModelWithSideEffects), gate, tenant("acme"), Duration::ZERO);
    assert_eq!(
        (model.side_effects(&request()), model.hosted_support()),
        (SideEffects::Possible, HostedSupport::Skills)
    );
}

fn request() -> Request {
    Request::new(Vec::new())
}

#[tokio::test(start_paused = true)]
async fn a_model_call_holds_its_permit_until_its_stream_ends() {
    let gate = AdmissionGate::new("the model calls", 1, Share::default());
    let script = "version: 1\nturns:\n- content: one\n- content: two\n- content: three\n";
    let model = Arc::new(ScriptedModel::new(Script::from_text(script, ScriptFormat::Yaml, "here").unwrap()));
    let patience = Duration::from_secs(5);
    let model = AdmittedModel::new(model, gate.clone(), tenant("acme"), patience);
    let mut first = model.stream(request());
    assert_eq!(gate.load().admitted, 0, "nothing happens before the first poll");
    first.next().await.unwrap().unwrap();
    let mut second = model.stream(request());
    let refused = second.next().await.unwrap().unwrap_err();
    assert_eq!(refused.kind, ModelErrorKind::Overloaded);
    assert!(refused.is_retryable() && refused.retry_after.is_some(), "{refused}");
    assert!(second.next().await.is_none());

    let (rest, third) = tokio::join!(
        async {
            let events: Vec<_> = first.collect().await;
            matches!(events.last(), Some(Ok(ModelEvent::Finished(_))))
        },
        model.stream(request()).collect::<Vec<_>>(),
    );
    assert!(rest && matches!(third.last(), Some(Ok(ModelEvent::Finished(_)))), "{third:?}");
    assert_eq!((gate.load().admitted, gate.load().waiting), (0, 0));
    // One that is dropped in the midst gives its place back, too.
    let mut dropped = model.stream(request());
    let _ = dropped.next().await;
    assert_eq!(gate.load().admitted, 1);
    drop(dropped);
    assert_eq!(gate.load().admitted, 0);
}
