//! The types that all routes share: ids, pages, queries, times and errors.

pub(crate) mod body;
pub(crate) mod deleted;
pub(crate) mod error;
pub(crate) mod id;
pub(crate) mod input;
pub(crate) mod list_query;
pub(crate) mod metadata;
pub(crate) mod page;
pub(crate) mod query;
pub(crate) mod request_error;
pub(crate) mod time;
