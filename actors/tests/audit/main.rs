//! The audit log of a session: each call that ran or was denied is told of once, whatever ended it, and without secrets.

#![expect(clippy::unwrap_used, reason = "a test fails by panic")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use conjure_conversation::{Decision, Grant, GrantScope, TurnStop};
use test_support::OnEvent;

#[path = "../sessions/support.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
#[cfg(test)]
mod support;

#[path = "../sessions/scenario.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
#[cfg(test)]
mod scenario;

/// The fields of each event of the audit log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Fields>>>);

type Fields = BTreeMap<&'static str, String>;

impl Log {
    /// Fields recorded later: the turn, the tool, and the outcome.
    fn take(&self) -> Vec<String> {
        let mut lines: Vec<String> = std::mem::take(&mut *self.0.lock().unwrap())
            .into_iter()
            .map(|fields| match fields.get("rule") {
                Some(rule) => format!("{} {rule} granted", fields["turn"]),
                None => format!("{} {} {}", fields["turn"], fields["tool"], fields["outcome"]),
            })
            .collect();
        lines.sort();
        lines
    }
}

#[tokio::test]
async fn every_executed_or_denied_call_is_audited_once() {
    let log = Log::default();
    let told = log.clone();
    let collector = OnEvent::new(
        |target| target == "conjure::audit",
        move |fields| {
            let unquoted = |(name, value): (_, String)| (name, value.trim_matches('"').to_owned());
            told.0.lock().unwrap().push(fields.into_iter().map(unquoted).collect());
        },
    );
    tracing::subscriber::set_global_default(collector).unwrap();
    let disk = support::TempDisk::new();
    let host =
        scenario::Host::over(disk.sqlite(), scenario::Scenario::default(), scenario::options("host")).await;
    let session = host.open().await;

    // Well, by a panic, and under a name that the model must not tell.
    let turn = session.send("call note panic s3cr3t-value").await.unwrap();
    assert_eq!(turn.end().await, Ok(scenario::answered()));
    let first = log.0.lock().unwrap()[0].clone();
    let expected =
        ["tenant", "session", "turn", "call_id", "tool", "input", "sandbox", "began", "duration_ms"];
    for field in expected.iter().chain(&["outcome", "output_bytes"]) {
        assert!(first.contains_key(field), "{field} is missing: {first:?}");
    }
    let id = session.id().to_string();
    let values = ["tenant", "session", "input", "sandbox", "output_bytes"].map(|field| first[field].as_str());
    assert_eq!(values, ["acme", &id, "{}", "none", "9"], "{first:?}");
    let log_text = format!("{:?}", log.0.lock().unwrap());
    assert!(!log_text.contains("s3cr3t") && log_text.contains("[REDACTED:KEY]-0-2"), "{log_text}");
    assert_eq!(log.take(), ["1 [REDACTED:KEY] ok", "1 note ok", "1 panic crashed"]);

    // Denied by a user: it never ran, and is audited all the same.
    session.send("call ask").await.unwrap();
    let call = scenario::awaited_approval(&session).await;
    assert_eq!(log.take(), [""; 0]);
    let deny = Decision::Deny { reason: "no".to_owned() };
    let turn = session.send("and then").await.unwrap();
    session.decide(call, deny).await.unwrap();
    assert_eq!(turn.end().await, Ok(scenario::answered()));
    assert_eq!(log.take(), ["2 ask denied"]);

    // Approved for more than one call: the grant is audited first, and then the call.
    let turn = session.send("call ask").await.unwrap();
    let call = scenario::awaited_approval(&session).await;
    let grant = Grant { rule: "ask(s3cr3t-value:*)".to_owned(), scope: GrantScope::Session };
    session.decide(call, Decision::Grant { grant }).await.unwrap();
    assert_eq!(turn.end().await, Ok(scenario::answered()));
    assert_eq!(log.take(), ["4 ask ok", "4 ask([REDACTED:KEY]:*) granted"]);
    assert_eq!(session.snapshot().await.unwrap().grants[0].rule, "ask([REDACTED:KEY]:*)");

    // Interrupted.
    let turn = session.send("call door").await.unwrap();
    host.scenario.reached(1).await;
    session.interrupt().await.unwrap();
    assert_eq!(turn.end().await, Ok(TurnStop::Interrupted));
    assert_eq!(log.take(), ["5 door cancelled"]);

    // Else the model takes what comes next for the words of that call.
    assert_eq!(session.send("hm").await.unwrap().end().await, Ok(scenario::answered()));

    // The actor is killed while the call runs: the next incarnation audits it, once.
    let turn = session.send("call door note").await.unwrap();
    host.scenario.reached(2).await;
    session.kill();
    assert_eq!(turn.end().await, Ok(scenario::answered()));
    let lines = log.take();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], "7 door unknown");

    // The host is gone without an orderly end: told of by the next, with what must not leave left out.
    let turn = session.send("call door").await.unwrap();
    host.scenario.reached(3).await;
    let (scenario, key) = (host.scenario.clone(), scenario::key(&session));
    let _ = host.root.shutdown(support::now()).await;
    drop((turn, session, host));
    assert_eq!(log.take(), [""; 0]);
    scenario.open();
    let host = scenario::Host::over(disk.sqlite(), scenario, scenario::options("host")).await;
    let session = host.session(&key);
    session.attach().await.unwrap();
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(scenario::answered()));
    assert_eq!(log.take(), ["8 door unknown"]);
    host.shutdown().await;
    assert_eq!(log.take(), [""; 0]);
}
