//! The cases of the suite, and their fixture.

use std::error::Error;
use std::sync::Arc;

use conjure_base::{SessionId, TenantId};
use futures_util::future::BoxFuture;

use super::counters;
use super::events;
use super::leases;
use super::rows;
use super::sessions;
use super::snapshots;
use super::weights;
use crate::error::{JournalError, JournalErrorKind};
use crate::event::NewEvent;
use crate::journal::Journal;
use crate::key::SessionKey;

/// Why a case failed.
pub type CaseError = Box<dyn Error + Send + Sync>;

/// The result of a case.
pub type CaseResult = Result<(), CaseError>;

/// Creates a journal under test, which is empty at first.
pub trait JournalFixture: Send + Sync {
    /// Opens the journal, while others may have it open. It must have all acknowledged data.
    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Journal>, CaseError>>;
}

/// One requirement of a journal.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Tests a new journal.
    pub run: for<'a> fn(&'a dyn JournalFixture) -> BoxFuture<'a, CaseResult>,
}

macro_rules! cases {
    ($($module:ident::$name:ident),+ $(,)?) => {
        &[$(Case { name: stringify!($name), run: |fixture| Box::pin($module::$name(fixture)) }),+]
    };
}

/// All cases.
pub const CASES: &[Case] = cases![
    sessions::a_session_is_created_once,
    sessions::a_session_of_another_tenant_is_not_found,
    sessions::one_id_under_two_tenants_is_two_sessions,
    sessions::lists_hold_each_session_once_newest_first,
    sessions::tenants_are_listed_in_pages,
    sessions::a_deleted_session_is_removed_and_others_stay,
    sessions::a_session_used_in_the_meantime_is_not_deleted,
    sessions::a_late_writer_does_not_recreate_a_deleted_session,
    sessions::a_deleted_tenant_is_removed_and_others_stay,
    events::events_are_loaded_as_they_were_appended,
    events::large_bodies_are_loaded_as_they_were_appended,
    events::an_append_must_meet_the_sequence,
    events::an_append_is_whole_or_absent,
    events::an_append_without_events_checks_only,
    events::pages_hold_each_event_once,
    events::appends_are_carried_out_in_the_order_of_their_submission,
    events::a_dropped_append_happened_or_not,
    events::of_many_writers_one_wins,
    events::acknowledged_events_are_present_after_reopening,
    events::a_sweep_takes_nothing_that_is_needed,
    counters::counters_count_over_all_sessions_of_a_tenant,
    counters::a_failed_append_increments_nothing,
    counters::counters_of_many_writers_add_up,
    counters::counters_are_incremented_without_an_append,
    counters::counters_are_listed_and_deleted,
    counters::counters_stop_at_the_largest_count,
    counters::counters_are_deleted_with_their_tenant,
    counters::stored_bytes_are_counted_until_they_are_deleted,
    leases::a_lease_excludes_others_until_it_ends,
    leases::a_new_epoch_makes_the_old_one_stale,
    leases::an_owner_may_take_its_own_lease_again,
    leases::a_lease_is_renewed_by_its_epoch_only,
    leases::a_released_lease_is_free_and_its_epoch_stale,
    rows::a_row_is_stored_with_its_append,
    rows::sessions_are_listed_by_status_and_time,
    rows::running_sessions_of_all_tenants_are_found,
    snapshots::a_snapshot_replaces_the_one_before,
    snapshots::a_snapshot_needs_its_events_and_the_epoch,
    snapshots::a_large_snapshot_is_read_as_it_was,
    weights::all_calls_run_in_order_for_any_weights,
];

/// Runs all cases, each with a new journal.
///
/// # Errors
/// A line for each case that failed.
pub async fn run<B: JournalFixture>(new_fixture: impl Fn() -> Result<B, CaseError>) -> Result<(), String> {
    let mut failed = Vec::new();
    for case in CASES {
        let outcome = match new_fixture() {
            Ok(fixture) => (case.run)(&fixture).await,
            Err(error) => Err(error),
        };
        failed.extend(outcome.err().map(|error| format!("{}: {error}", case.name)));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Fails the case unless this holds.
pub(crate) fn ensure(holds: bool, what: &str) -> CaseResult {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// Fails the case unless the two are equal.
pub(crate) fn ensure_eq<T: PartialEq + std::fmt::Debug>(found: T, expected: T, what: &str) -> CaseResult {
    if found == expected {
        Ok(())
    } else {
        let (found, expected) = (format!("{found:.300?}"), format!("{expected:.300?}"));
        Err(format!("{what}: {found} where {expected} was expected").into())
    }
}

/// Fails the case unless this failed with this kind of error.
pub(crate) fn ensure_fails<T>(
    result: Result<T, JournalError>,
    kind: JournalErrorKind,
    what: &str,
) -> Result<JournalError, CaseError> {
    match result {
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) => Err(format!("{what}: {error:?} where {kind:?} was expected").into()),
        Ok(_) => Err(format!("{what}: it went well where {kind:?} was expected").into()),
    }
}

pub(crate) fn tenant(name: &str) -> Result<TenantId, CaseError> {
    Ok(TenantId::new(name)?)
}

/// Creates a session of the tenant.
pub(crate) async fn new_session(journal: &dyn Journal, tenant: &TenantId) -> Result<SessionKey, CaseError> {
    let key = SessionKey::new(tenant.clone(), SessionId::random()?);
    journal.create(&key).await?;
    Ok(key)
}

/// Opens the journal and creates a session.
pub(crate) async fn open_session(
    fixture: &dyn JournalFixture,
) -> Result<(Arc<dyn Journal>, SessionKey), CaseError> {
    let journal = fixture.open().await?;
    let key = new_session(&*journal, &tenant("acme")?).await?;
    Ok((journal, key))
}

/// Events with these bodies.
pub(crate) fn notes<const N: usize>(bodies: [&str; N]) -> Vec<NewEvent> {
    bodies.into_iter().map(|body| NewEvent::new("note", 1, body.as_bytes().to_vec())).collect()
}

/// The bodies of the session's events.
pub(crate) async fn bodies(journal: &dyn Journal, key: &SessionKey) -> Result<Vec<String>, CaseError> {
    let events = crate::journal::read_all(journal, key, 0).await?;
    for (event, seq) in events.iter().zip(0..) {
        ensure_eq(event.seq, seq, "a sequence number")?;
    }
    events.into_iter().map(|event| Ok(String::from_utf8(event.body)?)).collect()
}
