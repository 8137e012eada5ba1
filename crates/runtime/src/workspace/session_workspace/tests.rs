//! Behaviour of a session's directory.

use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use super::*;
use crate::error::ErrorKind;
use crate::workspace::ProducedFile;

fn source(name: &str, content: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    (dir, path)
}

#[test]
fn a_temporary_directory_is_private_and_goes_unless_it_is_kept() {
    let gone = SessionWorkspace::temporary().unwrap();
    let path = gone.path().to_owned();
    let around = path.parent().unwrap().to_owned();
    for dir in [&path, &around] {
        assert_eq!(std::fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
    }
    drop(gone);
    assert!(!around.exists());

    let mut kept = SessionWorkspace::temporary().unwrap();
    kept.keep().unwrap();
    let path = kept.path().to_owned();
    drop(kept);
    assert!(path.exists());
    let data = path.ancestors().nth(3).unwrap();
    assert!(!data.join("store").exists() && !data.join("sandboxes").exists());
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn a_directory_of_the_embedders_stays_and_must_be_one() {
    let dir = tempfile::tempdir().unwrap();
    drop(SessionWorkspace::existing(dir.path()).unwrap());
    assert!(dir.path().exists());
    let missing = SessionWorkspace::existing(&dir.path().join("missing")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::FileNotFound);
    let (_guard, file) = source("a", "");
    assert!(SessionWorkspace::existing(&file).is_err());
}

#[test]
fn inputs_are_copied_and_a_name_is_taken_once() {
    let workspace = SessionWorkspace::temporary().unwrap();
    let (_a, first) = source("data.csv", "1");
    let (_b, second) = source("data.csv", "2");
    let copy = workspace.add_file(&first).unwrap();
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "1");
    let collision = workspace.add_file(&second).unwrap_err();
    assert!(collision.to_string().ends_with("the workspace has another file of that name"), "{collision}");
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "1");
    // The file of the workspace itself is in its place already.
    assert_eq!(workspace.add_file(&copy).unwrap(), copy);
}

#[test]
fn devices_and_directories_and_links_to_them_are_no_inputs() {
    let workspace = SessionWorkspace::temporary().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
    for path in [Path::new("/dev/zero"), dir.path(), &link] {
        let error = workspace.add_file(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", path.display());
    }
    assert_eq!(std::fs::read_dir(workspace.path()).unwrap().count(), 0);
}

#[test]
fn what_is_new_or_changed_is_produced_and_the_rest_is_not() {
    let workspace = SessionWorkspace::temporary().unwrap();
    let write = |name: &str, content: &str| std::fs::write(workspace.path().join(name), content).unwrap();
    write("input", "1");
    write("edited", "1");
    let before = workspace.snapshot();
    std::fs::create_dir_all(workspace.path().join("a/b")).unwrap();
    write("a/b/new", "123");
    write("edited", "22");
    std::os::unix::fs::symlink("/etc", workspace.path().join("link")).unwrap();
    let produced = workspace.produced_since(&before);
    let expected = [("a/b/new", 3, false), ("edited", 2, true)].map(|(path, size, existed)| ProducedFile {
        path: path.into(),
        size,
        existed,
    });
    assert_eq!(produced, ProducedFiles { files: expected.into(), complete: true });
}

#[test]
fn of_a_directory_that_was_too_large_what_was_not_touched_is_not_produced() {
    let workspace = SessionWorkspace::temporary().unwrap();
    let path = |name: &str| workspace.path().join(name);
    for name in 0..20 {
        std::fs::write(path(&name.to_string()), "old").unwrap();
    }
    let before = WorkspaceSnapshot::with_limit(workspace.path(), 5);
    assert_eq!(workspace.produced_since(&before), ProducedFiles { files: Vec::new(), complete: false });
    // The system dates files by a clock of coarse ticks: the first dates may lie before the snapshot.
    let names: Vec<PathBuf> = ["3", "new"].map(PathBuf::from).into();
    for _ in 0..1_000_000 {
        std::fs::write(path("3"), "other").unwrap();
        std::fs::write(path("new"), "").unwrap();
        let produced = workspace.produced_since(&before);
        assert!(!produced.complete);
        if produced.files.iter().map(|file| &file.path).eq(&names) {
            return;
        }
    }
    panic!("what was changed is not listed");
}

/// What commands may make of their directory leads the host nowhere, and its size bounds the look.
#[test]
fn links_and_depth_lead_nowhere() {
    let workspace = SessionWorkspace::temporary().unwrap();
    let (outside, _) = source("secret", "x");
    std::os::unix::fs::symlink(outside.path(), workspace.path().join("directory")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), workspace.path().join("file")).unwrap();
    std::os::unix::fs::symlink(".", workspace.path().join("circle")).unwrap();
    let before = WorkspaceSnapshot::default();
    assert_eq!(workspace.produced_since(&before), ProducedFiles { files: Vec::new(), complete: true });

    let mut dir = rustix::fs::open(workspace.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..2_000 {
        rustix::fs::mkdirat(&dir, "deeper", Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, "deeper", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    drop(rustix::fs::openat(&dir, "file", OFlags::CREATE, Mode::RUSR).unwrap());
    let produced = workspace.produced_since(&before);
    assert_eq!((produced.files.len(), produced.complete), (0, false));
    // A root that is a link is no directory of a session.
    let link = outside.path().join("link");
    std::os::unix::fs::symlink(workspace.path(), &link).unwrap();
    assert_eq!(WorkspaceSnapshot::new(&link).produced_since(&before).files.len(), 0);
}

/// Whatever is in it: directories without permissions, and deeper than any path can tell.
#[test]
fn a_temporary_directory_goes_whatever_is_in_it() {
    let data = tempfile::tempdir().unwrap();
    let data = DataDir::open(data.path()).unwrap();
    let workspace = SessionWorkspace::private(&data).unwrap();
    let path = workspace.path().to_owned();
    std::fs::create_dir_all(path.join("a/b")).unwrap();
    std::fs::write(path.join("a/b/c"), "").unwrap();
    std::os::unix::fs::symlink("/", path.join("a/b/root")).unwrap();
    for name in ["a/b", "a", ""] {
        std::fs::set_permissions(path.join(name), std::fs::Permissions::from_mode(0o000)).unwrap();
    }
    drop(workspace);
    assert!(!path.exists() && !path.parent().unwrap().exists());
}

#[test]
fn a_real_path_leads_through_no_link() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(top.join("real/inner")).unwrap();
    std::os::unix::fs::symlink("real", top.join("link")).unwrap();
    std::fs::write(top.join("file"), "").unwrap();
    let found = SessionWorkspace::at_real_path(&top.join("real/inner")).unwrap();
    assert_eq!(found.path(), top.join("real/inner"));
    for path in ["link", "link/inner"] {
        let refused = SessionWorkspace::at_real_path(&top.join(path)).unwrap_err().to_string();
        assert!(refused.contains("a symbolic link stands in the path"), "{refused}");
    }
    assert!(SessionWorkspace::at_real_path(&top.join("file")).is_err());
    // One that was put there since it was opened.
    std::fs::rename(top.join("real"), top.join("moved")).unwrap();
    std::os::unix::fs::symlink("moved", top.join("real")).unwrap();
    assert!(found.add_file(&top.join("file")).is_err());
    assert!(!top.join("moved/inner/file").exists());
}
