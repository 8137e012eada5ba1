//! Capacity that tenants share: admission of sandbox starts and of model calls.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure::config::{ExecutorKind, PoolSettings};
use conjure::conversation::TurnStop;
use conjure::model::parse_response;
use conjure::runtime::{AdmissionGate, Share};
use conjure::sandbox::{CallOptions, SandboxErrorKind};
use conjure::{Request, Runtime, RuntimeOptions, Session, SessionSpec, Settings, TenantPolicy, model_fn};
use futures_util::future::{join, join_all};
use tokio::sync::Semaphore;

use crate::runtime::fixture::{Fixture, ask, follow, soon, tenant, until};

/// Where a call has time enough to wait for many others.
fn patient_fixture() -> Fixture {
    let settings = Settings { tool_timeout: Some(Duration::from_secs(300)), ..Settings::default() };
    Fixture::with(ExecutorKind::Jail, settings)
}

/// Far more sandboxes are asked for at once than there may be: they wait for each other, and each is had.
#[tokio::test]
async fn twenty_four_sandboxes_asked_for_at_once_are_started_four_at_a_time() {
    let fixture = patient_fixture();
    let gate = AdmissionGate::new("the sandboxes", 4, Share::default());
    let runtime = Runtime::spawn(fixture.options().sandbox_gate(gate.clone())).await.unwrap();
    let max = AtomicU32::new(0);
    let all = (0..24).map(|number| {
        let (runtime, gate, max) = (runtime.clone(), gate.clone(), &max);
        async move {
            let spec = SessionSpec::new(tenant(&format!("t{}", number % 7))).without_skills();
            let session = runtime.open(spec).await.unwrap();
            let answer = ask(&session, &format!("$ echo number {number}")).await;
            assert_eq!(answer, format!("it says: number {number}\n"));
            max.fetch_max(gate.load().admitted, Ordering::Relaxed);
            // Its sandbox goes with it.
            session.close().await.unwrap();
        }
    });
    join_all(all).await;
    assert_eq!(max.into_inner(), 4, "all that there may be, and no more");
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!((gate.load().admitted, gate.load().waiting), (0, 0));
}

/// Without a queue, the model is told that no sandbox is available, and the turn continues.
#[tokio::test]
async fn an_unavailable_sandbox_is_reported_to_the_model() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let gate = AdmissionGate::new("the sandboxes", 1, Share { waiting: 0, ..Share::default() });
    let runtime = Runtime::spawn(fixture.options().sandbox_gate(gate)).await.unwrap();
    let open = || runtime.open(SessionSpec::new(tenant("acme")).without_skills());
    let (first, second) = (open().await.unwrap(), open().await.unwrap());
    assert_eq!(ask(&first, "$ echo here").await, "it says: here\n");
    let answer = ask(&second, "$ echo here").await;
    assert!(
        answer.contains("the sandboxes of the tenant `acme` are 1, and 0 more wait: try again in"),
        "{answer}"
    );
    first.close().await.unwrap();
    until(async || ask(&second, "$ echo here").await.ends_with("it says: here\n")).await;
    runtime.shutdown(soon()).await.unwrap();
}

/// One tenant has ten calls queued when another tenant calls: the other tenant is next.
#[tokio::test]
async fn a_flood_of_model_calls_delays_only_its_tenant() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let (door, order) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let model = {
        let (door, order) = (Arc::clone(&door), Arc::clone(&order));
        model_fn(move |request: Request| {
            let (door, order) = (Arc::clone(&door), Arc::clone(&order));
            async move {
                door.acquire().await.unwrap().forget();
                order.lock().unwrap().push(request.messages.last().unwrap().text());
                Ok(parse_response(r#"{"content": [], "stop_reason": "end_turn"}"#).unwrap())
            }
        })
    };
    let gate = AdmissionGate::new("the model calls", 1, Share::default());
    let options = RuntimeOptions::from(fixture.config()).model("slow", model).model_gate(gate.clone());
    let runtime = Runtime::spawn(options).await.unwrap();
    let mut turns = Vec::new();
    for (number, whose) in ["flood"; 10].iter().chain(&["other"]).enumerate() {
        let session = runtime.open(SessionSpec::new(tenant(whose)).without_skills()).await.unwrap();
        turns.push(session.send(*whose).await.unwrap());
        until(async || usize::try_from(gate.load().admitted).unwrap() + gate.load().waiting > number).await;
    }
    door.add_permits(11);
    for mut turn in turns {
        assert!(matches!(follow(&mut turn).await.0, TurnStop::Answered(_)));
    }
    let order = order.lock().unwrap().clone();
    assert_eq!((order.len(), order[0].as_str(), order[1].as_str()), (11, "flood", "other"));
    runtime.shutdown(soon()).await.unwrap();
}

/// Has `each` sandboxes of both tenants made, all asked for before the first is begun: whose the first `of` were.
async fn first_started(runtime: &Runtime, sandboxes: &AdmissionGate, each: usize, of: usize) -> [usize; 2] {
    sandboxes.set_capacity(0);
    // When the sandbox's own first process began, in hundredths of a second.
    let start_time_command = "$ sed 's/.*) //' /proc/1/stat | cut -d' ' -f20";
    let all = (0..2 * each).map(async |number| {
        let whose = number % 2;
        let spec = SessionSpec::new(tenant(["heavy", "light"][whose])).without_skills();
        let session = runtime.open(spec).await.unwrap();
        let answer = ask(&session, start_time_command).await;
        session.close().await.unwrap();
        (answer.trim_start_matches("it says: ").trim().parse::<u64>().expect(&answer), whose)
    });
    let opening = async {
        until(async || sandboxes.load().waiting >= 2 * each).await;
        sandboxes.set_capacity(u32::MAX);
    };
    let (mut begun, ()) = join(join_all(all), opening).await;
    begun.sort_unstable();
    let light = begun.iter().take(of).filter(|(_, whose)| *whose == 1).count();
    [of - light, light]
}

/// Where sandboxes are started one after the other, those of a tenant of nine times the weight are begun nine times as often: as
/// policies say, also when they change at work, and no longer than they are in force.
#[tokio::test]
async fn starts_of_sandboxes_are_shared_by_the_weights_of_tenants() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = patient_fixture();
    let sandboxes = AdmissionGate::new("the sandboxes", 0, Share::default());
    let (heavy, light) = (tenant("heavy"), tenant("light"));
    let options = fixture
        .options()
        .sandbox_gate(sandboxes.clone())
        .tenant(heavy.clone(), TenantPolicy::new().weight(9))
        .pool(PoolSettings { starts_at_once: Some(1), ..PoolSettings::default() });
    let runtime = Runtime::spawn(options).await.unwrap();
    let first = async || first_started(&runtime, &sandboxes, 24, 20).await;
    let [of_heavy, of_light] = first().await;
    assert!(of_light <= 5, "{of_heavy} and {of_light} of the first");
    runtime.set_tenant(&light, TenantPolicy::new().weight(9)).unwrap();
    runtime.reset_tenant(&heavy).unwrap();
    let [of_heavy, of_light] = first().await;
    assert!(of_heavy <= 5, "{of_heavy} and {of_light} of the first");
    runtime.reset_tenant(&light).unwrap();
    let [of_heavy, of_light] = first().await;
    assert!(of_heavy.abs_diff(of_light) <= 4, "{of_heavy} and {of_light} of the first");
    runtime.shutdown(soon()).await.unwrap();
}

/// The embedder gets as a typed error what the model gets as text.
#[tokio::test]
async fn an_unavailable_sandbox_reports_a_retry_time() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let gate = AdmissionGate::new("the sandboxes", 1, Share { waiting: 0, ..Share::default() });
    let options =
        fixture.options().sandbox_gate(gate).tenant(tenant("none"), TenantPolicy::new().sandboxes(0));
    let runtime = Runtime::spawn(options).await.unwrap();
    let open = async |whose| runtime.open(SessionSpec::new(tenant(whose)).without_skills()).await.unwrap();
    let (first, second, never) = (open("acme").await, open("acme").await, open("none").await);
    ask(&first, "$ true").await;
    let list = async |session: &Session| {
        let executor = session.executor().await.unwrap();
        executor.list("/workspace", 1, 1, CallOptions::until(soon())).await.unwrap_err()
    };
    let refused = list(&second).await;
    assert_eq!(refused.kind(), SandboxErrorKind::Overloaded, "{refused}");
    let after = refused.retry_after().unwrap();
    assert!(refused.is_retryable() && refused.to_string().ends_with(&format!("{} ms", after.as_millis())));
    // The facade's error keeps the retry time.
    assert_eq!(conjure::Error::from(refused).retry_after(), Some(after));
    let refused = list(&never).await;
    assert_eq!((refused.kind(), refused.retry_after()), (SandboxErrorKind::Overloaded, None), "{refused}");
    assert!(!refused.is_retryable());
    runtime.shutdown(soon()).await.unwrap();
}
