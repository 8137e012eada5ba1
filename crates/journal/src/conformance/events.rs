//! Appending and loading.

use futures_util::future::{FutureExt as _, join_all};

use super::fixture::{
    CaseResult, JournalFixture, bodies, ensure, ensure_eq, ensure_fails, new_session, notes, open_session,
    tenant,
};
use crate::error::{JournalError, JournalErrorKind};
use crate::event::{MAX_KIND_BYTES, NewEvent, PageLimit};
use crate::journal::read_all;
use crate::key::Epoch;

pub(crate) async fn events_are_loaded_as_they_were_appended(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    let events = vec![
        NewEvent::new("empty", 0, Vec::new()),
        NewEvent::new("every byte", u32::MAX, (0..=255).collect()),
        NewEvent::new("Ünïcödé 🧶", 7, "ä\0b".as_bytes().to_vec()),
        NewEvent::new("k".repeat(MAX_KIND_BYTES), 1, vec![0; 5_000]),
    ];
    ensure_eq(journal.append(&key, 0, Epoch::NONE, events.clone()).await?, 4, "the count")?;
    let page = journal.read(&key, 0, PageLimit::default()).await?;
    ensure_eq(page.total, 4, "the total")?;
    ensure_eq(page.next(), None, "the next page")?;
    ensure_eq(page.events.len(), events.len(), "the events")?;
    for (recorded, event) in page.events.iter().zip(&events) {
        ensure_eq(recorded.kind.as_str(), event.kind.as_ref(), "a kind")?;
        ensure_eq(recorded.version, event.version, "a version")?;
        ensure_eq(&recorded.body, &event.body, "a body")?;
        ensure_eq(recorded.epoch, Epoch::NONE, "an epoch")?;
    }
    ensure_eq(read_all(&*journal, &key, 3).await?.as_slice(), &page.events[3..], "a later start")
}

pub(crate) async fn large_bodies_are_loaded_as_they_were_appended(
    fixture: &dyn JournalFixture,
) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    let large: Vec<u8> = (0_u32..300_000).flat_map(u32::to_le_bytes).collect();
    // The same content occurs twice in one session, and once more under another tenant.
    let events: Vec<NewEvent> = [&large[..], b"small", &large[..], &large[1..]]
        .map(|body| NewEvent::new("file", 1, body.to_vec()))
        .into();
    journal.append(&key, 0, Epoch::NONE, events.clone()).await?;
    let other = new_session(&*journal, &tenant("globex")?).await?;
    journal.append(&other, 0, Epoch::NONE, events[..1].to_vec()).await?;
    let loaded = read_all(&*journal, &key, 0).await?;
    for (recorded, event) in loaded.iter().zip(&events) {
        ensure(recorded.body == event.body, "a large body has changed")?;
    }
    ensure_eq(loaded.len(), events.len(), "the events")?;
    ensure(read_all(&*journal, &other, 0).await?[0].body == large, "another tenant's body has changed")
}

pub(crate) async fn an_append_must_meet_the_sequence(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    journal.append(&key, 0, Epoch::NONE, notes(["a", "b"])).await?;
    for expected in [0, 1, 3, u64::MAX] {
        let refused = journal.append(&key, expected, Epoch::NONE, notes(["c"])).await;
        ensure_eq(refused, Err(JournalError::Conflict { expected, found: 2 }), "another sequence")?;
    }
    ensure_eq(journal.append(&key, 2, Epoch::NONE, notes(["c"])).await?, 3, "the count")?;
    ensure_eq(bodies(&*journal, &key).await?.concat(), "abc".to_owned(), "the events")?;
    let missing = crate::SessionKey::new(key.tenant.clone(), conjure_base::SessionId::random()?);
    let kind = JournalErrorKind::NotFound;
    ensure_fails(journal.append(&missing, 0, Epoch::NONE, notes(["a"])).await, kind, "an append to nothing")?;
    ensure_fails(journal.read(&missing, 0, PageLimit::default()).await, kind, "a load of nothing")?;
    Ok(())
}

pub(crate) async fn an_append_is_whole_or_absent(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    let mut events = notes(["a", "b"]);
    events.push(NewEvent::new("k".repeat(MAX_KIND_BYTES + 1), 1, Vec::new()));
    ensure_fails(
        journal.append(&key, 0, Epoch::NONE, events).await,
        JournalErrorKind::Invalid,
        "a kind that is too long",
    )?;
    ensure_eq(journal.session(&key).await?.events, 0, "the events")?;
    ensure_eq(journal.append(&key, 0, Epoch::NONE, notes(["c"])).await?, 1, "the count")
}

pub(crate) async fn an_append_without_events_checks_only(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    ensure_eq(journal.append(&key, 0, Epoch::NONE, Vec::new()).await?, 0, "the count")?;
    let kind = JournalErrorKind::Conflict;
    ensure_fails(journal.append(&key, 1, Epoch::NONE, Vec::new()).await, kind, "another sequence")?;
    let kind = JournalErrorKind::StaleEpoch;
    ensure_fails(journal.append(&key, 0, Epoch::NONE.next(), Vec::new()).await, kind, "another epoch")?;
    Ok(())
}

pub(crate) async fn pages_hold_each_event_once(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    let events = (0..25_u8).map(|number| NewEvent::new("note", 1, vec![number; 100])).collect();
    journal.append(&key, 0, Epoch::NONE, events).await?;
    // Pages limited by count, by bytes, and by limits that no event fits; the last have one event each.
    for (events, bytes, per_page) in [(10, usize::MAX, 10), (1_000, 450, 4), (1_000, 1, 1), (0, 0, 1)] {
        let limit = PageLimit { events, bytes };
        let (mut next, mut seen) = (Some(0), 0_u64);
        while let Some(from) = next {
            let page = journal.read(&key, from, limit).await?;
            ensure(page.events.len() <= per_page, "a page has more than its limit")?;
            for event in &page.events {
                ensure_eq(event.seq, seen, "a sequence number")?;
                ensure_eq(event.body.first().copied().map(u64::from), Some(seen), "a body")?;
                seen += 1;
            }
            next = page.next();
        }
        ensure_eq(seen, 25, "the events of all pages")?;
    }
    for from in [25, 26, u64::MAX] {
        let page = journal.read(&key, from, PageLimit::default()).await?;
        ensure_eq((page.events.len(), page.total, page.next()), (0, 25, None), "a page beyond the end")?;
    }
    Ok(())
}

pub(crate) async fn appends_are_carried_out_in_the_order_of_their_submission(
    fixture: &dyn JournalFixture,
) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    let texts: Vec<String> = (0..20).map(|number| format!("{number},")).collect();
    let appends: Vec<_> = (0..)
        .zip(&texts)
        .map(|(seq, text)| journal.append(&key, seq, Epoch::NONE, notes([text.as_str()])))
        .collect();
    // Await the last append first.
    for append in appends.into_iter().rev() {
        append.await?;
    }
    ensure_eq(bodies(&*journal, &key).await?, texts, "the events")
}

pub(crate) async fn a_dropped_append_happened_or_not(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    let mut total = 0;
    for round in 0..20 {
        let mut append = journal.append(&key, total, Epoch::NONE, notes(["a", "b", "c"]));
        if round % 2 == 0 {
            // Poll it once, so that it may have started.
            let _ = (&mut append).now_or_never();
        }
        drop(append);
        // A later append finds the session before the dropped append, or after all of it.
        let found = journal.append(&key, total, Epoch::NONE, notes(["d"])).await;
        total += match found {
            Ok(_) => 1,
            Err(JournalError::Conflict { found, .. }) => {
                ensure_eq(found, total + 3, "how many a dropped append left")?;
                3
            }
            Err(error) => return Err(error.into()),
        };
    }
    let all = bodies(&*journal, &key).await?.concat();
    ensure_eq(all.len() as u64, total, "the events")?;
    ensure(all.replace("abc", "").chars().all(|event| event == 'd'), "an append was cut")
}

pub(crate) async fn of_many_writers_one_wins(fixture: &dyn JournalFixture) -> CaseResult {
    let journals = [fixture.open().await?, fixture.open().await?];
    let key = new_session(&*journals[0], &tenant("acme")?).await?;
    for seq in 0..10 {
        let appends = (0..8).map(|writer| {
            let text = format!("{writer}");
            journals[writer % 2].append(&key, seq, Epoch::NONE, notes([text.as_str()]))
        });
        let results = join_all(appends).await;
        let won: Vec<usize> = (0..8).filter(|writer| results[*writer].is_ok()).collect();
        ensure_eq(won.len(), 1, "how many writers won")?;
        for result in results.into_iter().filter(Result::is_err) {
            ensure_eq(
                result,
                Err(JournalError::Conflict { expected: seq, found: seq + 1 }),
                "a loser's error",
            )?;
        }
        ensure_eq(
            bodies(&*journals[1], &key).await?.last(),
            Some(&won[0].to_string()),
            "the winner's event",
        )?;
    }
    Ok(())
}

pub(crate) async fn acknowledged_events_are_present_after_reopening(
    fixture: &dyn JournalFixture,
) -> CaseResult {
    let acme = tenant("acme")?;
    let first = fixture.open().await?;
    let key = new_session(&*first, &acme).await?;
    let owner = crate::LeaseOwner::new("host")?;
    let lease = first.acquire_lease(&key, &owner, std::time::Duration::from_secs(3_600)).await?;
    let large = vec![7; 200_000];
    let mut events = notes(["a"]);
    events.push(NewEvent::new("file", 3, large.clone()));
    first.append(&key, 0, lease.epoch, events).await?;
    let snapshot = crate::Snapshot { seq: 1, version: 2, body: b"state".to_vec() };
    first.save_snapshot(&key, lease.epoch, snapshot.clone()).await?;
    let info = first.session(&key).await?;
    drop(first);

    let reopened = fixture.open().await?;
    let loaded = read_all(&*reopened, &key, 0).await?;
    ensure_eq(loaded.len(), 2, "the events")?;
    ensure(loaded[1].body == large, "the large body has changed")?;
    ensure_eq(loaded[1].epoch, lease.epoch, "the epoch")?;
    ensure_eq(reopened.snapshot(&key).await?, Some(snapshot), "the snapshot")?;
    ensure_eq(reopened.session(&key).await?, info, "the session")?;
    ensure_eq(reopened.append(&key, 2, lease.epoch, notes(["b"])).await?, 3, "the count")
}

pub(crate) async fn a_sweep_takes_nothing_that_is_needed(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    let acme = tenant("acme")?;
    let (retained, deleted) = (new_session(&*journal, &acme).await?, new_session(&*journal, &acme).await?);
    let large = |byte| vec![NewEvent::new("file", 1, vec![byte; 200_000])];
    // Both sessions have the first content. Only the deleted session has the second one.
    journal.append(&retained, 0, Epoch::NONE, large(1)).await?;
    journal.append(&deleted, 0, Epoch::NONE, large(1)).await?;
    journal.append(&deleted, 1, Epoch::NONE, large(2)).await?;
    journal.delete_session(&deleted).await?;
    journal.sweep().await?;
    ensure(read_all(&*journal, &retained, 0).await?[0].body == vec![1; 200_000], "a body has changed")?;
    // A collected body can be stored again.
    journal.append(&retained, 1, Epoch::NONE, large(2)).await?;
    ensure(read_all(&*journal, &retained, 1).await?[0].body == vec![2; 200_000], "a body has changed")
}
