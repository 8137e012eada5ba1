//! The records of the journal, for callers that continue to use them after the journal was opened again.
//!
//! State: none. While the journal is being opened again, calls wait for it, each for at most the handle's timeout.

use std::sync::Arc;

use conjure_journal::{
    Record, RecordError, RecordFuture, RecordKey, RecordKind, RecordPage, RecordQuery, RecordScope,
    RecordWrite, Records,
};
use futures_util::FutureExt as _;

use super::handle::{JournalHandle, OpenJournalRef};

/// Records that stay usable after the journal was lost and opened again. Clones share the journal.
#[derive(Debug, Clone)]
pub struct SupervisedRecords {
    journal: JournalHandle,
}

impl SupervisedRecords {
    /// The records of the journal behind this handle.
    #[must_use]
    pub const fn new(journal: JournalHandle) -> Self {
        Self { journal }
    }

    /// Makes one call. It is submitted at once if the journal is open, so calls run in the order of their submission.
    ///
    /// If the journal is lost, its actor is notified. The call is not repeated, because it is unknown whether it was
    /// carried out.
    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Records) -> RecordFuture<T> + Send + 'static,
    ) -> RecordFuture<T> {
        let handle = self.journal.clone();
        let submit = |open: &OpenJournalRef| call(&*open.journal.records());
        match handle.published() {
            Some(open) => {
                let submitted = submit(&open);
                async move { finish(&handle, &open, submitted).await }.boxed()
            }
            None => async move {
                let open = handle.current().await;
                let open = open.map_err(|error| RecordError::Unavailable { reason: error.to_string() })?;
                finish(&handle, &open, submit(&open)).await
            }
            .boxed(),
        }
    }
}

async fn finish<T>(
    handle: &JournalHandle,
    open: &OpenJournalRef,
    submitted: RecordFuture<T>,
) -> Result<T, RecordError> {
    let result = submitted.await;
    if let Err(RecordError::Storage(error)) = &result {
        handle.report(open, error);
    }
    result
}

impl Records for SupervisedRecords {
    fn transact(&self, writes: Vec<RecordWrite>) -> RecordFuture<Vec<Option<Record>>> {
        self.call(move |records| records.transact(writes))
    }

    fn get(&self, key: &RecordKey) -> RecordFuture<Option<Record>> {
        let key = key.clone();
        self.call(move |records| records.get(&key))
    }

    fn get_by_name(
        &self,
        scope: &RecordScope,
        kind: &RecordKind,
        name: &str,
    ) -> RecordFuture<Option<Record>> {
        let (scope, kind, name) = (scope.clone(), kind.clone(), name.to_owned());
        self.call(move |records| records.get_by_name(&scope, &kind, &name))
    }

    fn query(&self, query: RecordQuery) -> RecordFuture<RecordPage> {
        self.call(move |records| records.query(query))
    }
}

impl JournalHandle {
    /// The records of the journal.
    #[must_use]
    pub fn records(&self) -> Arc<dyn Records> {
        Arc::new(SupervisedRecords::new(self.clone()))
    }
}
