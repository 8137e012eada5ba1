//! The jail, against the machine's real namespaces: what every kind of sandbox must show, and what is the jail's own.
//!
//! A test process that is root runs all of this a second time, as a user that owns nothing.

#![expect(clippy::unwrap_used, reason = "tests fail by panic")]

#[cfg_attr(feature = "docker", expect(dead_code, reason = "the container tests use the rest of the module"))]
mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Arc;

use conjure_sandbox::{
    Boundary, Command, Connector, ExecutionContext, Executor, Isolation, Jail, Sandbox, SandboxErrorKind,
};
use futures_util::future;
use support::{
    Fixture, Kind, PatientClock, bash, control_groups, first_in_namespace, guest_of_process, host, options,
    output_of, sigkill, soon,
};

struct JailKind;

impl Kind for JailKind {
    fn connector(&self) -> Box<dyn Connector> {
        Box::new(jail())
    }

    fn guest(&self, pid: i32, _: u32) -> i32 {
        first_in_namespace(pid)
    }

    fn leftovers_of(&self, host: u32) -> Vec<String> {
        // It looks for what dead hosts left.
        drop(jail());
        control_groups(&format!("-{host}-"))
    }
}

/// A jail for a host that has something to hide.
fn jail() -> Jail {
    test_support::need_user_namespaces();
    Jail::new(host())
}

/// True if this process is root, which a jail treats differently.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

conformance! { every: JailKind }
conformance! { shared: JailKind }
conformance! { isolated: JailKind }
conformance! { isolated_and_shared: JailKind }
conformance! { usable: JailKind }

#[tokio::test]
async fn host_directories_are_invisible() {
    let fixture = Fixture::of(&JailKind).await;
    let absent = "/root /boot /sys /var/lib /var/log /etc/shadow /etc/ssh /etc/ssl/private /etc/sudoers";
    let script = format!("for path in {absent}; do test -e $path && echo $path; done; true");
    assert_eq!(bash(&fixture, &script).await, "");
    assert_eq!(bash(&fixture, "ls /home; ls -A /tmp; ls -A ~; id -u").await, "sandbox\n1000\n");
}

#[tokio::test]
async fn the_achieved_isolation_is_reported_and_can_be_required() {
    let jail = jail();
    let fixture = Fixture::of(&JailKind).await;
    let achieved = fixture.sandbox.isolation();
    let whole =
        [achieved.filesystem, achieved.network, achieved.processes, achieved.syscalls, achieved.files];
    for boundary in whole {
        assert_eq!(boundary, Boundary::Enforced, "{achieved:?}");
    }
    assert_eq!(achieved.identity, Boundary::enforced_if(is_root()));
    assert_eq!(achieved.disk, Boundary::Watched);
    jail.isolation().require(&achieved).expect("no more than the kind promises");
    // The size of further directories is not measured.
    let floor = Isolation { disk: Boundary::Enforced, ..Isolation::NONE };
    let further = tempfile::tempdir().unwrap();
    let allowed_paths = vec![further.path().to_owned()];
    let context =
        ExecutionContext { floor, allowed_paths, ..ExecutionContext::new(fixture.workspace.path()) };
    let error = Fixture::open(&JailKind, &context).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::NotEnforced);
    assert!(error.to_string().contains("disk"), "{error}");
    let floor = achieved;
    let open = ExecutionContext { floor, ..ExecutionContext::new(fixture.workspace.path()) };
    assert!(Sandbox::open(&jail, &open, Arc::new(PatientClock), soon(120)).await.is_ok());
}

/// When either of its two processes is killed, the sandbox ends, and the next call reports that.
#[tokio::test]
async fn a_jail_whose_process_outside_is_killed_leaves_nothing() {
    let fixture = Fixture::of(&JailKind).await;
    let script = fixture.start_background_processes();
    let calling = fixture.sandbox.run(Command::bash(&script), options());
    let killing = async {
        fixture.until_sleeping(3).await;
        sigkill(guest_of_process(fixture.sleeper_pid(), std::process::id()));
    };
    let (outcome, ()) = future::join(calling, killing).await;
    assert_eq!(outcome.unwrap_err().kind(), SandboxErrorKind::Lost);
    fixture.until_no_marked_process().await;
    assert_eq!(fixture.bash("true").await.unwrap_err().kind(), SandboxErrorKind::Lost);
}

/// A host that is root may run commands for another user.
#[tokio::test]
async fn a_workspace_keeps_its_owner() {
    if !is_root() {
        // It could not give its directory away.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let workspace = dir.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    std::os::unix::fs::chown(&workspace, Some(1234), Some(2345)).unwrap();
    let sandbox =
        Sandbox::open(&jail(), &ExecutionContext::new(&workspace), Arc::new(PatientClock), soon(120))
            .await
            .unwrap();
    let outcome = sandbox.run(Command::bash("stat -c %U . && echo x > made"), options()).await.unwrap();
    assert_eq!(output_of(&outcome), "sandbox\n");
    let file_metadata = fs::metadata(workspace.join("made")).unwrap();
    assert_eq!((file_metadata.uid(), file_metadata.gid()), (1234, 2345));
}

/// A file system in memory that does not support ID-mapped mounts. It is unmounted on drop.
struct UnmappableTmpfs(tempfile::TempDir);

impl UnmappableTmpfs {
    #[expect(clippy::disallowed_methods, reason = "tests mount and unmount")]
    fn mount() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mounted =
            std::process::Command::new("mount").args(["-t", "ramfs", "none"]).arg(dir.path()).status();
        assert!(mounted.unwrap().success());
        Self(dir)
    }
}

impl Drop for UnmappableTmpfs {
    #[expect(clippy::disallowed_methods, reason = "tests mount and unmount")]
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn without_id_mapped_mounts_ownership_is_transferred_and_returned() {
    if !is_root() {
        // Owners are not mapped for an unprivileged host.
        return;
    }
    let memory = UnmappableTmpfs::mount();
    let workspace = memory.0.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    fs::write(workspace.join("given"), "x").unwrap();
    fs::write(workspace.join("linked"), "x").unwrap();
    fs::hard_link(workspace.join("linked"), memory.0.path().join("elsewhere")).unwrap();
    std::os::unix::fs::chown(workspace.join("given"), Some(0), Some(0)).unwrap();
    let open = async || {
        Sandbox::open(&jail(), &ExecutionContext::new(&workspace), Arc::new(PatientClock), soon(120))
            .await
            .unwrap()
    };
    let sandbox = open().await;
    // Directories within directories, more than one could have open.
    let script = "stat -c %U . given; echo y >> given; \
                  perl -e 'for (1..3000) { mkdir \"d\"; chdir \"d\" or die } open my $f, \">\", \"z\" or die'";
    let outcome = sandbox.run(Command::bash(script), options()).await.unwrap();
    assert_eq!(output_of(&outcome), "sandbox\nsandbox\n");
    let during = fs::metadata(workspace.join("given")).unwrap().uid();
    assert!(during > 1_000_000, "the owner is the jail's user during the call: {during}");
    assert_eq!(fs::metadata(workspace.join("linked")).unwrap().uid(), 0, "it has a name elsewhere");
    sandbox.cleanup().await;
    for name in ["", "given", "d/d/d"] {
        assert_eq!(fs::metadata(workspace.join(name)).unwrap().uid(), 0, "{name}");
    }
    // After a crash of the host the files belong to the jail's user; the next jail returns them, and works.
    for path in [workspace.clone(), workspace.join("given")] {
        std::os::unix::fs::chown(path, Some(during), Some(during)).unwrap();
    }
    let sandbox = open().await;
    let outcome = sandbox.run(Command::bash("stat -c %U . given"), options()).await.unwrap();
    assert_eq!(output_of(&outcome), "sandbox\nsandbox\n");
    sandbox.cleanup().await;
    assert_eq!(fs::metadata(workspace.join("given")).unwrap().uid(), 0);
}

// ---------------------------------------------------------------------------------------------------------------
// Once more, for a host that is not root.

#[test]
#[expect(clippy::disallowed_methods, reason = "a test runs itself")]
fn the_suite_passes_for_an_unprivileged_host() {
    use std::os::unix::process::CommandExt as _;

    const NOBODY: u32 = 65534;
    if !is_root() {
        return;
    }
    // Where that user can reach it.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("jail");
    // By another process: what this one has open for writing, or a child forked just then, cannot be run.
    let copied =
        std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    let outcome = std::process::Command::new(program)
        // The guest is the same: that memory stays flat is shown once.
        .args(["--skip", "memory_is_flat"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env_remove("TMPDIR")
        // Cases that need root are skipped there.
        .env_remove(test_support::REQUIRE)
        .output();
    let outcome = outcome.unwrap();
    let output = String::from_utf8_lossy(&outcome.stdout);
    assert!(outcome.status.success(), "{output}{}", String::from_utf8_lossy(&outcome.stderr));
    assert!(output.contains("test a_killed_host_leaves_nothing ... ok"), "{output}");
}
