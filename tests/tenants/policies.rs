//! What else a policy says: models, secrets, limits, floors.

use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::conversation::{Limit, TurnStop};
use conjure::model::parse_response;
use conjure::sandbox::{Boundary, Isolation};
use conjure::{Limits, RuntimeError, TenantPolicy, model_fn};

use crate::fixture::{Host, ask, say, soon, spec, tenant};

#[tokio::test]
async fn a_tenant_has_models_limits_and_secrets_of_its_own() {
    let host = Host::new();
    let own = model_fn(|_| async {
        Ok(parse_response(r#"{"content": [{"type": "text", "text": "mine"}], "stop_reason": "end_turn"}"#)
            .unwrap())
    });
    let limits = Limits { model_calls: 1, ..Limits::default() };
    let policy = TenantPolicy::new()
        .model("own", own)
        .environment("REGION", "north")
        .environment("API_TOKEN", "hunter2-of-acme")
        .secret("CRM_KEY", "tenant-canary")
        .limits(limits);
    let runtime = host.start(host.options().tenant(tenant("acme"), policy)).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    assert_eq!(ask(&session, "hello").await, "mine");
    // The host's is there by its name.
    let session = runtime.open(spec("acme").model("echo")).await.unwrap();
    let (stop, _) = say(&session, "$ echo $REGION $API_TOKEN tenant-''canary > seen; cat seen").await;
    assert_eq!(stop, TurnStop::Limit(Limit::ModelCalls));
    let seen = runtime.workspace(&tenant("acme"), session.id()).await.unwrap().unwrap().join("seen");
    assert_eq!(std::fs::read_to_string(seen).unwrap(), "north hunter2-of-acme tenant-canary\n");
    let told = format!("{:?}", runtime.events(&tenant("acme"), session.id(), 0).await.unwrap());
    assert!(told.contains("north"), "{told}");
    assert!(!told.contains("hunter2-of-acme") && !told.contains("tenant-canary"), "{told}");
    // Another tenant has none of it.
    let other = runtime.open(spec("globex")).await.unwrap();
    assert_eq!(ask(&other, "$ echo [$REGION$API_TOKEN]").await, "it says: []\n");
    let error = runtime.open(spec("globex").model("own")).await.map(drop).unwrap_err();
    assert!(
        matches!(&error, RuntimeError::UnknownModel { available, .. } if available == &["echo"]),
        "{error}"
    );

    // A secret that is named later is concealed at once.
    let listened = runtime.open(spec("globex")).await.unwrap();
    runtime.set_tenant(&tenant("globex"), TenantPolicy::new().secret("KEY", "late-canary")).unwrap();
    assert!(!ask(&listened, "late-canary").await.contains("late-canary"));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_tenants_floor_is_laid_over_the_embedders_and_idle_sessions_are_passivated() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let host = Host::of(ExecutorKind::Local);
    let floor = Isolation { filesystem: Boundary::Enforced, ..Isolation::NONE };
    let policy = TenantPolicy::new().floor(floor).idle_after(Duration::from_millis(1));
    let runtime = host.start(host.options().tenant(tenant("acme"), policy)).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let told = ask(&session, "$ echo here").await;
    assert!(told.contains("cannot enforce") && told.contains("filesystem"), "{told}");
    let session = runtime.open(spec("acme").sandbox("jail")).await.unwrap();
    assert_eq!(ask(&session, "$ echo here").await, "it says: here\n");
    while runtime.tenant(&tenant("acme")).await.unwrap().usage.live_sessions > 0 {
        tokio::task::yield_now().await;
    }
    let other = runtime.open(spec("globex")).await.unwrap();
    assert_eq!(ask(&other, "$ echo here").await, "it says: here\n");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_policy_that_cannot_be_kept_is_refused_and_the_one_before_stays() {
    let host = Host::new();
    let runtime = host.start(host.options()).await;
    let acme = tenant("acme");
    runtime.set_tenant(&acme, TenantPolicy::new().live_sessions(0)).unwrap();
    let list = conjure::sandbox::NetworkPolicy::Limited(vec!["https://no/list".to_owned()]);
    assert!(runtime.set_tenant(&acme, TenantPolicy::new().network(list)).is_err());
    assert!(matches!(runtime.open(spec("acme")).await, Err(RuntimeError::Quota(_))));
    runtime.reset_tenant(&acme).unwrap();
    runtime.open(spec("acme")).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
}
