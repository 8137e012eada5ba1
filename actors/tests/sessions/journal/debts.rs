//! What is owed for calls that left no event: it is charged whatever the journal, and the tenant, do meanwhile.

use conjure_actors::tenants::{Period, Quota};
use conjure_base::TenantId;
use conjure_conversation::TurnStop;
use conjure_journal::{Journal as _, MemoryJournal};

use crate::support::Faulty;
use crate::world::{Host, Stage, key, options};

async fn host(journal: &Faulty) -> Host {
    Host::over(journal.mended_when_opened(), Stage::default(), options("first")).await
}

async fn spent(host: &Host) -> u64 {
    let standing = host.setting.accounts.status(&TenantId::new("acme").unwrap()).await.unwrap();
    assert_eq!(standing.reserved_tokens, 0);
    let total = |spent: &&conjure_actors::tenants::Spent| spent.quota == Quota::Tokens(Period::Total);
    standing.spent.iter().find(total).unwrap().used
}

#[tokio::test]
async fn what_the_journal_refused_is_charged_though_the_tenant_has_left() {
    let journal = Faulty::new(MemoryJournal::new());
    let host = host(&journal).await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    host.stage.reached(1).await;
    journal.refuse_charges(2);
    session.interrupt().await.unwrap();
    assert_eq!(turn.end().await, Ok(TurnStop::Interrupted));
    session.close().await.unwrap();
    while host.trees() > 0 {
        tokio::task::yield_now().await;
    }
    drop(session);
    // Whoever comes by submits it again; nobody else has the account.
    host.setting.accounts.flush_pending();
    host.setting.accounts.flush_pending();
    // The message is a block of JSON, a token for each three bytes; what was shown is one token.
    let spent = spent(&host).await;
    assert!((2..40).contains(&spent), "{spent}");
    host.shutdown().await;
}

#[tokio::test]
async fn an_answer_that_the_journal_does_not_take_is_charged() {
    let inner = MemoryJournal::new();
    let journal = Faulty::new(inner.clone());
    let host = host(&journal).await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    host.stage.reached(1).await;
    inner.delete_session(&key(&session)).await.unwrap();
    host.stage.open();
    turn.end().await.unwrap_err();
    assert_eq!(spent(&host).await, 1, "as its answer says");
    host.shutdown().await;
}
