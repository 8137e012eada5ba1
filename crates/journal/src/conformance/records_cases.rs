//! The cases of records.

use futures_util::future::BoxFuture;

use super::fixture::{CaseError, CaseResult};
use super::record_queries;
use super::records;
use super::records_fixture::RecordsFixture;

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
    records::oversized_or_invalid_records_are_rejected,
    records::a_deleted_tenant_has_no_records,
    records::writes_run_in_the_order_of_their_submission,
    record_queries::pages_hold_each_record_once_in_order,
    record_queries::filters_and_bounds_exclude_other_records,
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
