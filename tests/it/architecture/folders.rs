//! Folders and files stay small enough to be surveyed.

use std::fs;
use std::path::Path;

/// The most files of a folder, besides `mod.rs`, `lib.rs`, `main.rs` and unit tests.
const MAX_FILES: usize = 12;

/// The most lines of a file, unit tests in files of their own not counted.
const MAX_LINES: usize = 450;

#[test]
fn folders_and_files_of_the_sources_are_small() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pending = vec![root.join("src"), root.join("actors/src")];
    pending.extend(fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src")));
    let mut too_large = Vec::new();
    while let Some(folder) = pending.pop() {
        let mut files = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if name != "tests" {
                    pending.push(path);
                }
            } else if name.ends_with(".rs") && name != "tests.rs" {
                files += usize::from(!["mod.rs", "lib.rs", "main.rs"].contains(&name));
                let lines = fs::read_to_string(&path).unwrap().lines().count();
                if lines > MAX_LINES {
                    too_large.push(format!("{}: {lines} lines", path.display()));
                }
            }
        }
        if files > MAX_FILES {
            too_large.push(format!("{}: {files} files", folder.display()));
        }
    }
    assert!(
        too_large.is_empty(),
        "a folder has at most {MAX_FILES} files, a file {MAX_LINES} lines; split these by concept: {too_large:#?}"
    );
}
