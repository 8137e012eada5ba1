//! Files that the host reads from a session's workspace, which commands may have prepared against it.

use std::fs::File;
use std::path::Path;

use conjure::config::ExecutorKind;

use crate::runtime::fixture::{Fixture, soon, spec, tenant};

#[tokio::test]
async fn files_with_holes_are_listed_only_up_to_the_disk_limit() {
    let (fixture, folder) = (Fixture::new(ExecutorKind::Local), tempfile::tempdir().unwrap());
    let runtime = fixture.start().await;
    let session = runtime.open(spec().workspace(folder.path())).await.unwrap();
    let out = folder.path().join("out");
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
