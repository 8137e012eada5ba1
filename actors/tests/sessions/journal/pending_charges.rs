//! What is owed for calls that left no event: it is charged whatever the journal, and the tenant, do in the meantime.

use conjure_actors::tenants::{Period, Quota};
use conjure_base::TenantId;
use conjure_conversation::TurnStop;
use conjure_journal::{Journal as _, MemoryJournal};

use crate::scenario::{Host, Scenario, key, options};
use crate::support::FailingJournal;

async fn host(journal: &FailingJournal) -> Host {
    Host::over(journal.mended_when_opened(), Scenario::default(), options("first")).await
}

async fn spent_budget(host: &Host) -> u64 {
    let standing = host.setting.accounts.status(&TenantId::new("acme").unwrap()).await.unwrap();
    assert_eq!(standing.reserved_tokens, 0);
    let total = |spent: &&conjure_actors::tenants::Spent| spent.quota == Quota::Tokens(Period::Total);
    standing.spent.iter().find(total).unwrap().used
}

#[tokio::test]
async fn a_rejected_append_is_charged_even_when_the_tenant_is_inactive() {
    let journal = FailingJournal::new(MemoryJournal::new());
    let host = host(&journal).await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    journal.refuse_charges(2);
    session.interrupt().await.unwrap();
    assert_eq!(turn.end().await, Ok(TurnStop::Interrupted));
    session.close().await.unwrap();
    while host.trees() > 0 {
        tokio::task::yield_now().await;
    }
    drop(session);
    // The next caller submits it again; no other task has the account.
    host.setting.accounts.flush_pending();
    host.setting.accounts.flush_pending();
    // The message is a block of JSON, a token for each three bytes; what was shown is one token.
    let spent = spent_budget(&host).await;
    assert!((2..40).contains(&spent), "{spent}");
    host.shutdown().await;
}

#[tokio::test]
async fn a_response_that_the_journal_rejects_is_charged() {
    let inner = MemoryJournal::new();
    let journal = FailingJournal::new(inner.clone());
    let host = host(&journal).await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    inner.delete_session(&key(&session)).await.unwrap();
    host.scenario.open();
    turn.end().await.unwrap_err();
    assert_eq!(spent_budget(&host).await, 1, "as its answer says");
    host.shutdown().await;
}
