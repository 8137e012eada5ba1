//! Properties: the store behaves like a map, and a directory is linked as it was inserted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use conjure_base::{Digest, Timestamp};
use conjure_store::{FileMode, TreeOptions, Verify};
use proptest::prelude::*;

use crate::support::{StoreFixture, set_mode};

#[derive(Debug, Clone)]
enum Operation {
    Insert(Vec<u8>, FileMode),
    Remove(Vec<u8>),
    Collect(BTreeSet<Vec<u8>>),
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    // Few different contents, so that equal ones meet.
    prop_oneof![Just(Vec::new()), prop::collection::vec(0..3_u8, 0..3)]
}

fn variant() -> impl Strategy<Value = FileMode> {
    prop_oneof![Just(FileMode::Plain), Just(FileMode::Executable)]
}

fn act() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (content(), variant()).prop_map(|(bytes, variant)| Operation::Insert(bytes, variant)),
        1 => content().prop_map(Operation::Remove),
        1 => prop::collection::btree_set(content(), 0..6).prop_map(Operation::Collect),
    ]
}

fn name() -> impl Strategy<Value = String> {
    "[ab.]{1,2}".prop_filter("no directory's own names", |name| name != "." && name != "..")
}

fn files() -> impl Strategy<Value = BTreeMap<Vec<String>, (Vec<u8>, bool)>> {
    let path = prop::collection::vec(name(), 1..4);
    prop::collection::btree_map(path, (content(), any::<bool>()), 0..12).prop_map(|files| {
        // A name cannot be a file's and a directory's at once.
        let directories: BTreeSet<Vec<String>> = files
            .keys()
            .flat_map(|path| (1..path.len()).map(|length| path[..length].to_vec()).collect::<Vec<_>>())
            .collect();
        files.into_iter().filter(|(path, _)| !directories.contains(path)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_store_matches_a_reference_model(acts in prop::collection::vec(act(), 0..24)) {
        let fixture = StoreFixture::new();
        let mut model: BTreeMap<(Vec<u8>, FileMode), ()> = BTreeMap::new();
        for act in acts {
            match act {
                Operation::Insert(bytes, variant) => {
                    let inserted = fixture.store.insert_bytes(&bytes, variant).unwrap();
                    prop_assert_eq!(inserted.digest, Digest::of_bytes(&bytes));
                    prop_assert_eq!(inserted.is_new, model.insert((bytes, variant), ()).is_none());
                }
                Operation::Remove(bytes) => {
                    let was_there = fixture.store.remove(&Digest::of_bytes(&bytes)).unwrap();
                    let before = model.len();
                    model.retain(|(other, _), ()| *other != bytes);
                    prop_assert_eq!(was_there, model.len() < before);
                }
                Operation::Collect(live) => {
                    let digests: BTreeSet<String> =
                        live.iter().map(|bytes| Digest::of_bytes(bytes).to_hex()).collect();
                    let later = Timestamp::from_millis(u64::MAX);
                    fixture.store.collect_garbage(|digest| digests.contains(&digest.to_hex()), later).unwrap();
                    model.retain(|(bytes, _), ()| live.contains(bytes));
                }
            }
            let mut stored = fixture.store.digests().unwrap();
            stored.sort_by_key(|(digest, variant)| (digest.to_hex(), *variant));
            let mut expected: Vec<_> =
                model.keys().map(|(bytes, variant)| (Digest::of_bytes(bytes), *variant)).collect();
            expected.sort_by_key(|(digest, variant)| (digest.to_hex(), *variant));
            prop_assert_eq!(stored, expected);
        }
        for (bytes, variant) in model.keys() {
            prop_assert!(fixture.store.contains(&Digest::of_bytes(bytes), *variant).unwrap());
            prop_assert_eq!(fixture.store.get(&Digest::of_bytes(bytes), Verify::Yes).unwrap().size(), bytes.len() as u64);
        }
        fixture.assert_tidy();
    }

    #[test]
    fn directories_round_trip(files in files(), change in any::<prop::sample::Index>()) {
        let fixture = StoreFixture::new();
        let source = fixture.path("source");
        fs::create_dir(&source).unwrap();
        for (path, (bytes, is_executable)) in &files {
            let path = fixture.file(&format!("source/{}", path.join("/")), bytes);
            set_mode(&path, if *is_executable { 0o755 } else { 0o644 });
        }
        let options = TreeOptions::default();
        let tree = fixture.store.insert_tree(&source, &options).unwrap();
        prop_assert_eq!(tree.files().len(), files.len());
        let (dir, directory) = fixture.dir("place");
        fixture.store.link_tree(&tree, &directory).unwrap();
        let second = fixture.store.insert_tree(&dir, &options).unwrap();
        prop_assert_eq!(&second, &tree);
        // Any change of a file changes the digest.
        if let Some((path, (bytes, is_executable))) = files.iter().nth(change.index(files.len().max(1))) {
            let path = source.join(path.join("/"));
            if *is_executable {
                set_mode(&path, 0o644);
            } else {
                fs::write(&path, [bytes.as_slice(), b"x"].concat()).unwrap();
            }
            let changed = fixture.store.insert_tree(&source, &options).unwrap();
            prop_assert_ne!(changed.digest(), tree.digest());
        }
        fixture.assert_tidy();
    }
}
