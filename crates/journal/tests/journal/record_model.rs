//! Random writes and queries of records match a simple model, in memory and in SQLite.

use std::ops::Bound;
use std::sync::Arc;

use conjure_base::TenantId;
use conjure_journal::conformance::{RecordsFixture, RecordsUnderTest};
use conjure_journal::{
    Direction, IndexName, IndexValue, NewRecord, RecordContent, RecordCursor, RecordErrorKind, RecordKey,
    RecordKind, RecordOrder, RecordQuery, RecordScope, RecordWrite, SqliteOptions,
};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

use crate::support::{InMemory, OnDisk, options};

/// A key: one of two scopes, of two kinds and of four ids.
type Key = (bool, bool, u8);

#[derive(Debug, Clone)]
struct Content {
    name: Option<u8>,
    /// The values of two indexes.
    indexes: [Option<IndexValue>; 2],
    body: u8,
}

#[derive(Debug, Clone)]
enum Write {
    Insert(Key, Content),
    /// The expected version is that of the record, or off by this.
    Replace(Key, i64, Content),
    Delete(Key, Option<i64>),
}

#[derive(Debug, Clone)]
struct Query {
    scope: bool,
    kind: bool,
    filters: Vec<(bool, IndexValue)>,
    /// The order's index and bounds; `None`: by time.
    order: Option<(bool, Bound<IndexValue>, Bound<IndexValue>)>,
    is_ascending: bool,
    limit: u32,
}

#[derive(Debug, Clone)]
enum Op {
    Writes(Vec<Write>),
    Query(Query),
    DeleteTenant,
    Reopen,
}

fn value() -> impl Strategy<Value = IndexValue> {
    select(vec![
        IndexValue::Number(-1),
        IndexValue::Number(0),
        IndexValue::Number(7),
        IndexValue::Text(String::new()),
        IndexValue::Text("0".to_owned()),
        IndexValue::Text("z".to_owned()),
    ])
}

fn bound() -> impl Strategy<Value = Bound<IndexValue>> {
    prop_oneof![
        2 => Just(Bound::Unbounded),
        1 => value().prop_map(Bound::Included),
        1 => value().prop_map(Bound::Excluded),
    ]
}

fn content() -> impl Strategy<Value = Content> {
    let indexes = [prop::option::of(value()), prop::option::of(value())];
    (prop::option::weighted(0.4, 0..3_u8), indexes, any::<u8>()).prop_map(|(name, indexes, body)| Content {
        name,
        indexes,
        body,
    })
}

fn write() -> impl Strategy<Value = Write> {
    let key = || (prop::bool::weighted(0.1), any::<bool>(), 0..4_u8);
    let off = || prop_oneof![6 => Just(0), 1 => -1..3_i64];
    prop_oneof![
        4 => (key(), content()).prop_map(|(key, content)| Write::Insert(key, content)),
        3 => (key(), off(), content()).prop_map(|(key, off, content)| Write::Replace(key, off, content)),
        1 => (key(), prop::option::of(off())).prop_map(|(key, off)| Write::Delete(key, off)),
    ]
}

fn query() -> impl Strategy<Value = Query> {
    let filters = prop::collection::vec((any::<bool>(), value()), 0..3);
    let order = prop::option::of((any::<bool>(), bound(), bound()));
    (prop::bool::weighted(0.1), any::<bool>(), filters, order, any::<bool>(), 1..4_u32).prop_map(
        |(scope, kind, filters, order, is_ascending, limit)| Query {
            scope,
            kind,
            filters,
            order,
            is_ascending,
            limit,
        },
    )
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => write().prop_map(|write| Op::Writes(vec![write])),
        3 => prop::collection::vec(write(), 0..4).prop_map(Op::Writes),
        6 => query().prop_map(Op::Query),
        1 => Just(Op::DeleteTenant),
        1 => Just(Op::Reopen),
    ];
    prop::collection::vec(op, 1..40)
}

fn scope(is_system: bool) -> RecordScope {
    if is_system { RecordScope::System } else { TenantId::new("acme").unwrap().into() }
}

fn kind(which: bool) -> RecordKind {
    if which { RecordKind::from_static("agent") } else { RecordKind::from_static("skill") }
}

fn index(which: bool) -> IndexName {
    if which { IndexName::from_static("status") } else { IndexName::from_static("due") }
}

fn key((is_system, which, id): Key) -> RecordKey {
    RecordKey::new(scope(is_system), kind(which), format!("id-{id}")).unwrap()
}

impl Content {
    fn record(&self) -> RecordContent {
        let mut content = RecordContent::new([self.body]);
        content.unique_name = self.name.map(|name| format!("name-{name}"));
        for (which, value) in [true, false].into_iter().zip(&self.indexes) {
            content.indexes.extend(value.clone().map(|value| (index(which), value)));
        }
        content
    }

    fn index(&self, which: bool) -> Option<&IndexValue> {
        self.indexes[usize::from(!which)].as_ref()
    }
}

/// The records in the order of their insertion.
#[derive(Debug, Clone, Default)]
struct Model(Vec<(Key, u64, Content)>);

impl Model {
    fn position(&self, key: Key) -> Option<usize> {
        self.0.iter().position(|(other, ..)| *other == key)
    }

    /// The version that a write names.
    fn version(&self, key: Key, off: i64) -> u64 {
        self.position(key).map_or(1, |offset| self.0[offset].1).saturating_add_signed(off)
    }

    fn is_taken(&self, key: Key, content: &Content) -> bool {
        self.0.iter().any(|(other, _, found)| {
            *other != key && (other.0, other.1) == (key.0, key.1) && found.name == content.name
        }) && content.name.is_some()
    }

    /// The version after the write, or what it fails with.
    fn write(&mut self, write: &Write) -> Result<Option<u64>, RecordErrorKind> {
        match write {
            Write::Insert(key, _) if self.position(*key).is_some() => Err(RecordErrorKind::Exists),
            Write::Replace(key, ..) if self.position(*key).is_none() => Err(RecordErrorKind::NotFound),
            Write::Replace(_, off, _) | Write::Delete(_, Some(off))
                if *off != 0 && !matches!(write, Write::Delete(key, _) if self.position(*key).is_none()) =>
            {
                Err(RecordErrorKind::VersionConflict)
            }
            Write::Insert(key, content) | Write::Replace(key, _, content) if self.is_taken(*key, content) => {
                Err(RecordErrorKind::NameTaken)
            }
            Write::Insert(key, content) => {
                self.0.push((*key, 1, content.clone()));
                Ok(Some(1))
            }
            Write::Replace(key, _, content) => {
                let offset = self.position(*key).unwrap();
                self.0[offset].1 += 1;
                self.0[offset].2 = content.clone();
                Ok(Some(self.0[offset].1))
            }
            Write::Delete(key, _) => Ok(self.position(*key).map(|offset| self.0.remove(offset).1)),
        }
    }

    fn query(&self, query: &Query) -> Vec<RecordKey> {
        let mut found: Vec<_> = self
            .0
            .iter()
            .filter(|(key, ..)| (key.0, key.1) == (query.scope, query.kind))
            .filter(|(.., content)| {
                query.filters.iter().all(|(which, value)| content.index(*which) == Some(value))
            })
            .filter_map(|(key, _, content)| match &query.order {
                None => Some((None, *key)),
                Some((which, from, to)) => {
                    use std::ops::RangeBounds as _;
                    let value = content.index(*which)?;
                    (from.clone(), to.clone()).contains(value).then_some((Some(value), *key))
                }
            })
            .collect();
        // Equal ones stay in the order of their insertion.
        found.sort_by_key(|(value, _)| *value);
        if !query.is_ascending {
            found.reverse();
        }
        found.into_iter().map(|(_, record)| key(record)).collect()
    }
}

/// The writes of one scope: that of the first.
fn of_one_scope(writes: Vec<Write>) -> Vec<Write> {
    let scope_of = |write: &Write| match write {
        Write::Insert(key, _) | Write::Replace(key, ..) | Write::Delete(key, _) => key.0,
    };
    let first = writes.first().map(scope_of);
    writes.into_iter().filter(|write| Some(scope_of(write)) == first).collect()
}

async fn apply(store: &RecordsUnderTest, model: &mut Model, writes: Vec<Write>) {
    let writes = of_one_scope(writes);
    let mut after = model.clone();
    let mut calls = Vec::new();
    let mut expected = Ok(Vec::new());
    for write in &writes {
        calls.push(match write {
            Write::Insert(at, content) => RecordWrite::Insert(NewRecord::new(key(*at), content.record())),
            Write::Replace(at, off, content) => RecordWrite::Replace {
                key: key(*at),
                expected_version: after.version(*at, *off),
                content: content.record(),
            },
            Write::Delete(at, off) => RecordWrite::Delete {
                key: key(*at),
                expected_version: off.map(|off| after.version(*at, off)),
            },
        });
        if let Ok(versions) = &mut expected {
            match after.write(write) {
                Ok(version) => versions.push(version),
                Err(kind) => expected = Err(kind),
            }
        }
    }
    let written = store.records.transact(calls).await;
    let written = written.map_err(|error| error.kind());
    let versions = written
        .map(|written| written.into_iter().map(|record| record.map(|record| record.version)).collect());
    assert_eq!(versions, expected, "{writes:?}");
    if expected.is_ok() {
        *model = after;
    }
}

async fn ask(store: &RecordsUnderTest, model: &Model, query: &Query) {
    let mut call = RecordQuery::new(scope(query.scope), kind(query.kind)).with_limit(query.limit);
    for (which, value) in &query.filters {
        call = call.with_filter(index(*which), value.clone());
    }
    let order = match &query.order {
        None => RecordOrder::CREATED_AT,
        Some((which, from, to)) => {
            RecordOrder::Index { name: index(*which), from: from.clone(), to: to.clone() }
        }
    };
    let direction = if query.is_ascending { Direction::Ascending } else { Direction::Descending };
    call = call.with_order(order, direction);
    let mut found = Vec::new();
    loop {
        let page = store.records.query(call.clone()).await.unwrap();
        found.extend(page.records.into_iter().map(|record| record.key));
        let Some(next) = page.next else { break };
        assert_eq!(next.to_string().parse::<RecordCursor>(), Ok(next.clone()));
        call.after = Some(next);
    }
    assert_eq!(found, model.query(query), "{query:?}");
}

fn run(fixture: &dyn RecordsFixture, ops: Vec<Op>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut store = fixture.open().await.unwrap();
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Writes(writes) => apply(&store, &mut model, writes).await,
                Op::Query(query) => ask(&store, &model, &query).await,
                Op::DeleteTenant => {
                    store.journal.delete_tenant(&TenantId::new("acme").unwrap()).await.unwrap();
                    model.0.retain(|(key, ..)| key.0);
                }
                Op::Reopen => store = fixture.open().await.unwrap(),
            }
        }
        let store = Arc::new(store);
        for (at, version, content) in &model.0 {
            let record = store.records.get(&key(*at)).await.unwrap().unwrap();
            assert_eq!((record.version, &record.content), (*version, &content.record()));
            if let Some(name) = &record.content.unique_name {
                let by_name = store.records.get_by_name(record.key.scope(), record.key.kind(), name).await;
                assert_eq!(by_name.unwrap(), Some(record));
            }
        }
        for (is_system, which) in [(true, true), (true, false), (false, true), (false, false)] {
            let (filters, order) = (Vec::new(), None);
            let query = Query { scope: is_system, kind: which, filters, order, is_ascending: true, limit: 3 };
            ask(&store, &model, &query).await;
        }
    });
}

/// The same cases every time. After a change to the records, run more of them with another seed.
fn campaign(cases: u32) -> ProptestConfig {
    ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(campaign(256))]

    #[test]
    fn records_in_memory_match_the_reference_model(ops in ops()) {
        run(&InMemory::default(), ops);
    }
}

proptest! {
    #![proptest_config(campaign(32))]

    #[test]
    fn records_in_sqlite_match_the_reference_model(ops in ops()) {
        run(&OnDisk::with(SqliteOptions { readers: 1, ..options() }), ops);
    }
}
