//! The cases of records, and their fixture.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::fixture::{CaseError, CaseResult, tenant};
use super::{record_queries, records};
use crate::journal::Journal;
use crate::record::{
    NewRecord, Record, RecordContent, RecordError, RecordErrorKind, RecordKey, RecordKind, Records,
};

/// Records, and the journal of the same database.
pub struct RecordsUnderTest {
    /// The records.
    pub records: Arc<dyn Records>,
    /// The journal, which deletes tenants.
    pub journal: Arc<dyn Journal>,
}

/// Creates records under test. There are none at first.
pub trait RecordsFixture: Send + Sync {
    /// Opens the records, while others may have them open. All acknowledged records must be there.
    fn open(&self) -> BoxFuture<'_, Result<RecordsUnderTest, CaseError>>;
}

/// One requirement of records.
pub struct RecordsCase {
    /// Its name.
    pub name: &'static str,
    /// Tests new records.
    pub run: for<'a> fn(&'a dyn RecordsFixture) -> BoxFuture<'a, CaseResult>,
}

macro_rules! cases {
    ($($module:ident::$name:ident),+ $(,)?) => {
        &[$(RecordsCase { name: stringify!($name), run: |fixture| Box::pin($module::$name(fixture)) }),+]
    };
}

/// All cases of records.
pub const RECORDS_CASES: &[RecordsCase] = cases![
    records::a_record_is_read_as_it_was_written,
    records::a_key_is_inserted_once,
    records::a_writer_must_know_the_version,
    records::a_name_is_unique_within_its_scope_and_kind,
    records::scopes_and_kinds_share_nothing,
    records::writes_happen_together_or_not_at_all,
    records::what_is_too_large_or_not_valid_is_refused,
    records::a_deleted_tenant_has_no_records,
    records::writes_run_in_the_order_of_their_submission,
    record_queries::pages_hold_each_record_once_in_order,
    record_queries::filters_and_bounds_leave_out_the_others,
    record_queries::a_cursor_is_stable_while_records_come_and_go,
    record_queries::a_cursor_of_another_query_is_refused,
    record_queries::a_page_of_large_bodies_is_short,
];

/// Runs all cases, each with new records.
///
/// # Errors
/// A line for each case that failed.
pub async fn run_records<B: RecordsFixture>(
    new_fixture: impl Fn() -> Result<B, CaseError>,
) -> Result<(), String> {
    let mut failed = Vec::new();
    for case in RECORDS_CASES {
        let outcome = match new_fixture() {
            Ok(fixture) => (case.run)(&fixture).await,
            Err(error) => Err(error),
        };
        failed.extend(outcome.err().map(|error| format!("{}: {error}", case.name)));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

pub(super) fn kind(name: &'static str) -> Result<RecordKind, CaseError> {
    Ok(RecordKind::new(name)?)
}

pub(super) fn key(of: &str, name: &'static str, id: &str) -> Result<RecordKey, CaseError> {
    Ok(RecordKey::new(tenant(of)?, kind(name)?, id)?)
}

pub(super) fn content(body: &[u8]) -> RecordContent {
    RecordContent::new(body)
}

pub(super) async fn insert(
    store: &RecordsUnderTest,
    key: &RecordKey,
    content: RecordContent,
) -> Result<Record, CaseError> {
    Ok(store.records.insert(NewRecord::new(key.clone(), content)).await?)
}

/// Fails the case unless this failed with this kind of error.
pub(super) fn ensure_rejected<T>(
    result: Result<T, RecordError>,
    kind: RecordErrorKind,
    what: &str,
) -> Result<RecordError, CaseError> {
    match result {
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) => Err(format!("{what}: {error:?} where {kind:?} was expected").into()),
        Ok(_) => Err(format!("{what}: it went well where {kind:?} was expected").into()),
    }
}
