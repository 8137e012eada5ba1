//! Podman without root's rights: tests of this program once more, by a user who has a service of their own.
//!
//! State: one service and one run of this program, with all that they keep in a directory that is named after the process. The
//! service lives in namespaces of mounts and processes: there it finds who the user is and which numbers they may use, of
//! which the machine knows nothing, and it ends with them, with its containers and with whatever else it started, when its
//! input ends. Then the directory goes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

use conjure_sandbox::{
    Boundary, EngineAddress, EngineKind, ExecutionContext, Executor, Isolation, SandboxErrorKind,
};

use crate::built::{BUILT, Build};
use crate::container_fixture::{ContainerFixture, apart, open};
use crate::engine::{CONFIGURATION, until_it_listens};
use crate::support::copied;

/// Where the service listens whose user runs these tests; nothing where that is root.
const SOCKET: &str = "CONJURE_TEST_ROOTLESS";

/// Programs of the machine's, root's ones too.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Watches over the namespaces, and removes the directory after them. `$1` is the directory, `$2` the user's number, and `$3` what
/// runs inside.
const WATCH: &str = r#"
unshare --mount --pid --fork --kill-child --mount-proc sh -c "$3" inside "$1" "$2" > "$1/log" 2>&1
cd /
rm -rf "$1"
"#;

/// The first process of the namespaces: all others end with it.
const INSIDE: &str = r#"
for name in passwd group subuid subgid; do mount --bind "$1/$name" "/etc/$name" || exit; done
setpriv --reuid "$2" --regid "$2" --clear-groups podman --storage-driver overlay \
  system service --time=0 "unix://$1/podman.sock" < /dev/null &
exec cat > /dev/null
"#;

/// What is shown again: something of everything that depends on whose the engine is. Nothing here runs into a limit, which
/// no control groups hold there, or needs another user's files.
const SHOWN: &[&str] = &[
    "a_program_runs_in_the_workspace_with_its_input_and_variables",
    "a_timeout_ends_every_descendant",
    "built::containers_run_in_an_image_of_debian_packages",
    "cleanup_ends_everything_and_removes_what_was_spilled",
    "every_attack_is_refused",
    "hardening::commands_have_no_privileges_to_attack_with",
    "hardening::unavailable_isolation_is_rejected_before_and_after_creation",
    "isolation::commands_find_the_proxy_and_cannot_replace_it",
    "layout::a_container_has_the_layout_of_a_jail",
    "layout::content_appears_in_a_running_container",
    "layout::skills_and_volumes_are_mounted_read_only_at_their_paths",
    "leftovers::a_container_is_removed_with_its_sandbox",
    "nothing_of_the_host_is_there",
    "truncated_output_is_complete_in_a_read_only_file",
    "rootless::missing_limits_are_reported_and_rejected_where_required",
    "skills_and_allowed_directories_are_where_they_should_be",
    "the_host_can_read_and_delete_files_of_commands",
];

/// Where the engine of this process' user listens, if that is not root.
#[expect(clippy::disallowed_methods, reason = "only this file sets it")]
pub(crate) fn socket() -> Option<PathBuf> {
    std::env::var_os(SOCKET).map(PathBuf::from)
}

/// The missing requirements of this machine.
fn missing_requirement() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can become a user for it");
    }
    if !["subuid", "subgid"].iter().all(|name| Path::new("/etc").join(name).exists()) {
        return Some(
            "there is no `/etc/subuid` or `/etc/subgid` to put others in the place of; make empty ones",
        );
    }
    let is_there = |name: &&str| PATH.split(':').any(|dir| Path::new(dir).join(name).exists());
    let all = ["podman", "runc", "newuidmap", "newgidmap", "unshare", "setpriv"];
    let missing = all.into_iter().find(|name| !is_there(name));
    missing.map(|name| match name {
        "podman" => "there is no `podman`",
        "runc" => "there is no `runc`",
        "newuidmap" | "newgidmap" => "there is no `newuidmap`; install `uidmap`",
        _ => "there is no `unshare` or `setpriv`; install `util-linux`",
    })
}

/// A user of this process' own, their directory, and their service.
struct Service {
    dir: PathBuf,
    user: u32,
    watch: Child,
}

impl Service {
    #[expect(clippy::disallowed_methods, reason = "it starts an engine")]
    fn start() -> Self {
        // Nobody's: above those of people, below those that sandboxes get.
        let user = 200_000_000 + process::id() % 16384;
        let others = 300_000_000 + process::id() % 16384 * 65536;
        // Short enough for a socket.
        let dir = PathBuf::from(format!("/tmp/conjure-rootless-{}", process::id()));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        let inner = |name: &str| dir.join(name);
        fs::write(inner("containers.conf"), CONFIGURATION).unwrap();
        let known = |name: &str| fs::read_to_string(Path::new("/etc").join(name)).unwrap_or_default();
        let name = "conjure-rootless";
        let line = format!("{name}:x:{user}:{user}::{}:/bin/sh\n", dir.display());
        fs::write(inner("passwd"), format!("{}{line}", known("passwd"))).unwrap();
        fs::write(inner("group"), format!("{}{name}:x:{user}:\n", known("group"))).unwrap();
        for ids in ["subuid", "subgid"] {
            fs::write(inner(ids), format!("{name}:{others}:65536\n")).unwrap();
        }
        for name in ["run", "tmp"] {
            fs::create_dir(inner(name)).unwrap();
            fs::set_permissions(inner(name), fs::Permissions::from_mode(0o700)).unwrap();
            chown(inner(name), Some(user), Some(user)).unwrap();
        }
        chown(&dir, Some(user), Some(user)).unwrap();
        let watch = Command::new("sh")
            .args(["-c", WATCH, "watch", dir.to_str().unwrap(), &user.to_string(), INSIDE])
            .env_clear()
            .envs([("PATH", PATH), ("HOME", dir.to_str().unwrap())])
            .env("XDG_RUNTIME_DIR", inner("run"))
            .env("CONTAINERS_CONF", inner("containers.conf"))
            .env("TMPDIR", inner("tmp"))
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A signal from the terminal must not end it before its cleanup.
            .process_group(0)
            .spawn();
        let service = Self { user, watch: watch.unwrap(), dir };
        until_it_listens(&service.socket(), &service.dir.join("log"));
        service
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("podman.sock")
    }

    /// This program, as the user.
    #[expect(clippy::disallowed_methods, reason = "a test starts itself")]
    fn program(&self) -> Command {
        let mut command = Command::new("setpriv");
        // It ends with this one.
        command.args(["--pdeathsig", "KILL"]).arg(copied(&self.dir));
        command.uid(self.user).gid(self.user).current_dir(&self.dir).env(SOCKET, self.socket());
        // Tests that only root can run may be skipped there.
        command.env_remove(test_support::REQUIRE);
        command.env("TMPDIR", self.dir.join("tmp")).env("HOME", &self.dir).stdin(Stdio::null());
        command
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        self.watch.wait().unwrap();
    }
}

#[test]
fn a_rootless_engine_passes_the_suite() {
    if let Some(lacking) = missing_requirement() {
        test_support::skip(
            &format!("no rootless engine: {lacking}"),
            "apt-get install podman uidmap; run as root",
        );
        return;
    }
    let service = Service::start();
    // Whose programs this machine knows no numbers for cannot put a system together.
    let build = Build::of("rootless", &EngineAddress::Unix(service.socket()));
    let shown: Vec<_> = match apart(build.run()) {
        Some(_) => SHOWN.to_vec(),
        None => SHOWN.iter().copied().filter(|name| !name.starts_with("built::")).collect(),
    };
    let ended = service.program().env(BUILT, build.name()).arg("--exact").args(&shown).output().unwrap();
    drop(build);
    let output = String::from_utf8_lossy(&ended.stdout);
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{output}{complaint}");
    assert!(output.contains(&format!("running {} tests", shown.len())), "one has another name: {output}");
    assert!(!complaint.contains("SKIPPED: no container engine"), "{complaint}");
    eprintln!("{output}");
    let (user, dir) = (service.user, service.dir.clone());
    drop(service);
    assert!(!dir.exists(), "its directory is left");
    assert_eq!(processes_of(user), Vec::<PathBuf>::new(), "processes are left");
}

/// The directories of this user's processes.
fn processes_of(user: u32) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let is_theirs = |path: &PathBuf| {
        let status = fs::read_to_string(path.join("status")).unwrap_or_default();
        status.contains(&format!("\nUid:\t{user}\t"))
    };
    all.filter(is_theirs).collect()
}

#[tokio::test]
async fn missing_limits_are_reported_and_rejected_where_required() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let connector = fixture.connector();
    let found = connector.check_environment().await.unwrap();
    let is_user = !rustix::process::geteuid().is_root();
    assert_eq!((found.engine, found.is_rootless), (EngineKind::Podman, is_user));
    let container = fixture.container().await;
    let isolation = container.sandbox.isolation();
    container.sandbox.cleanup().await;
    if socket().is_some() {
        let open: Vec<_> = isolation.open().collect();
        assert_eq!(open, ["identity", "memory", "processor", "process_count"]);
    }
    for (name, floor) in [
        ("memory", Isolation { memory: Boundary::Enforced, ..Isolation::NONE }),
        ("processor", Isolation { processor: Boundary::Enforced, ..Isolation::NONE }),
        ("process_count", Isolation { process_count: Boundary::Enforced, ..Isolation::NONE }),
    ] {
        let is_open = isolation.open().any(|open| open == name);
        let workspace = tempfile::tempdir().unwrap();
        let context = ExecutionContext { floor, ..ExecutionContext::new(workspace.path()) };
        match open(&connector, &context).await {
            Ok(sandbox) => {
                assert!(!is_open, "{name}");
                sandbox.cleanup().await;
            }
            Err(refused) => {
                assert!(is_open, "{name}: {refused}");
                assert_eq!(refused.kind(), SandboxErrorKind::NotEnforced, "{refused}");
                assert!(refused.to_string().contains(name), "{refused}");
            }
        }
        assert!(fixture.containers().await.is_empty(), "{name}");
    }
}
