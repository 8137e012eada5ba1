//! The event log of a session in the journal, in memory and in SQLite: recorded events are kept, and only one writer at a time can
//! append.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_actors::journal::JournalHandle;
use conjure_actors::session::{EVENT_KIND, JournalEventLog};
use conjure_base::SystemClock;
use conjure_conversation::{
    Block, CommandKind, Conversation, EventLog, EventLogError, Limits, SessionProfile, SubmitError,
};
use conjure_journal::{Epoch, Journal, JournalError, LeaseOwner, NewEvent, SessionKey};

use crate::support::{SECOND, TempDisk, journal_tree, memory, of, session, soon};

async fn acquire(access: &JournalHandle, key: &SessionKey, owner: &str) -> Epoch {
    let owner = LeaseOwner::new(owner).unwrap();
    access.journal().await.unwrap().acquire_lease(key, &owner, SECOND * 600).await.unwrap().epoch
}

async fn load(event_log: &JournalEventLog) -> Result<Conversation, EventLogError> {
    Conversation::load(Arc::new(event_log.clone()), Arc::new(SystemClock), Arc::new(())).await
}

fn queue(text: &str) -> CommandKind {
    CommandKind::Queue { input: vec![Block::text(text)], limits: None }
}

/// Open, say something, take over: the same for every journal.
async fn check(access: JournalHandle) {
    let key = session(&access).await;
    let epoch = acquire(&access, &key, "first").await;
    let event_log = JournalEventLog::new(access.clone(), Arc::clone(&key), epoch);
    let mut first = load(&event_log).await.unwrap();
    let profile = SessionProfile { base_prompt: "Be brief.".to_owned(), ..SessionProfile::default() };
    first.submit(CommandKind::Open { profile: Box::new(profile) }).await.unwrap();
    // More than one page of events.
    let limits = Limits::default();
    for number in 0..300 {
        first.submit(queue(&format!("message {number}"))).await.unwrap();
        first.submit(CommandKind::StartQueued { limits: limits.clone() }).await.unwrap();
        let cause = conjure_conversation::InterruptCause::Cancelled;
        first.submit(CommandKind::Interrupt { cause }).await.unwrap();
    }
    let reopened = load(&event_log).await.unwrap();
    assert_eq!(reopened.state(), first.state());
    assert_eq!(reopened.seq(), 901);

    // Two writers of one epoch: the one that is behind is refused, reads, and continues.
    let mut behind = reopened;
    first.submit(queue("one more")).await.unwrap();
    let conflict = EventLogError::Conflict { expected: 901, found: 902 };
    assert_eq!(behind.submit(queue("late")).await, Err(SubmitError::EventLog(conflict)));
    behind.submit(queue("late")).await.unwrap();
    assert_eq!(behind.seq(), 903);

    // A takeover: the previous owner cannot append any more, however often it tries.
    access.journal().await.unwrap().release_lease(&key, epoch).await.unwrap();
    let epoch = acquire(&access, &key, "second").await;
    let mut second = load(&JournalEventLog::new(access.clone(), Arc::clone(&key), epoch)).await.unwrap();
    for _ in 0..2 {
        let refused = behind.submit(queue("too late")).await;
        assert!(matches!(refused, Err(SubmitError::EventLog(EventLogError::Fenced { .. }))), "{refused:?}");
    }
    second.submit(queue("mine")).await.unwrap();
    assert_eq!(second.seq(), 904);

    // Foreign content in the journal is reported as such.
    let journal = access.journal().await.unwrap();
    let other = NewEvent::new("other", 1, Vec::new());
    journal.append(&key, 904, epoch, vec![other]).await.unwrap();
    let error = event_log.load().await.unwrap_err().to_string();
    let expected =
        format!("the event 904 of the session {key} cannot be read: its kind is `other`, not `conversation`");
    assert!(error.contains(&expected), "{error}");
    let page = journal.read(&key, 0, conjure_journal::PageLimit::default()).await.unwrap();
    assert!(page.events.iter().all(|event| event.kind == EVENT_KIND));
}

#[tokio::test]
async fn a_conversation_works_with_a_journal_in_memory() {
    let (root, access) = journal_tree(memory()).await;
    check(access).await;
    root.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_conversation_works_with_a_journal_in_sqlite() {
    let disk = TempDisk::new();
    let (root, access) = journal_tree(disk.sqlite()).await;
    check(access).await;
    root.shutdown(soon()).await.unwrap();
}

/// A journal that is lost at the next append is opened again, and the session continues over the new one.
#[tokio::test]
async fn a_failed_journal_is_reopened() {
    let inner = conjure_journal::MemoryJournal::new();
    let opened = Arc::new(AtomicU64::new(0));
    let open: Arc<conjure_actors::journal::OpenJournal> = {
        let (inner, opened) = (inner.clone(), Arc::clone(&opened));
        Arc::new(move || {
            let number = opened.fetch_add(1, Ordering::Relaxed);
            let inner = inner.clone();
            Box::pin(async move {
                let journal = crate::support::FailingJournal::new(inner);
                if number == 0 {
                    journal.lose_after(2);
                }
                Ok(Arc::new(journal) as Arc<dyn Journal>)
            })
        })
    };
    let (root, access) = journal_tree(open).await;
    let key = session(&access).await;
    let event_log = JournalEventLog::new(access.clone(), key, Epoch::NONE);
    let mut conversation = load(&event_log).await.unwrap();
    for _ in 0..2 {
        conversation.submit(queue("kept")).await.unwrap();
    }
    let lost = conversation.submit(queue("lost")).await;
    let Err(SubmitError::EventLog(EventLogError::Failed { reason })) = lost else { panic!("{lost:?}") };
    assert!(reason.contains("open the journal again"), "{reason}");
    // The next call waits for the new one.
    while opened.load(Ordering::Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    conversation.submit(queue("kept too")).await.unwrap();
    assert_eq!(conversation.state().queue().len(), 3);
    root.shutdown(soon()).await.unwrap();
    assert!(!access.is_open());
}

#[tokio::test(start_paused = true)]
async fn without_a_journal_a_call_waits_and_then_fails() {
    let open: Arc<conjure_actors::journal::OpenJournal> = Arc::new(|| Box::pin(std::future::pending()));
    let (_spec, access) = conjure_actors::journal::journal_actor(open, SECOND * 3).unwrap();
    let key = Arc::new(SessionKey::new(
        conjure_base::TenantId::new("acme").unwrap(),
        conjure_base::SessionId::from_bits(1),
    ));
    let error = load(&JournalEventLog::new(access, key, Epoch::NONE)).await.unwrap_err();
    let reason = "the journal was not open within 3s".to_owned();
    assert_eq!(error, EventLogError::Failed { reason });
}

/// One of another tenant is not there.
#[tokio::test]
async fn a_session_of_another_tenant_is_not_found() {
    let journal = conjure_journal::MemoryJournal::new();
    let (root, access) = journal_tree(of(journal)).await;
    let key = session(&access).await;
    let other = SessionKey::new(conjure_base::TenantId::new("other").unwrap(), key.session);
    let error =
        load(&JournalEventLog::new(access.clone(), Arc::new(other.clone()), Epoch::NONE)).await.unwrap_err();
    let reason = JournalError::NotFound { session: other }.to_string();
    assert_eq!(error, EventLogError::Fenced { reason });
    root.shutdown(soon()).await.unwrap();
}
