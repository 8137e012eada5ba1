//! Files: made, changed, shown, listed, and whose they are.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use conjure_sandbox::{
    CommandEnd, EntryKind, ExecutionContext, Executor, LineRange, SandboxError, SandboxErrorKind, SharedDir,
    View,
};

use crate::support::{Fixture, Kind, bash, options};

pub(crate) async fn files_are_made_changed_shown_and_listed(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let sandbox = &fixture.sandbox;
    let created = sandbox.create_file("deep/er/notes.txt", b"one\ntwo\nthree\n", options()).await.unwrap();
    assert_eq!((created.size, created.existed), (14, false));
    let changed = sandbox.str_replace("deep/er/notes.txt", "two", "2", options()).await.unwrap();
    assert_eq!((changed.size, changed.existed), (12, true));
    for (old, kind) in [("four", SandboxErrorKind::NoMatch), ("e", SandboxErrorKind::NotUnique)] {
        let error = sandbox.str_replace("deep/er/notes.txt", old, "", options()).await.unwrap_err();
        assert_eq!(error.kind(), kind);
    }
    let range = Some(LineRange { first: 2, last: None });
    let view = sandbox.view("deep/er/notes.txt", range, 1000, options()).await.unwrap();
    let expected = View::Text {
        text: "2\nthree\n".to_owned(),
        first_line: 2,
        last_line: 3,
        total_lines: 3,
        size: 12,
        truncated: false,
    };
    assert_eq!(view, expected);
    let listing = sandbox.list(".", 3, 100, options()).await.unwrap();
    let paths: Vec<_> = listing.entries.iter().map(|entry| (entry.path.as_str(), entry.kind)).collect();
    let expected = [
        ("deep", EntryKind::Directory),
        ("deep/er", EntryKind::Directory),
        ("deep/er/notes.txt", EntryKind::File),
    ];
    assert_eq!(paths, expected);
    let dir = sandbox.view(".", None, 1000, options()).await.unwrap();
    assert!(matches!(dir, View::Directory(listing) if listing.entries.len() == 2));
    let missing = sandbox.read("nothing", options()).await.map(|_| ()).unwrap_err();
    assert_eq!(missing.kind(), SandboxErrorKind::NotFound);
    let device = sandbox.read("/dev/zero", options()).await.map(|_| ()).unwrap_err();
    assert_eq!(device.kind(), SandboxErrorKind::PathNotAllowed);
}

pub(crate) async fn read_only_directories_are_read_only_and_allowed_ones_are_not(kind: &dyn Kind) {
    let (skill, extra) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(skill.path().join("SKILL.md"), "hello").unwrap();
    let fixture = Fixture::with(kind, |context| {
        context.read_only.push(SharedDir::new(skill.path(), "/mnt/skills/hello"));
        context.allowed_paths.push(extra.path().to_owned());
    })
    .await;
    let inside = fixture.sandbox.layout().sandbox_path(&skill.path().join("SKILL.md")).unwrap();
    let inside = inside.to_str().unwrap();
    let view = fixture.sandbox.view(inside, None, 100, options()).await.unwrap();
    assert!(matches!(view, View::Text { text, .. } if text == "hello"));
    let refused = fixture.sandbox.create_file(inside, b"x", options()).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::PathNotAllowed);
    let extra = extra.path().join("x");
    fixture.sandbox.create_file(extra.to_str().unwrap(), b"x", options()).await.unwrap();
    assert_eq!(fs::read(extra).unwrap(), b"x");
}

pub(crate) async fn skills_and_allowed_directories_are_where_they_should_be(kind: &dyn Kind) {
    let dirs = tempfile::tempdir().unwrap();
    let (skill, data) = (dirs.path().join("pdf"), dirs.path().join("data"));
    fs::create_dir_all(skill.join("scripts")).unwrap();
    fs::create_dir(&data).unwrap();
    fs::write(skill.join("SKILL.md"), "# PDF").unwrap();
    fs::write(skill.join("scripts/run.sh"), "#!/bin/sh\necho ran\n").unwrap();
    // Readable by its owner alone, as a careful user's are.
    fs::set_permissions(skill.join("SKILL.md"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(skill.join("scripts/run.sh"), fs::Permissions::from_mode(0o700)).unwrap();
    let fixture = Fixture::with(kind, |context| {
        context.read_only.push(SharedDir::new(&skill, "/mnt/skills/pdf"));
        context.allowed_paths.push(data.clone());
    })
    .await;
    assert_eq!(
        bash(&fixture, "cat /mnt/skills/pdf/SKILL.md; /mnt/skills/pdf/scripts/run.sh").await,
        "# PDFran\n"
    );
    for script in
        ["echo x > /mnt/skills/pdf/x", "rm /mnt/skills/pdf/SKILL.md", "chmod 777 /mnt/skills/pdf/SKILL.md"]
    {
        assert_ne!(fixture.bash(script).await.unwrap().end, CommandEnd::Exited(0), "{script}");
    }
    let data_real = fs::canonicalize(&data).unwrap();
    bash(&fixture, &format!("echo x > {}/made", data_real.display())).await;
    let layout = fixture.sandbox.layout();
    assert_eq!(layout.workspace, Path::new("/workspace"));
    assert_eq!(layout.sandbox_path(&skill.join("SKILL.md")), Some("/mnt/skills/pdf/SKILL.md".into()));
    // It stays what it was, whatever becomes of it on the host.
    fs::write(skill.join("SKILL.md"), "other").unwrap();
    fs::write(skill.join("late"), "later").unwrap();
    assert_eq!(
        bash(&fixture, "cat /mnt/skills/pdf/SKILL.md; ls /mnt/skills/pdf").await,
        "# PDFSKILL.md\nscripts\n"
    );
    let view = fixture.sandbox.view("/mnt/skills/pdf/SKILL.md", None, 100, options()).await.unwrap();
    assert!(matches!(view, View::Text { .. }));
    if !kind.maps_owners() {
        fixture.sandbox.cleanup().await;
    }
    assert_eq!(fs::metadata(data.join("made")).unwrap().uid(), rustix::process::geteuid().as_raw());
}

pub(crate) async fn the_host_can_read_and_delete_files_of_commands(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let script = "umask 077; mkdir -p a/b; echo deep > a/b/c; chmod 000 a/b/c; chmod 500 a; \
                  ln -s /etc/passwd link; mkfifo pipe";
    bash(&fixture, script).await;
    fixture.sandbox.create_file("by-the-guest", b"x", options()).await.unwrap();
    let own_uid = rustix::process::geteuid().as_raw();
    if !kind.maps_owners() {
        fixture.sandbox.cleanup().await;
    }
    for name in ["a", "a/b", "a/b/c", "link", "pipe", "by-the-guest"] {
        assert_eq!(fs::symlink_metadata(fixture.path(name)).unwrap().uid(), own_uid, "{name}");
    }
    fs::set_permissions(fixture.path("a"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(fixture.path("a/b/c"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::read_to_string(fixture.path("a/b/c")).unwrap(), "deep\n");
    if !kind.maps_owners() {
        fs::remove_dir_all(fixture.path("a")).unwrap();
        return;
    }
    // The other way, too: what the host makes is the commands' own.
    fs::write(fixture.path("given"), "from the host").unwrap();
    let change = "test -O given && echo ' and more' >> given && chmod 600 given && cat given";
    assert_eq!(bash(&fixture, change).await, "from the host and more\n");
    fs::remove_dir_all(fixture.path("a")).unwrap();
}

/// The error of opening a sandbox with this context.
async fn refused(kind: &dyn Kind, context: &ExecutionContext) -> SandboxError {
    Fixture::open(kind, context).await.map(|_| "there is a sandbox").unwrap_err()
}

pub(crate) async fn contexts_that_make_no_sense_are_refused(kind: &dyn Kind) {
    let dir = tempfile::tempdir().unwrap();
    let (file, missing) = (dir.path().join("file"), dir.path().join("missing"));
    fs::write(&file, "").unwrap();
    let workspace = dir.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    for (path, expected) in [(&missing, SandboxErrorKind::NotFound), (&file, SandboxErrorKind::WrongFileType)]
    {
        let error = refused(kind, &ExecutionContext::new(path)).await;
        assert!(error.kind() == expected && error.to_string().contains(path.to_str().unwrap()), "{error:?}");
        let read_only = vec![SharedDir::new(path, "/mnt/skills/it")];
        let error = refused(kind, &ExecutionContext { read_only, ..ExecutionContext::new(&workspace) }).await;
        assert!(error.kind() == expected && error.to_string().contains(path.to_str().unwrap()), "{error:?}");
    }
    let allowed_paths = vec![missing];
    let error = refused(kind, &ExecutionContext { allowed_paths, ..ExecutionContext::new(&workspace) }).await;
    assert_eq!(error.kind(), SandboxErrorKind::NotFound, "{error}");
    let environment = [("A=B".to_owned(), String::new())].into();
    let error = refused(kind, &ExecutionContext { environment, ..ExecutionContext::new(&workspace) }).await;
    assert_eq!(error.kind(), SandboxErrorKind::BadRequest, "{error}");
    let read_only = ["/usr/bin", "/usr/lib"].map(|host| SharedDir::new(host, "/mnt/skills/it")).to_vec();
    let error = refused(kind, &ExecutionContext { read_only, ..ExecutionContext::new(&workspace) }).await;
    assert_eq!(error.kind(), SandboxErrorKind::BadRequest, "{error}");
    assert_eq!(fs::read_dir(&workspace).unwrap().count(), 0);
}

/// For a sandbox with its own mount points for directories.
pub(crate) async fn unusable_directories_are_rejected(kind: &dyn Kind) {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    symlink(dir.path(), &link).unwrap();
    let linked = refused(kind, &ExecutionContext::new(&link)).await;
    assert_eq!(linked.kind(), SandboxErrorKind::PathNotAllowed, "{linked}");
    let skill = dir.path().join("skill");
    fs::create_dir_all(skill.join("work")).unwrap();
    for workspace in [skill.join("work"), skill.clone()] {
        let mut context = ExecutionContext::new(&workspace);
        context.read_only.push(SharedDir::new(&skill, "/mnt/skills/skill"));
        let error = refused(kind, &context).await;
        assert_eq!(error.kind(), SandboxErrorKind::PathNotAllowed, "{error}");
        assert!(error.to_string().contains("choose another workspace"), "{error}");
    }
}
