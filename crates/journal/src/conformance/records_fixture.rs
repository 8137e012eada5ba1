//! The fixture of the cases of records.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::fixture::{CaseError, tenant};
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
