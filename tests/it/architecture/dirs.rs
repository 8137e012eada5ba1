//! Directories and files stay small.

use std::fs;
use std::path::Path;

/// The most files of a directory, of tests as well, besides `mod.rs`, `lib.rs`, `main.rs` and `tests.rs`.
const MAX_FILES: usize = 12;

/// The most lines of a file, tests not counted.
const MAX_LINES: usize = 450;

#[test]
fn directories_and_files_are_small() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut packages = vec![root.to_owned(), root.join("actors")];
    packages.extend(fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path()));
    let mut pending: Vec<_> = packages.iter().flat_map(|it| [it.join("src"), it.join("tests")]).collect();
    pending.retain(|dir| dir.exists());
    let mut too_large = Vec::new();
    while let Some(dir) = pending.pop() {
        let relative_path = dir.strip_prefix(root).unwrap();
        let has_tests = relative_path.iter().any(|part| part == "tests");
        let mut files = 0;
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                pending.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                files += usize::from(!["mod.rs", "lib.rs", "main.rs"].contains(&name));
                let lines = fs::read_to_string(&path).unwrap().lines().count();
                if !has_tests && lines > MAX_LINES {
                    too_large.push(format!("{}: {lines} lines", path.display()));
                }
            }
        }
        if files > MAX_FILES {
            too_large.push(format!("{}: {files} files", relative_path.display()));
        }
    }
    assert!(
        too_large.is_empty(),
        "a directory has at most {MAX_FILES} files, a file {MAX_LINES} lines; split these by concept: {too_large:#?}"
    );
}
