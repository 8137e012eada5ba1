//! Whatever the bytes: no panic, bounded memory, nothing left on disk; and what is packed is what is read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::Skill;

/// Small enough to be reached.
fn small() -> PackageLimits {
    PackageLimits {
        archive_bytes: 1 << 16,
        entries: 8,
        total_bytes: 1 << 16,
        entry_bytes: 1 << 15,
        ratio: 20,
        ratio_free_bytes: 1 << 10,
        path_bytes: 64,
        path_depth: 4,
    }
}

/// Reads a package of any bytes; whatever is read is within the limits.
fn read_any(bytes: Vec<u8>) {
    if let Ok(files) = read_all_within(bytes, small()) {
        assert!(files.len() <= small().entries);
        assert!(files.iter().map(|(_, content)| content.len() as u64).sum::<u64>() <= small().total_bytes);
        assert!(files.iter().all(|(path, _)| path.len() <= 64 && !path.split('/').any(|part| part == "..")));
    }
}

fn sample() -> Vec<u8> {
    good_with([
        Raw::new("good/scripts/a.py", "print('content')\n".repeat(20)),
        Raw::stored("good/assets/", ""),
        Raw::new("good/é.md", "x").with(|raw| raw.attributes = 0o100_755 << 16),
    ])
}

proptest! {

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        read_any(bytes);
    }

    #[test]
    fn mutated_packages_never_panic(
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<Index>()),
    ) {
        let mut bytes = sample();
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        read_any(bytes);
    }

    #[test]
    fn entries_of_any_shape_never_panic(
        entries in proptest::collection::vec(
            ("[a.A/:\\\\é]{0,12}", 0..4_u16, proptest::collection::vec(any::<u8>(), 0..64), any::<u32>(), any::<bool>()),
            0..10,
        ),
    ) {
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(name, method, content, attributes, deflated)| {
                let raw = if deflated { Raw::new(&name, &content) } else { Raw::stored(&name, &content) };
                raw.with(|raw| {
                    if method != 0 {
                        raw.attributes = attributes;
                    }
                })
            })
            .collect();
        read_any(archive(&entries));
        read_any(good_with(entries));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn packed_files_round_trip(
        files in proptest::collection::btree_map(
            "[b-y0-9]{1,8}(/[a-z0-9é_-]{1,8}){0,2}",
            (proptest::collection::vec(any::<u8>(), 0..2000), any::<bool>()),
            0..12,
        ),
    ) {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("good");
        write(&dir, "SKILL.md", SKILL_MD);
        let mut written = BTreeMap::from([("SKILL.md".to_owned(), (SKILL_MD.as_bytes().to_vec(), false))]);
        for (path, (content, is_executable)) in files {
            // A path may be a directory's already, or lie beneath a file.
            let target = dir.join(&path);
            if path.starts_with("evals/")
                || target.exists()
                || fs::create_dir_all(target.parent().unwrap()).is_err()
            {
                continue;
            }
            fs::write(&target, &content).unwrap();
            let mode = if is_executable { 0o755 } else { 0o644 };
            fs::set_permissions(&target, fs::Permissions::from_mode(mode)).unwrap();
            written.insert(path, (content, is_executable));
        }
        let output = temp.path().join("out.skill");
        let packed = pack_file(&dir, &output, PackageLimits::default()).unwrap();
        prop_assert_eq!(packed.files.len(), written.len());
        let skill = load_skill_file(&output, Mode::Strict).unwrap();
        for (path, (content, is_executable)) in &written {
            prop_assert_eq!(&skill.read_resource(path).unwrap(), content);
            let mode = fs::metadata(skill.root_dir().join(path)).unwrap().permissions().mode();
            prop_assert_eq!(mode & 0o777, if *is_executable { 0o700 } else { 0o600 });
        }
        let original = Skill::load(&dir, Mode::Strict).unwrap();
        prop_assert_eq!(skill.digests().unwrap(), original.digests().unwrap());
    }
}
