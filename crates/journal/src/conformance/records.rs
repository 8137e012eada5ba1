//! Records: versions, unique names, transactions, reopening, and the deletion of their tenant.

use futures_util::future::join_all;

use super::fixture::{CaseResult, ensure, ensure_eq, tenant};
use super::records_fixture::key;
use super::records_fixture::{RecordsFixture, content, ensure_rejected, insert, kind};
use crate::record::{
    IndexName, MAX_INDEX_TEXT_BYTES, MAX_INDEXES, MAX_RECORD_BYTES, MAX_UNIQUE_NAME_BYTES, MAX_WRITES,
    NewRecord, RecordErrorKind, RecordKey, RecordScope, RecordWrite,
};

pub(crate) async fn a_record_is_read_as_it_was_written(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = fixture.open().await?;
    let key = key("acme", "agent", "a")?;
    ensure_eq(store.records.get(&key).await?, None, "the record at first")?;
    let every_byte = (0..=255).collect::<Vec<u8>>();
    let number = IndexName::new("number")?;
    let text = IndexName::new("text")?;
    let written = content(&every_byte)
        .with_unique_name("Grüße = 🧶")
        .with_index(number.clone(), i64::MIN)
        .with_index(text.clone(), "n1 = ü");
    let record = store.records.insert(NewRecord::new(key.clone(), written.clone())).await?;
    ensure_eq(record.version, 1, "its version")?;
    ensure_eq(&record.content, &written, "its content")?;
    ensure_eq(record.created_at, record.updated_at, "its times")?;
    let reopened = fixture.open().await?;
    ensure_eq(reopened.records.get(&key).await?, Some(record.clone()), "the found record")?;
    let by_name = reopened.records.get_by_name(key.scope(), key.kind(), "Grüße = 🧶").await?;
    ensure_eq(by_name, Some(record.clone()), "the result of the lookup by name")?;
    // The old content is removed.
    let empty = content(b"").with_index(text, "");
    let replaced = reopened.records.replace(&key, 1, empty.clone()).await?;
    ensure_eq((replaced.version, &replaced.content), (2, &empty), "the new one")?;
    ensure_eq(
        (replaced.created_at, replaced.number),
        (record.created_at, record.number),
        "remaining content",
    )?;
    ensure(replaced.updated_at >= record.updated_at, "it was updated later")?;
    ensure_eq(store.records.get(&key).await?, Some(replaced), "the result of the other caller")?;
    ensure_eq(store.records.get_by_name(key.scope(), key.kind(), "Grüße = 🧶").await?, None, "the old name")
}

pub(crate) async fn a_key_is_inserted_once(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = fixture.open().await?;
    let key = key("acme", "agent", "a")?;
    insert(&store, &key, content(b"1")).await?;
    let second = store.records.insert(NewRecord::new(key.clone(), content(b"2"))).await;
    ensure_rejected(second, RecordErrorKind::Exists, "a second insertion")?;
    ensure_eq(store.records.get(&key).await?.map(|record| record.content.body), Some(b"1".to_vec()), "it")?;
    ensure(store.records.delete(&key, None).await?, "it was deleted")?;
    ensure(!store.records.delete(&key, Some(7)).await?, "it was not deleted again")?;
    let inserted_again = insert(&store, &key, content(b"3")).await?;
    ensure_eq(inserted_again.version, 1, "the version of a new one")
}

pub(crate) async fn a_writer_must_know_the_version(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = fixture.open().await?;
    let key = key("acme", "agent", "a")?;
    let missing = store.records.replace(&key, 1, content(b"")).await;
    ensure_rejected(missing, RecordErrorKind::NotFound, "a replacement of nothing")?;
    insert(&store, &key, content(b"1")).await?;
    let kind = RecordErrorKind::VersionConflict;
    for wrong in [0, 2, u64::MAX] {
        ensure_rejected(store.records.replace(&key, wrong, content(b"2")).await, kind, "a replacement")?;
        ensure_rejected(store.records.delete(&key, Some(wrong)).await, kind, "a deletion")?;
    }
    // Of several writers that read the same version, only one succeeds.
    let other = fixture.open().await?;
    let stores = [&store, &other].into_iter().cycle();
    let writers = (0..8_u8).zip(stores).map(|(n, store)| store.records.replace(&key, 1, content(&[n])));
    let written = join_all(writers).await;
    ensure_eq(written.iter().filter(|result| result.is_ok()).count(), 1, "how many have written")?;
    for lost in written.into_iter().filter(Result::is_err) {
        ensure_rejected(lost, kind, "a late writer")?;
    }
    ensure_eq(store.records.get(&key).await?.map(|record| record.version), Some(2), "the version")?;
    ensure(store.records.delete(&key, Some(2)).await?, "it was deleted")
}

pub(crate) async fn a_name_is_unique_within_its_scope_and_kind(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = fixture.open().await?;
    let named = || content(b"").with_unique_name("name");
    let first = key("acme", "agent", "a")?;
    insert(&store, &first, named()).await?;
    for other in [key("globex", "agent", "a")?, key("acme", "skill", "a")?] {
        insert(&store, &other, named()).await?;
    }
    insert(&store, &RecordKey::new(RecordScope::System, kind("agent")?, "a")?, named()).await?;
    let second = key("acme", "agent", "b")?;
    let name_taken = store.records.insert(NewRecord::new(second.clone(), named())).await;
    ensure_rejected(name_taken, RecordErrorKind::NameTaken, "a second one of the name")?;
    insert(&store, &second, content(b"")).await?;
    let name_taken = store.records.replace(&second, 1, named()).await;
    ensure_rejected(name_taken, RecordErrorKind::NameTaken, "a renaming")?;
    // The record that has the name can keep it, and can give it up.
    store.records.replace(&first, 1, named()).await?;
    store.records.replace(&first, 2, content(b"")).await?;
    store.records.replace(&second, 1, named()).await?;
    ensure(store.records.delete(&second, None).await?, "it was deleted")?;
    store.records.replace(&first, 3, named()).await.map(drop).map_err(Into::into)
}

pub(crate) async fn scopes_and_kinds_share_nothing(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = fixture.open().await?;
    let acme_key = key("acme", "agent", "a")?;
    insert(&store, &acme_key, content(b"mine")).await?;
    let others = [
        key("globex", "agent", "a")?,
        key("acme", "skill", "a")?,
        RecordKey::new(RecordScope::System, kind("agent")?, "a")?,
    ];
    for other in &others {
        ensure_eq(store.records.get(other).await?, None, "another one's record")?;
        ensure(!store.records.delete(other, None).await?, "nothing was deleted")?;
        insert(&store, other, content(b"other")).await?;
    }
    let body = store.records.get(&acme_key).await?.map(|record| record.content.body);
    ensure_eq(body, Some(b"mine".to_vec()), "the record")
}

pub(crate) async fn writes_happen_together_or_not_at_all(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b, c) = (key("acme", "agent", "a")?, key("acme", "agent", "b")?, key("acme", "version", "c")?);
    let insertion = |key: &RecordKey, text: &str| {
        RecordWrite::Insert(NewRecord::new(key.clone(), content(text.as_bytes()).with_unique_name(text)))
    };
    let written = store.records.transact(vec![insertion(&a, "1"), insertion(&c, "1")]).await?;
    ensure_eq(
        written.iter().flatten().map(|record| record.version).collect(),
        vec![1, 1],
        "written content",
    )?;
    let delete =
        |key: &RecordKey, version| RecordWrite::Delete { key: key.clone(), expected_version: version };
    let failing = [
        (vec![insertion(&b, "2"), insertion(&a, "3")], RecordErrorKind::Exists),
        (vec![delete(&a, None), insertion(&b, "2"), delete(&c, Some(9))], RecordErrorKind::VersionConflict),
        (vec![insertion(&b, "1")], RecordErrorKind::NameTaken),
        (vec![delete(&c, Some(1)), insertion(&b, "1")], RecordErrorKind::NameTaken),
    ];
    for (writes, kind) in failing {
        ensure_rejected(store.records.transact(writes).await, kind, "a transaction")?;
        ensure(store.records.get(&a).await?.is_some(), "the first stays")?;
        ensure(store.records.get(&c).await?.is_some(), "the last stays")?;
        ensure_eq(store.records.get(&b).await?, None, "missing content")?;
    }
    // Each write sees the effects of the earlier ones.
    let content = content(b"new").with_unique_name("1");
    let replace = RecordWrite::Replace { key: b.clone(), expected_version: 1, content };
    let writes = vec![insertion(&b, "2"), delete(&a, Some(1)), replace, delete(&a, None)];
    let written = fixture.open().await?.records.transact(writes).await?;
    let versions: Vec<_> =
        written.iter().map(|record| record.as_ref().map(|record| record.version)).collect();
    ensure_eq(versions, vec![Some(1), Some(1), Some(2), None], "written content")?;
    ensure_eq(store.records.get(&a).await?, None, "deleted content")?;
    ensure_eq(store.records.transact(Vec::new()).await?.len(), 0, "an empty transaction")?;
    let scopes = vec![insertion(&a, "a"), insertion(&key("globex", "agent", "a")?, "a")];
    ensure_rejected(store.records.transact(scopes).await, RecordErrorKind::Invalid, "two scopes")?;
    let many = vec![delete(&a, None); MAX_WRITES + 1];
    ensure_rejected(store.records.transact(many).await, RecordErrorKind::Invalid, "many writes").map(drop)
}

pub(crate) async fn oversized_or_invalid_records_are_rejected(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = fixture.open().await?;
    let key = key("acme", "agent", "a")?;
    let index = |n: usize| IndexName::new(format!("index-{n}"));
    let largest = (0..MAX_INDEXES).try_fold(
        content(&vec![1; MAX_RECORD_BYTES]).with_unique_name("n".repeat(MAX_UNIQUE_NAME_BYTES)),
        |content, n| {
            Ok::<_, crate::RecordError>(content.with_index(index(n)?, "t".repeat(MAX_INDEX_TEXT_BYTES)))
        },
    )?;
    let wrong = [
        content(&vec![1; MAX_RECORD_BYTES + 1]),
        content(b"").with_unique_name(""),
        content(b"").with_unique_name("a\nb"),
        content(b"").with_unique_name("n".repeat(MAX_UNIQUE_NAME_BYTES + 1)),
        content(b"").with_index(index(0)?, "t".repeat(MAX_INDEX_TEXT_BYTES + 1)),
        content(b"").with_index(index(0)?, "a\u{0}b"),
        largest.clone().with_index(index(MAX_INDEXES)?, 1),
    ];
    for content in wrong {
        let inserted = store.records.insert(NewRecord::new(key.clone(), content)).await;
        ensure_rejected(inserted, RecordErrorKind::Invalid, "a content beyond a limit")?;
    }
    let record = insert(&store, &key, largest).await?;
    ensure_eq(store.records.get(&key).await?, Some(record), "the largest")
}

pub(crate) async fn a_deleted_tenant_has_no_records(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = fixture.open().await?;
    let acme = key("acme", "agent", "a")?;
    let stays = [key("globex", "agent", "a")?, RecordKey::new(RecordScope::System, kind("key")?, "a")?];
    let before = store.journal.stored_bytes(&tenant("acme")?).await?;
    let index = IndexName::new("index")?;
    insert(&store, &acme, content(&[7; 1_000]).with_unique_name("a").with_index(index, 1)).await?;
    for key in &stays {
        insert(&store, key, content(b"stays")).await?;
    }
    let bytes = store.journal.stored_bytes(&tenant("acme")?).await?;
    ensure((before + 1_000..before + 2_000).contains(&bytes), "the record counts as stored")?;
    store.journal.delete_tenant(&tenant("acme")?).await?;
    ensure_eq(store.records.get(&acme).await?, None, "the deleted tenant's record")?;
    ensure_eq(store.records.get_by_name(acme.scope(), acme.kind(), "a").await?, None, "its name")?;
    ensure_eq(
        store.journal.stored_bytes(&tenant("acme")?).await?,
        before,
        "the bytes of the deleted tenant",
    )?;
    for key in &stays {
        ensure(store.records.get(key).await?.is_some(), "another one's record stays")?;
    }
    let inserted_again = insert(&store, &acme, content(b"new").with_unique_name("a")).await?;
    ensure_eq(inserted_again.version, 1, "the version of a new one")
}

pub(crate) async fn writes_run_in_the_order_of_their_submission(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = fixture.open().await?;
    let key = key("acme", "agent", "a")?;
    let inserted = store.records.insert(NewRecord::new(key.clone(), content(b"0")));
    // The caller of the first replacement does not wait for it.
    drop(store.records.replace(&key, 1, content(b"1")));
    let writes =
        (2..50_u64).map(|version| store.records.replace(&key, version, content(&version.to_le_bytes())));
    let writes: Vec<_> = writes.collect();
    inserted.await?;
    let written = join_all(writes).await;
    // The journal may have skipped a call whose caller does not wait.
    let first = written.first().is_some_and(Result::is_ok);
    ensure(written.iter().all(|result| result.is_ok() == first), "all were written, or none of them")?;
    let version = store.records.get(&key).await?.map(|record| record.version);
    ensure(version == Some(if first { 50 } else { 1 }), "the version")
}
