//! Files that the host reads from a session's workspace, which commands may have prepared against it.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;

use conjure::RuntimeError;
use conjure::config::ExecutorKind;

use crate::runtime::fixture::{Fixture, soon, spec, tenant};

#[tokio::test]
async fn files_with_holes_are_listed_only_up_to_the_disk_limit() {
    let (fixture, directory) = (Fixture::new(ExecutorKind::Local), tempfile::tempdir().unwrap());
    let runtime = fixture.start().await;
    let session = runtime.open(spec().workspace(directory.path())).await.unwrap();
    let out = directory.path().join("out");
    std::fs::create_dir(&out).unwrap();
    for name in ["a", "b", "c"] {
        File::create(out.join(name)).unwrap().set_len(500 << 20).unwrap();
    }
    std::fs::write(out.join("d"), "small").unwrap();
    let found = runtime.workspace_files(&tenant("acme"), session.id(), Path::new("out")).await.unwrap();
    let names: Vec<&str> = found.iter().map(|file| file.path.to_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "d"]);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_link_to_a_workspace_is_followed_when_the_session_opens_and_not_later() {
    let (fixture, directory) = (Fixture::new(ExecutorKind::Local), tempfile::tempdir().unwrap());
    let (work, other, link) =
        (directory.path().join("work"), directory.path().join("other"), directory.path().join("link"));
    for dir in [&work, &other] {
        std::fs::create_dir_all(dir.join("out")).unwrap();
        std::fs::write(dir.join("out/file"), "text").unwrap();
    }
    symlink(&work, &link).unwrap();
    let (runtime, acme) = (fixture.start().await, tenant("acme"));
    let session = runtime.open(spec().workspace(&link)).await.unwrap();
    let upload = runtime.upload_file(&acme, "first", 100).await.unwrap();
    upload.push(b"x").await.unwrap().finish().await.unwrap();
    let (id, file) = (session.id(), Path::new("out/file"));
    let copy = |place: &'static str| runtime.copy_to_workspace(&acme, id, "first", Path::new(place));
    copy("out/one").await.unwrap();
    assert!(work.join("out/one").exists());
    assert_eq!(runtime.workspace_files(&acme, id, Path::new("out")).await.unwrap().len(), 2);
    assert!(runtime.open_workspace_file(&acme, id, file).await.unwrap().is_some());

    // Commands of another session, which works in the directory above, can do this.
    std::fs::rename(&work, directory.path().join("moved")).unwrap();
    symlink(&other, &work).unwrap();
    for error in [
        copy("out/two").await.unwrap_err(),
        runtime.workspace_files(&acme, id, Path::new("out")).await.unwrap_err(),
        runtime.open_workspace_file(&acme, id, file).await.unwrap_err(),
        runtime.remove_from_workspace(&acme, id, file).await.unwrap_err(),
    ] {
        assert!(matches!(error, RuntimeError::WorkspaceFile { .. }), "{error}");
    }
    assert!(other.join("out/file").exists() && !other.join("out/two").exists());
    runtime.shutdown(soon()).await.unwrap();
}
