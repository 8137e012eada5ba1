//! The cases, and what they need.

use std::error::Error;
use std::sync::Arc;

use conjure_base::{SessionId, TenantId};
use futures_util::future::BoxFuture;

use super::{counters, events, leases, sessions, snapshots, weights};
use crate::error::{JournalError, JournalErrorKind};
use crate::event::NewEvent;
use crate::journal::Journal;
use crate::key::SessionKey;

/// Why a case failed.
pub type Failure = Box<dyn Error + Send + Sync>;

/// How a case ended.
pub type Outcome = Result<(), Failure>;

/// A place for one journal, which is empty at first.
pub trait Bed: Send + Sync {
    /// Opens the journal in this place, while others may have it open. What they acknowledged is there.
    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Journal>, Failure>>;
}

/// One thing that a journal must do.
pub struct Case {
    /// Which.
    pub name: &'static str,
    /// Puts a new place to the test.
    pub run: for<'a> fn(&'a dyn Bed) -> BoxFuture<'a, Outcome>,
}

macro_rules! cases {
    ($($room:ident::$name:ident),+ $(,)?) => {
        &[$(Case { name: stringify!($name), run: |bed| Box::pin($room::$name(bed)) }),+]
    };
}

/// All cases.
pub const CASES: &[Case] = cases![
    sessions::a_session_is_created_once,
    sessions::a_session_of_another_tenant_is_not_found,
    sessions::one_id_under_two_tenants_is_two_sessions,
    sessions::lists_hold_each_session_once_newest_first,
    sessions::tenants_are_listed_in_pages,
    sessions::a_deleted_session_is_gone_and_others_stay,
    sessions::a_session_that_was_used_meanwhile_is_kept,
    sessions::a_deleted_session_is_not_brought_back_by_a_late_writer,
    sessions::a_deleted_tenant_is_gone_and_others_stay,
    events::events_are_loaded_as_they_were_appended,
    events::large_bodies_are_loaded_as_they_were_appended,
    events::an_append_must_meet_the_sequence,
    events::an_append_is_whole_or_absent,
    events::an_append_without_events_checks_only,
    events::pages_hold_each_event_once,
    events::appends_are_carried_out_in_the_order_of_their_submission,
    events::a_dropped_append_happened_or_not,
    events::of_many_writers_one_wins,
    events::what_was_acknowledged_is_there_when_the_journal_is_opened_again,
    events::a_sweep_takes_nothing_that_is_needed,
    counters::counters_count_over_all_sessions_of_a_tenant,
    counters::an_append_that_does_not_happen_charges_nothing,
    counters::counters_of_many_writers_add_up,
    counters::counters_are_charged_without_an_append,
    counters::counters_are_named_and_forgotten,
    counters::counters_stop_at_the_largest_count,
    counters::counters_go_with_their_tenant,
    counters::what_is_recorded_is_counted_until_it_is_deleted,
    leases::a_lease_excludes_others_until_it_ends,
    leases::a_new_epoch_makes_the_old_one_stale,
    leases::an_owner_may_take_its_own_lease_again,
    leases::a_lease_is_renewed_by_its_epoch_only,
    leases::a_released_lease_is_free_and_its_epoch_stale,
    snapshots::a_snapshot_replaces_the_one_before,
    snapshots::a_snapshot_needs_its_events_and_the_epoch,
    snapshots::a_large_snapshot_is_read_as_it_was,
    weights::whatever_tenants_weigh_all_calls_are_carried_out_in_order,
];

/// Runs all cases, each in a place of its own.
///
/// # Errors
/// A line for each case that failed.
pub async fn run<B: Bed>(new_bed: impl Fn() -> Result<B, Failure>) -> Result<(), String> {
    let mut failed = Vec::new();
    for case in CASES {
        let outcome = match new_bed() {
            Ok(bed) => (case.run)(&bed).await,
            Err(error) => Err(error),
        };
        failed.extend(outcome.err().map(|error| format!("{}: {error}", case.name)));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Ends the case unless this holds.
pub(crate) fn ensure(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// Ends the case unless the two are equal.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(found: T, expected: T, what: &str) -> Outcome {
    if found == expected {
        Ok(())
    } else {
        let (found, expected) = (format!("{found:.300?}"), format!("{expected:.300?}"));
        Err(format!("{what}: {found} where {expected} was expected").into())
    }
}

/// Ends the case unless this failed in this way.
pub(crate) fn fails<T>(
    result: Result<T, JournalError>,
    kind: JournalErrorKind,
    what: &str,
) -> Result<JournalError, Failure> {
    match result {
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) => Err(format!("{what}: {error:?} where {kind:?} was expected").into()),
        Ok(_) => Err(format!("{what}: it went well where {kind:?} was expected").into()),
    }
}

pub(crate) fn tenant(name: &str) -> Result<TenantId, Failure> {
    Ok(TenantId::new(name)?)
}

/// A new session of the tenant, which is created.
pub(crate) async fn new_session(journal: &dyn Journal, tenant: &TenantId) -> Result<SessionKey, Failure> {
    let key = SessionKey::new(tenant.clone(), SessionId::random()?);
    journal.create(&key).await?;
    Ok(key)
}

/// Events whose bodies are these.
pub(crate) fn notes<const N: usize>(bodies: [&str; N]) -> Vec<NewEvent> {
    bodies.into_iter().map(|body| NewEvent::new("note", 1, body.as_bytes().to_vec())).collect()
}

/// The bodies of the session's events.
pub(crate) async fn bodies(journal: &dyn Journal, key: &SessionKey) -> Result<Vec<String>, Failure> {
    let events = crate::journal::load_all(journal, key, 0).await?;
    for (event, seq) in events.iter().zip(0..) {
        same(event.seq, seq, "a sequence number")?;
    }
    events.into_iter().map(|event| Ok(String::from_utf8(event.body)?)).collect()
}
