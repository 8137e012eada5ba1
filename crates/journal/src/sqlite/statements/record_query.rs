//! The SQL of a query of records.
//!
//! A query reads along one index: that of the order, or that of the first filter when the order is by time. So its page begins at the
//! cursor and ends at the limit, and nothing is sorted. `CROSS JOIN` keeps SQLite from choosing another order of the tables.

use std::ops::Bound;

use rusqlite::types::Value;

use super::rows::to_i64;
use crate::record::{Direction, IndexName, IndexValue, RecordOrder, RecordQuery, RecordScope};

/// The columns of a record.
pub(crate) const COLUMNS: &str =
    "r.number, r.id, r.version, r.name, r.indexes, r.body, r.created, r.updated, r.checksum";

/// The value of the column `tenant`. A tenant's id is never empty.
pub(crate) fn scope_text(scope: &RecordScope) -> &str {
    scope.tenant().map_or("", conjure_base::TenantId::as_str)
}

/// A value of an index, as the database has it.
pub(crate) fn to_sql(value: &IndexValue) -> Value {
    match value {
        IndexValue::Number(number) => Value::Integer(*number),
        IndexValue::Text(text) => Value::Text(text.clone()),
    }
}

/// A statement with its parameters.
pub(crate) struct QuerySql {
    pub(crate) sql: String,
    pub(crate) parameters: Vec<Value>,
}

impl QuerySql {
    /// Creates the statement that finds the records after the cursor, at most `limit` of them.
    pub(crate) fn new(query: &RecordQuery, limit: usize) -> Self {
        let (driver, filters) = match (&query.order, &query.filters[..]) {
            (RecordOrder::Index { name, .. }, filters) => (Driver::Index(name), filters),
            (RecordOrder::CreatedAt { .. }, [first, rest @ ..]) => (Driver::Filter(first), rest),
            (RecordOrder::CreatedAt { .. }, []) => (Driver::Time, &[][..]),
        };
        let table = match driver {
            Driver::Time => "records AS r",
            Driver::Index(_) | Driver::Filter(_) => {
                "record_indexes AS i CROSS JOIN records AS r ON r.number = i.number"
            }
        };
        let mut this = Self { sql: format!("SELECT {COLUMNS} FROM {table}"), parameters: Vec::new() };
        let alias = driver.alias();
        let (tenant, kind) = (scope_text(&query.scope), query.kind.as_str());
        this.push(&format!(" WHERE {alias}.tenant = ? AND {alias}.kind = ?"), [text(tenant), text(kind)]);
        match driver {
            Driver::Time => {}
            Driver::Index(name) => this.push(" AND i.name = ?", [text(name.as_str())]),
            Driver::Filter((name, value)) => {
                this.push(" AND i.name = ? AND i.value = ?", [text(name.as_str()), to_sql(value)]);
            }
        }
        match &query.order {
            RecordOrder::CreatedAt { from, to } => {
                let millis = |bound: &Bound<conjure_base::Timestamp>| {
                    bound.map(|time| Value::Integer(to_i64(time.millis())))
                };
                this.push_range(&format!("{alias}.created"), millis(from), millis(to));
            }
            RecordOrder::Index { from, to, .. } => {
                this.push_range("i.value", from.as_ref().map(to_sql), to.as_ref().map(to_sql));
            }
        }
        for (name, value) in filters {
            let exists = format!(
                " AND EXISTS (SELECT 1 FROM record_indexes AS f WHERE f.tenant = {alias}.tenant
                    AND f.kind = {alias}.kind AND f.name = ? AND f.value = ?
                    AND f.created = {alias}.created AND f.number = {alias}.number)"
            );
            this.push(&exists, [text(name.as_str()), to_sql(value)]);
        }
        let columns = match &query.order {
            RecordOrder::CreatedAt { .. } => vec![format!("{alias}.created"), format!("{alias}.number")],
            RecordOrder::Index { .. } => vec!["i.value".into(), "i.created".into(), "i.number".into()],
        };
        let (compare, direction) = match query.direction {
            Direction::Ascending => (">", ""),
            Direction::Descending => ("<", " DESC"),
        };
        if let Some(after) = &query.after {
            let value = after.value.as_ref().map(to_sql);
            let last = [after.created_at.millis(), after.number].map(|number| Value::Integer(to_i64(number)));
            let placeholders = vec!["?"; columns.len()].join(", ");
            let after_cursor = format!(" AND ({}) {compare} ({placeholders})", columns.join(", "));
            this.push(&after_cursor, value.into_iter().chain(last));
        }
        let order: Vec<String> = columns.iter().map(|column| format!("{column}{direction}")).collect();
        let limit = Value::Integer(i64::try_from(limit).unwrap_or(i64::MAX));
        this.push(&format!(" ORDER BY {} LIMIT ?", order.join(", ")), [limit]);
        this
    }

    fn push(&mut self, sql: &str, parameters: impl IntoIterator<Item = Value>) {
        self.sql.push_str(sql);
        self.parameters.extend(parameters);
    }

    fn push_range(&mut self, column: &str, from: Bound<Value>, to: Bound<Value>) {
        for (bound, included, excluded) in [(from, ">=", ">"), (to, "<=", "<")] {
            match bound {
                Bound::Included(value) => self.push(&format!(" AND {column} {included} ?"), [value]),
                Bound::Excluded(value) => self.push(&format!(" AND {column} {excluded} ?"), [value]),
                Bound::Unbounded => {}
            }
        }
    }
}

/// The index along which a query reads.
#[derive(Clone, Copy)]
enum Driver<'a> {
    /// All records of the kind, by time.
    Time,
    /// The records with this index, by its value.
    Index(&'a IndexName),
    /// The records with this value of an index, by time.
    Filter(&'a (IndexName, IndexValue)),
}

impl Driver<'_> {
    /// The alias of the table that has the columns of the index.
    const fn alias(self) -> &'static str {
        match self {
            Self::Time => "r",
            Self::Index(_) | Self::Filter(_) => "i",
        }
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}
