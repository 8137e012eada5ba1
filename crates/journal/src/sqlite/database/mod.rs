//! The database file: how it is opened, its schema, its errors.

pub(super) mod database_files;
pub(super) mod error_map;
pub(super) mod open;
pub(super) mod schema;
