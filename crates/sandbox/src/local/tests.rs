//! What can be said without a guest; `tests/local.rs` has the rest.

use std::path::PathBuf;
use std::sync::Arc;

use conjure_base::{Deadline, SystemClock};

use super::Local;
use crate::{Boundary, Connector, ExecutionContext, Isolation, Sandbox, SandboxErrorKind, SharedDir};

async fn refusal(context: ExecutionContext) -> (SandboxErrorKind, String) {
    let error = Local::without_isolation([]).connect(&context).await.unwrap_err();
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn a_directory_that_is_missing_or_none_is_named() {
    let workspace = tempfile::tempdir().unwrap();
    let file = workspace.path().join("file");
    std::fs::write(&file, "").unwrap();
    let good = || ExecutionContext::new(workspace.path());
    let cases = [
        (ExecutionContext::new("/nowhere/at/all"), SandboxErrorKind::NotFound, "workspace `/nowhere/at/all`"),
        (ExecutionContext::new(&file), SandboxErrorKind::WrongFileType, "is not a directory"),
        (
            ExecutionContext { read_only: vec![SharedDir::new("/nowhere", "/mnt/skills/a")], ..good() },
            SandboxErrorKind::NotFound,
            "read-only directory `/nowhere`",
        ),
        (
            ExecutionContext { allowed_paths: vec![PathBuf::from("/nowhere")], ..good() },
            SandboxErrorKind::NotFound,
            "allowed path `/nowhere`",
        ),
    ];
    for (context, kind, part) in cases {
        let (actual, message) = refusal(context).await;
        assert_eq!(actual, kind);
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn what_it_cannot_enforce_is_refused_where_it_is_demanded() {
    let workspace = tempfile::tempdir().unwrap();
    let floor = Isolation { memory: Boundary::Enforced, disk: Boundary::Enforced, ..Isolation::NONE };
    let context = ExecutionContext { floor, ..ExecutionContext::new(workspace.path()) };
    let local = Local::without_isolation([]);
    let opened = Sandbox::open(&local, &context, Arc::new(SystemClock), Deadline::NEVER).await;
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::NotEnforced);
    assert!(error.to_string().contains("demanded of it: memory, disk;"), "{error}");
}
