//! Sessions, tenants, lists, and deleting.

use std::time::Duration;

use conjure_base::SessionId;

use super::fixture::{
    CaseResult, JournalFixture, bodies, ensure, ensure_eq, ensure_fails, new_session, notes, open_session,
    tenant,
};
use crate::error::JournalErrorKind;
use crate::event::PageLimit;
use crate::journal::Journal;
use crate::key::{Epoch, SessionKey};
use crate::lease::LeaseOwner;
use crate::session::Snapshot;

pub(crate) async fn a_session_is_created_once(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    ensure_fails(journal.create(&key).await, JournalErrorKind::Exists, "a second creation")?;
    let info = journal.session(&key).await?;
    ensure_eq((info.session, info.events, info.epoch), (key.session, 0, Epoch::NONE), "the session")?;
    ensure_eq((info.lease, info.snapshot), (None, None), "the lease and the snapshot")?;
    ensure(info.created.millis() > 0 && info.created == info.updated, "the times")?;
    ensure_eq(journal.snapshot(&key).await?, None, "the snapshot")
}

/// Checks that every call refuses a key without a session.
async fn everything_is_not_found(journal: &dyn Journal, key: &SessionKey) -> CaseResult {
    let kind = JournalErrorKind::NotFound;
    let (epoch, time) = (Epoch::NONE, Duration::from_secs(60));
    ensure_fails(journal.append(key, 0, epoch, notes(["a"])).await, kind, "append")?;
    ensure_fails(journal.read(key, 0, PageLimit::default()).await, kind, "load")?;
    let snapshot = Snapshot { seq: 0, version: 1, body: Vec::new() };
    ensure_fails(journal.save_snapshot(key, epoch, snapshot).await, kind, "save_snapshot")?;
    ensure_fails(journal.snapshot(key).await, kind, "snapshot")?;
    ensure_fails(journal.acquire_lease(key, &LeaseOwner::new("host")?, time).await, kind, "acquire")?;
    ensure_fails(journal.renew_lease(key, epoch, time).await, kind, "renew")?;
    ensure_fails(journal.release_lease(key, epoch).await, kind, "release")?;
    ensure_fails(journal.session(key).await, kind, "session")?;
    ensure_fails(journal.delete_session(key).await, kind, "delete_session")?;
    Ok(())
}

pub(crate) async fn a_session_of_another_tenant_is_not_found(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    let (acme, globex) = (tenant("acme")?, tenant("globex")?);
    let key = new_session(&*journal, &acme).await?;
    journal.append(&key, 0, Epoch::NONE, notes(["a"])).await?;
    // The session is not found under a tenant without sessions, nor under a tenant with sessions. An unknown id is not found
    // either.
    everything_is_not_found(&*journal, &SessionKey::new(globex.clone(), key.session)).await?;
    new_session(&*journal, &globex).await?;
    everything_is_not_found(&*journal, &SessionKey::new(globex, key.session)).await?;
    everything_is_not_found(&*journal, &SessionKey::new(acme, SessionId::random()?)).await?;
    ensure_eq(bodies(&*journal, &key).await?.concat(), "a".to_owned(), "the events")
}

pub(crate) async fn one_id_under_two_tenants_is_two_sessions(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    let one = new_session(&*journal, &tenant("acme")?).await?;
    let other = SessionKey::new(tenant("globex")?, one.session);
    journal.create(&other).await?;
    journal.append(&one, 0, Epoch::NONE, notes(["a", "b"])).await?;
    journal.append(&other, 0, Epoch::NONE, notes(["c"])).await?;
    ensure_eq(bodies(&*journal, &one).await?.concat(), "ab".to_owned(), "the events of one")?;
    journal.delete_session(&one).await?;
    journal.sweep().await?;
    everything_is_not_found(&*journal, &one).await?;
    ensure_eq(bodies(&*journal, &other).await?.concat(), "c".to_owned(), "the events of the other")
}

pub(crate) async fn lists_hold_each_session_once_newest_first(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    let (acme, globex) = (tenant("acme")?, tenant("globex")?);
    let mut expected = Vec::new();
    for number in 0..7 {
        let key = new_session(&*journal, &acme).await?;
        journal.append(&key, 0, Epoch::NONE, (0..number).flat_map(|_| notes(["a"])).collect()).await?;
        expected.insert(0, (key.session, number));
        new_session(&*journal, &globex).await?;
    }
    for limit in [1, 3, 7, 1_000, u32::MAX, 0] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = journal.sessions(&acme, after, limit).await?;
            ensure(page.sessions.len() <= limit.max(1) as usize, "a page has more than its limit")?;
            found.extend(page.sessions.into_iter().map(|info| (info.session, info.events)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        ensure_eq(&found, &expected, "the list")?;
    }
    // A session that is created or deleted between two pages does not move the others.
    let first = journal.sessions(&acme, None, 3).await?;
    new_session(&*journal, &acme).await?;
    journal.delete_session(&SessionKey::new(acme.clone(), expected[1].0)).await?;
    let second = journal.sessions(&acme, first.next, 3).await?;
    let found: Vec<SessionId> = second.sessions.iter().map(|info| info.session).collect();
    ensure_eq(found, expected[3..6].iter().map(|(session, _)| *session).collect(), "the second page")?;
    let sessions = journal.sessions(&tenant("nobody")?, None, 10).await?;
    ensure_eq((sessions.sessions.len(), sessions.next), (0, None), "the list of a tenant without sessions")
}

pub(crate) async fn tenants_are_listed_in_pages(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    ensure_eq(journal.tenants(None, 10).await?, Vec::new(), "no tenants")?;
    let mut expected = Vec::new();
    for name in ["a", "a-b", "a_b", "b", "zz"] {
        let tenant = tenant(name)?;
        new_session(&*journal, &tenant).await?;
        new_session(&*journal, &tenant).await?;
        expected.push(tenant);
    }
    ensure_eq(&journal.tenants(None, 1_000).await?, &expected, "all tenants")?;
    let mut found = Vec::new();
    loop {
        let page = journal.tenants(found.last(), 2).await?;
        if page.is_empty() {
            break;
        }
        ensure(page.len() <= 2, "a page has more than its limit")?;
        found.extend(page);
    }
    ensure_eq(found, expected, "the pages")
}

pub(crate) async fn a_deleted_session_is_removed_and_others_stay(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    let acme = tenant("acme")?;
    let (deleted, stays) = (new_session(&*journal, &acme).await?, new_session(&*journal, &acme).await?);
    let many: Vec<_> = (0..700).flat_map(|_| notes(["a", "b"])).collect();
    journal.append(&deleted, 0, Epoch::NONE, many).await?;
    journal.append(&stays, 0, Epoch::NONE, notes(["c"])).await?;
    journal.save_snapshot(&deleted, Epoch::NONE, Snapshot { seq: 1, version: 1, body: vec![1] }).await?;
    journal.delete_session(&deleted).await?;
    everything_is_not_found(&*journal, &deleted).await?;
    let listed = journal.sessions(&acme, None, 10).await?.sessions;
    ensure_eq(listed.len(), 1, "the list")?;
    journal.sweep().await?;
    ensure_eq(bodies(&*journal, &stays).await?.concat(), "c".to_owned(), "the other's events")?;
    // The id can be used again, and the new session is empty.
    journal.create(&deleted).await?;
    ensure_eq(bodies(&*journal, &deleted).await?.len(), 0, "the events")?;
    ensure_eq(journal.snapshot(&deleted).await?, None, "the snapshot")
}

pub(crate) async fn a_late_writer_does_not_recreate_a_deleted_session(
    fixture: &dyn JournalFixture,
) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    let lease = journal.acquire_lease(&key, &LeaseOwner::new("late")?, Duration::from_secs(3_600)).await?;
    journal.delete_session(&key).await?;
    let kind = JournalErrorKind::NotFound;
    ensure_fails(journal.append(&key, 0, lease.epoch, notes(["a"])).await, kind, "a late append")?;
    ensure_fails(
        journal.renew_lease(&key, lease.epoch, Duration::from_secs(1)).await,
        kind,
        "a late renewal",
    )?;
    everything_is_not_found(&*journal, &key).await
}

pub(crate) async fn a_session_used_in_the_meantime_is_not_deleted(
    fixture: &dyn JournalFixture,
) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    let event_count = journal.session(&key).await?.events;
    journal.append(&key, event_count, Epoch::NONE, notes(["a"])).await?;
    ensure_fails(
        journal.delete_if_unchanged(&key, event_count).await,
        JournalErrorKind::Conflict,
        "a late deletion",
    )?;
    ensure_eq(bodies(&*journal, &key).await?.concat(), "a".to_owned(), "its events")?;
    journal.delete_if_unchanged(&key, event_count + 1).await?;
    everything_is_not_found(&*journal, &key).await?;
    let kind = JournalErrorKind::NotFound;
    ensure_fails(journal.delete_if_unchanged(&key, event_count + 1).await, kind, "a second deletion")
        .map(drop)
}

pub(crate) async fn a_deleted_tenant_is_removed_and_others_stay(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    let (acme, globex) = (tenant("acme")?, tenant("globex")?);
    let stays = new_session(&*journal, &globex).await?;
    journal.append(&stays, 0, Epoch::NONE, notes(["a"])).await?;
    let mut deleted = Vec::new();
    for _ in 0..3 {
        let key = new_session(&*journal, &acme).await?;
        let event = crate::NewEvent::new("file", 1, vec![3; 200_000]);
        journal.append(&key, 0, Epoch::NONE, vec![event]).await?;
        deleted.push(key);
    }
    ensure_eq(journal.delete_tenant(&acme).await?, 3, "how many were deleted")?;
    ensure_eq(journal.delete_tenant(&acme).await?, 0, "how many were deleted again")?;
    for key in &deleted {
        everything_is_not_found(&*journal, key).await?;
    }
    ensure_eq(journal.tenants(None, 10).await?, vec![globex], "the tenants")?;
    journal.sweep().await?;
    ensure_eq(bodies(&*journal, &stays).await?.concat(), "a".to_owned(), "the other's events")
}
