//! Every transition of supervision is a `tracing` event with tenant, session and incarnation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use conjure_actors::supervision::{Backoff, Root, Strategy, SupervisorSpec};
use conjure_base::{SessionId, TenantId};
use test_support::OnEvent;

#[path = "../it/support.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
#[cfg(test)]
mod support;

use support::*;

type Fields = BTreeMap<&'static str, String>;

#[test]
fn every_transition_is_an_event_with_tenant_session_and_incarnation() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    let collector = OnEvent::new(
        |target| target.starts_with("conjure_actors"),
        move |fields| told.lock().unwrap().push(Fields::from_iter(fields)),
    );
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    tracing::subscriber::with_default(collector, || {
        runtime.block_on(async {
            let log = Log::new();
            let backoff = Backoff::new(SECOND, SECOND, SECOND);
            let worker = probe("a", &log).backoff(backoff).session(SessionId::from_bits(7));
            let (spec, address) = worker.build();
            let spec = SupervisorSpec::ordered(id("root"), Strategy::OneForOne).child(spec).unwrap();
            let (spec, _) = spec.tenant(TenantId::new("acme").unwrap()).build();
            let root = Root::spawn(spec, soon()).await.unwrap();
            address.send(fail()).unwrap();
            log.until("start a#2").await;
            root.shutdown(soon()).await.unwrap();
        });
    });
    let events = events.lock().unwrap();
    let of_a: Vec<&Fields> =
        events.iter().filter(|event| event.get("actor").is_some_and(|actor| actor == "root/a")).collect();
    let session = SessionId::from_bits(7).to_string();
    for event in &of_a {
        assert_eq!(
            (event["tenant"].as_str(), event["session"].as_str()),
            ("acme", session.as_str()),
            "{event:?}"
        );
    }
    let story: Vec<(&str, &str)> = of_a
        .iter()
        .map(|event| {
            let what =
                event.get("status").or_else(|| event.get("exit")).unwrap_or(&event["message"]).as_str();
            (event["incarnation"].as_str(), what.split(" in ").next().unwrap())
        })
        .collect();
    let expected = [
        ("1", "starting"),
        ("1", "running"),
        ("1", "stopping"),
        ("1", "failed: told to fail"),
        ("1", "restarting"),
        ("2", "starting"),
        ("2", "running"),
        ("2", "stopping"),
        ("2", "shutdown"),
        ("2", "a child was removed"),
    ];
    assert_eq!(story, expected);
}
