use std::os::unix::fs::MetadataExt as _;

use conjure_base::Timestamp;

use super::*;

struct Fixture {
    /// What goes with it.
    _dir: tempfile::TempDir,
    store: Store,
    kept: ArtifactPins,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        let kept = ArtifactPins::new(dir.path(), SessionId::from_bits(1), store.clone());
        Self { _dir: dir, store, kept }
    }

    fn content(&self, text: &str) -> ArtifactContent {
        let inserted = self.store.insert_bytes(text.as_bytes(), FileMode::Plain).unwrap();
        ArtifactContent { digest: inserted.digest, size: inserted.size }
    }

    fn keep(&self, epoch: u64, contents: &[&ArtifactContent]) {
        let contents: Vec<_> = contents.iter().copied().cloned().collect();
        self.kept.sync(Epoch::from_number(epoch), &contents).unwrap();
    }

    fn hold(&self, epoch: u64, content: &ArtifactContent) -> Result<(), StoreError> {
        self.kept.link(Epoch::from_number(epoch), content)
    }

    /// How many links each incarnation has.
    fn links(&self) -> Vec<(String, usize)> {
        let count = |epoch: String| {
            let links = names_in(&self.kept.dir.join(&epoch)).unwrap().len();
            (epoch, links)
        };
        let mut all: Vec<_> = names_in(&self.kept.dir).unwrap().into_iter().map(count).collect();
        all.sort();
        all
    }

    /// As a janitor does it when nothing is young.
    fn collect(&self) -> u64 {
        let linked = self.store.linked_digests().unwrap();
        let late = Timestamp::from_millis(u64::MAX);
        self.store.collect_garbage(|digest| linked.contains(digest), late).unwrap().removed
    }
}

#[test]
fn contents_that_a_session_names_are_never_collected_and_others_are() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.content("a"), fixture.content("b"));
    for _ in 0..2 {
        fixture.keep(1, &[&a, &b, &a]);
        assert_eq!(fixture.links(), [("1".to_owned(), 2)]);
    }
    let path = fixture.kept.current_epoch_dir(Epoch::from_number(1)).join(a.digest.to_hex());
    assert_eq!(fs::metadata(path).unwrap().nlink(), 2);
    assert_eq!(fixture.collect(), 0);
    fixture.keep(1, &[&b]);
    assert_eq!((fixture.links(), fixture.collect()), (vec![("1".to_owned(), 1)], 1));
    // What is lost is left out: the next use says so.
    fixture.keep(1, &[&a, &b]);
    assert_eq!(fixture.links(), [("1".to_owned(), 1)]);
    fixture.keep(1, &[]);
    assert_eq!((fixture.links(), fixture.collect()), (vec![], 1));
}

#[test]
fn a_content_is_held_beside_what_is_kept_and_one_that_is_lost_is_refused() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.content("a"), fixture.content("b"));
    fixture.keep(1, &[&a]);
    for _ in 0..2 {
        fixture.hold(1, &b).unwrap();
    }
    assert_eq!((fixture.links(), fixture.collect()), (vec![("1".to_owned(), 2)], 0));
    fixture.keep(1, &[]);
    assert_eq!(fixture.collect(), 2);
    assert!(matches!(fixture.hold(1, &b), Err(StoreError::NotFound { .. })));
}

#[test]
fn whoever_was_taken_over_takes_nothing_from_its_successor() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.content("a"), fixture.content("b"));
    fixture.keep(9, &[&a]);
    fixture.keep(10, &[&a, &b]);
    assert_eq!(fixture.links(), [("10".to_owned(), 2)]);
    // What was on its way on a thread.
    fixture.hold(9, &a).unwrap();
    fixture.keep(9, &[]);
    assert_eq!((fixture.links(), fixture.collect()), (vec![("10".to_owned(), 2)], 0));
    fixture.hold(9, &a).unwrap();
    fixture.keep(11, &[&b]);
    assert_eq!((fixture.links(), fixture.collect()), (vec![("11".to_owned(), 1)], 1));
}

#[test]
fn what_only_an_earlier_incarnation_has_is_put_back_where_it_is_what_it_was() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.content("a"), fixture.content("b"));
    fixture.keep(1, &[&a, &b]);
    for content in [&a, &b] {
        assert!(fixture.store.remove(&content.digest).unwrap());
    }
    let path = fixture.kept.current_epoch_dir(Epoch::from_number(1)).join(b.digest.to_hex());
    fs::remove_file(&path).unwrap();
    fs::write(&path, "another").unwrap();
    fixture.keep(2, &[&a, &b]);
    assert_eq!(fixture.links(), [("2".to_owned(), 1)]);
    assert!(fixture.store.contains(&a.digest, FileMode::Plain).unwrap());
    assert!(!fixture.store.contains(&b.digest, FileMode::Plain).unwrap());
}
