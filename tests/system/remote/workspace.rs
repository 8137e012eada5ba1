//! The workspace of a sandbox without shared directories: it is copied in and out.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use conjure_sandbox::{
    Command, DockerOptions, ExecutionContext, Executor, HostMount, SandboxErrorKind, SharedDir,
};

use crate::Remote;
use crate::support::conformance::pauses;
use crate::support::{options, output_of};

#[tokio::test]
async fn the_workspace_is_copied_in_and_changes_are_copied_out() {
    let Some(remote) = Remote::new() else { return };
    let workspace = remote.data.workspace().unwrap();
    let path = |name: &str| workspace.path().join(name);
    fs::create_dir_all(path("in/deep")).unwrap();
    fs::write(path("in/deep/text"), "from the host\n").unwrap();
    fs::write(path("run.sh"), "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(path("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(path("big"), vec![7; 10 << 20]).unwrap();
    fs::create_dir(path("empty")).unwrap();
    std::os::unix::fs::symlink("big", path("link-of-the-host")).unwrap();
    let sandbox = remote.open(&ExecutionContext::new(workspace.path())).await.unwrap();
    let script = "./run.sh; cat in/deep/text; wc -c < big; mkdir -p out/deep; echo made > out/deep/file; \
                  echo more >> in/deep/text; ln -s in link; rm run.sh; : > .hidden; rmdir empty; mkdir -p new/empty; \
                  printf '#!/bin/sh\\necho again\\n' > again.sh; chmod 755 again.sh";
    let outcome = sandbox.run(Command::new(["sh", "-c", script]), options()).await.unwrap();
    assert_eq!(output_of(&outcome), format!("ran\nfrom the host\n{}\n", 10 << 20));
    assert!(!path("out").exists());
    let told = sandbox.take_model_notice().unwrap();
    assert!(told.contains("`link-of-the-host`"), "{told}");
    let brought = sandbox.copy_out(options()).await.unwrap();
    assert_eq!((brought.files, brought.bytes), (4, 5 + 19 + 21));
    let skipped: Vec<_> = brought.skipped.iter().map(|skipped| skipped.path.as_str()).collect();
    assert_eq!(skipped, ["link"]);
    assert_eq!(fs::read_to_string(path("out/deep/file")).unwrap(), "made\n");
    assert_eq!(fs::read_to_string(path("in/deep/text")).unwrap(), "from the host\nmore\n");
    assert!(path(".hidden").exists() && path("run.sh").exists() && !path("link").exists());
    // Only what was changed since.
    assert_eq!(sandbox.copy_out(options()).await.unwrap().files, 0);
    sandbox.create_file("out/late", b"x", options()).await.unwrap();
    assert_eq!(sandbox.copy_out(options()).await.unwrap().files, 1);
    sandbox.cleanup().await;
    assert_eq!(sandbox.copy_out(options()).await.unwrap_err().kind(), SandboxErrorKind::Lost);
    // The next one continues with what was brought back.
    let next = remote.open(&ExecutionContext::new(workspace.path())).await.unwrap();
    let outcome =
        next.run(Command::bash("cat out/deep/file out/late; ./again.sh; ls new"), options()).await.unwrap();
    assert_eq!(output_of(&outcome), "made\nxagain\nempty\n");
    // A path that changed its kind does not prevent the copy of the others.
    let script = "rm -r out; echo file > out; rm again.sh; mkdir again.sh; echo in > again.sh/x";
    next.run(Command::bash(script), options()).await.unwrap();
    assert_eq!(next.copy_out(options()).await.unwrap().files, 2);
    assert_eq!(fs::read_to_string(path("out")).unwrap(), "file\n");
    assert_eq!(fs::read_to_string(path("again.sh/x")).unwrap(), "in\n");
    next.cleanup().await;
    remote.containers.until_nothing_is_left().await;
}

#[tokio::test]
async fn files_of_a_paused_sandbox_are_copied_out() {
    let Some(remote) = Remote::new() else { return };
    let (sandbox, workspace) = remote.sandbox().await;
    let count = "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.001; done";
    let mark = workspace.path().to_str().unwrap();
    let script = format!(
        "setsid bash -c '{count}' {mark} > /dev/null 2>&1 & while [ ! -e count ]; do sleep 0.001; done"
    );
    output_of(&sandbox.run(Command::bash(&script), options()).await.unwrap());
    pauses::pause_sandbox(&sandbox).await;
    pauses::until_no_process_is_uninterruptible(mark).await;
    assert!(sandbox.copy_out(options()).await.unwrap().files >= 1);
    let before = fs::read_to_string(workspace.path().join("count")).unwrap();
    sandbox.create_file("late", b"x", options()).await.unwrap();
    assert_eq!(sandbox.copy_out(options()).await.unwrap().files, 1, "a paused process changes nothing");
    sandbox.resume(options()).await.unwrap();
    let goes_on = format!("while read now < count; [ \"$now\" = {} ]; do sleep 0.001; done", before.trim());
    output_of(&sandbox.run(Command::bash(&goes_on), options()).await.unwrap());
    sandbox.cleanup().await;
    remote.containers.until_nothing_is_left().await;
}

#[tokio::test]
async fn host_directories_are_rejected_with_a_hint() {
    let Some(remote) = Remote::new() else { return };
    let (own_dir, dir) = (remote.data.workspace().unwrap(), tempfile::tempdir().unwrap());
    let context = ExecutionContext::new(own_dir.path());
    let cases = [
        (ExecutionContext::new(dir.path()), "a session's own workspace"),
        (
            ExecutionContext { allowed_paths: vec![dir.path().to_owned()], ..context.clone() },
            "from the workspace",
        ),
        (
            ExecutionContext { read_only: vec![SharedDir::new(dir.path(), "/data")], ..context.clone() },
            "`/mnt/skills/NAME` or `/artifacts/NAME`",
        ),
    ];
    for (context, message) in cases {
        let refused = remote.open(&context).await.unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::PathNotAllowed, "{refused}");
        assert!(refused.to_string().contains(message) && refused.to_string().contains("tcp://"), "{refused}");
    }
    let volume: HostMount = format!("{}:/data", dir.path().display()).parse().unwrap();
    let options = DockerOptions { volumes: vec![volume], ..remote.options() };
    let connector = conjure_sandbox::Docker::new(options, []).with_data(remote.data.clone());
    let refused = crate::container_fixture::open(&connector, &context).await.unwrap_err();
    assert!(refused.to_string().contains("the volume"), "{refused}");
    assert!(remote.containers.containers().await.is_empty());
}
