//! Opening the data directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use conjure_sandbox::{Connector as _, DataDir, SandboxErrorKind};

use crate::fixture::jail;

#[test]
fn an_unusable_data_directory_is_rejected_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = DataDir::open(&file.join("data")).unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unavailable, "{error}");
    let shared = dir.path().join("shared");
    fs::create_dir_all(shared.join("store")).unwrap();
    fs::set_permissions(shared.join("store"), fs::Permissions::from_mode(0o777)).unwrap();
    let error = DataDir::open(&shared).unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unavailable, "{error}");
    // By a link, it is the directory that it leads to.
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    assert_eq!(DataDir::open(&link).unwrap().path(), fs::canonicalize(&real).unwrap());
    assert!(jail(&DataDir::open(&real).unwrap()).isolation().disk == conjure_sandbox::Boundary::Watched);
    // A temporary directory is removed with its content.
    let temporary = DataDir::temporary().unwrap();
    let path = temporary.path().to_owned();
    let workspace = temporary.workspace().unwrap();
    fs::write(workspace.path().join("file"), "").unwrap();
    drop(temporary);
    assert!(path.exists());
    drop(workspace);
    assert!(!path.exists());
}

#[test]
fn a_named_workspace_stays_until_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(dir.path()).unwrap();
    let path = data.named_workspace("ses_1").unwrap();
    let parent = path.parent().unwrap();
    assert_eq!(fs::metadata(parent).unwrap().permissions().mode() & 0o777, 0o700);
    fs::write(path.join("file"), "kept").unwrap();
    // Changes that commands may make to it.
    fs::create_dir(path.join("deep")).unwrap();
    fs::set_permissions(path.join("deep"), fs::Permissions::from_mode(0o000)).unwrap();
    drop(data);
    // Opening it sweeps what has no name.
    let data = DataDir::open(dir.path()).unwrap();
    assert_eq!(data.named_workspace("ses_1").unwrap(), path);
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "kept");
    assert_eq!((data.remove_workspace("ses_1"), data.remove_workspace("ses_1")), (Ok(true), Ok(false)));
    assert!(!parent.exists());
    for name in ["", "..", "1-2", "dead-1-2", "a/b", "A", &"a".repeat(129)] {
        let error = data.named_workspace(name).unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::BadRequest, "{error}");
        assert_eq!(data.remove_workspace(name).unwrap_err().kind(), SandboxErrorKind::BadRequest);
    }
}
