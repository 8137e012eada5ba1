//! Records: rows with a key, a version, a unique name, indexed values and a body.

mod key;
mod row;

mod cursor;
mod query;

mod error;
mod memory;
mod write;

mod records;

pub use cursor::RecordCursor;
pub use error::{RecordError, RecordErrorKind};
pub use key::{
    IndexName, MAX_RECORD_ID_BYTES, MAX_RECORD_TEXT_BYTES, RecordKey, RecordKind, RecordNameError,
    RecordScope,
};
pub use memory::MemoryRecords;
pub use query::{Direction, RecordOrder, RecordPage, RecordQuery};
pub use records::{RecordFuture, Records};
pub use row::{
    IndexValue, Indexes, MAX_INDEX_TEXT_BYTES, MAX_INDEXES, MAX_RECORD_BYTES, MAX_UNIQUE_NAME_BYTES,
    NewRecord, Record, RecordContent,
};
pub use write::{MAX_WRITES, RecordWrite};

#[cfg(feature = "sqlite")]
pub(crate) use query::MAX_PAGE_BYTES;
#[cfg(feature = "sqlite")]
pub(crate) use write::check_writes;
