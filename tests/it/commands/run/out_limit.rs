//! Copies of `--out`: sparse files stay sparse, and the total size is bounded.

use std::os::unix::fs::MetadataExt as _;

use crate::support::{Conjure, Finished, script};

/// A run in which a tool runs `tool`, with these options; where its copies are.
fn run(tool: &str, options: &[&str]) -> (Finished, tempfile::TempDir) {
    let out = tempfile::tempdir().unwrap();
    let script = script(&format!(
        "- content: [{{tool_use: {{name: bash_tool, input: {{command: '{tool}', description: x}}}}}}]\n- content: Done.\n"
    ));
    let run = Conjure::new(["run", "--ephemeral", "--sandbox", "local", "--script"]).arg(script.path());
    let done = run.args(options).arg("--out").arg(out.path()).arg("Go").finish().code(0);
    (done, out)
}

#[test]
fn sparse_files_stay_sparse() {
    // A hole at the beginning, one in the middle, and one at the end.
    let tool = "truncate -s 1G file; printf here >> file; truncate -s 1500M file; printf there >> file; truncate -s 2G file";
    let (done, out) = run(tool, &["--out-limit", "100m"]);
    done.says("copied to").does_not_say("is not in the directory of `--out`");
    let copy = std::fs::File::open(out.path().join("file")).unwrap();
    let metadata = copy.metadata().unwrap();
    assert_eq!(metadata.len(), 2 << 30);
    let used_bytes = metadata.blocks() * 512;
    assert!(used_bytes < 1 << 20, "{used_bytes} bytes were written for nine");
    let at = |offset: u64| {
        let mut found = [0; 6];
        std::os::unix::fs::FileExt::read_exact_at(&copy, &mut found, offset).unwrap();
        found
    };
    assert_eq!(at((1 << 30) - 1), *b"\0here\0");
    assert_eq!(at(1500 << 20), *b"there\0");
}

#[test]
fn copies_are_bounded_together() {
    let tool = "printf small > a; head -c 3000000 /dev/zero | tr \"\\0\" x > b";
    let (done, out) = run(tool, &["--out-limit", "2m"]);
    done.says(
        "warning: `b` is not in the directory of `--out`: the copies would be larger than 2.0 MiB together",
    )
    .says("`--out-limit SIZE` allows more");
    assert_eq!(std::fs::read_to_string(out.path().join("a")).unwrap(), "small");
    assert!(!out.path().join("b").exists(), "half of it is of no use");
    let (done, out) = run(tool, &[]);
    done.does_not_say("is not in the directory of `--out`");
    assert_eq!(std::fs::metadata(out.path().join("b")).unwrap().len(), 3_000_000);
}

#[test]
fn holes_count_a_little() {
    let (done, out) = run("truncate -s 1T file", &["--out-limit", "1m"]);
    done.says("`file` is not in the directory of `--out`: the copies would be larger than 1.0 MiB together");
    assert!(!out.path().join("file").exists());
}
