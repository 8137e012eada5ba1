//! A test's own engine: `dockerd` in its own namespaces, which may be killed, filled and stopped.
//!
//! State: a directory in the temporary directory, `conjure-engine-<pid>-<start>-<number>`; and below namespaces of processes, mounts
//! and network interfaces everything else. The first process of these ends when what the test holds is closed, by the test
//! or by its death, and the kernel kills and unmounts the rest with it; a shell that waits outside then removes the directory
//! and the control groups. What is left when that was killed too, the next test of this kind removes.

#![expect(clippy::print_stderr, reason = "the output lists an engine's leftovers")]

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bollard::models::{ContainerCreateBody, ContainerSummary};
use bollard::query_parameters::{CreateContainerOptions, CreateImageOptionsBuilder, ListContainersOptions};
use conjure_base::{Clock as _, SystemClock};
use conjure_sandbox::{DockerOptions, EngineAddress};
use futures_util::TryStreamExt as _;
use rustix::process::Signal;

use super::image::start_time;
use super::{descendants, is_alive, processes, signal};

/// The image that it has: a shell and its tools in one program.
const IMAGE: &str = "busybox:own";

/// The prefix of directories and control groups.
const PREFIX: &str = "conjure-engine-";

/// Waits for the end of the engine's namespaces, and clears up.
const OUTSIDE: &str = r#"
unshare --mount --propagation private --net --pid --fork --kill-child --mount-proc bash -c "$1" inside "$2" "$3"
for _ in $(seq 50); do
  find /sys/fs/cgroup -depth -type d -path "*/${2##*/}*" -exec rmdir {} + 2>/dev/null
  [ -n "$(find /sys/fs/cgroup -type d -name "${2##*/}" -print -quit)" ] || break
  sleep 0.1
done
rm -rf "$2"
"#;

/// The first process of its namespaces: starts the engine whenever it is told so. It also takes in whom others leave.
/// The machine's own engine is unreachable: `/run` is a separate mount.
const INSIDE: &str = r#"
set -eu
mount -t tmpfs -o mode=755 none /run
mkdir /run/containerd
if [ -d /etc/docker ]; then mount -t tmpfs none /etc/docker; fi
mount -t tmpfs -o "mode=711,size=$2" none "$1/data"
while read -r _; do
  rm -f /run/docker.pid
  dockerd --config-file "$1/daemon.json" --host "unix://$1/socket" --data-root "$1/data" --exec-root /run/docker \
    --pidfile /run/docker.pid --bridge none --iptables=false --ip6tables=false --storage-driver vfs \
    --cgroup-parent "/${1##*/}" --live-restore=false --shutdown-timeout 5 </dev/null >>"$1/log" 2>&1 &
done
"#;

/// An engine of one's own.
pub(crate) struct OwnEngine {
    dir: PathBuf,
    /// The shell outside, which holds the namespaces, and clears up.
    shell: Child,
}

/// The processes of the engine that a test can kill.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    Daemon,
    Containerd,
    Shim,
    /// The first processes of our containers.
    Guest,
}

impl OwnEngine {
    /// One that runs and has the image; `None`, and a word about it, where there can be none and none is required.
    pub(crate) async fn new() -> Option<Self> {
        Self::with_disk("256m").await
    }

    /// With so much room for its images and containers.
    pub(crate) async fn with_disk(size: &str) -> Option<Self> {
        if let Some(missing) = missing() {
            let reason = format!("an engine of one's own needs {missing}");
            test_support::skip(&reason, "apt-get install docker.io busybox-static; run as root");
            return None;
        }
        sweep();
        let engine = Self::in_namespaces(size);
        engine.start().await;
        engine.import().await;
        Some(engine)
    }

    #[expect(clippy::disallowed_methods, reason = "the program belongs to the test")]
    fn in_namespaces(size: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let own_pid = std::process::id();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{own_pid}-{}-{number}", start_time(own_pid).unwrap());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(dir.join("data")).unwrap();
        // An empty configuration, so that the machine's own is not used.
        fs::write(dir.join("daemon.json"), "{}").unwrap();
        let mut shell = Command::new("bash");
        shell.args(["-c", OUTSIDE, "outside", INSIDE]).arg(&dir).arg(size);
        let log = File::create(dir.join("namespaces")).unwrap();
        // A signal for the test and its group is not for who clears up.
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).process_group(0).spawn();
        Self { dir, shell: shell.unwrap() }
    }

    /// Starts it again, and waits until it answers.
    pub(crate) async fn start(&self) {
        self.shell.stdin.as_ref().unwrap().write_all(b"start\n").unwrap();
        let deadline = SystemClock.deadline(Duration::from_secs(600));
        while !self.answers().await {
            let log = |name| fs::read_to_string(self.dir.join(name)).unwrap_or_default();
            let late = SystemClock.remaining(deadline).is_zero();
            assert!(!late, "the engine does not start: {}\n{}", log("namespaces"), log("log"));
            pause().await;
        }
    }

    pub(crate) fn address(&self) -> EngineAddress {
        EngineAddress::Unix(self.dir.join("socket"))
    }

    /// The image of its containers.
    pub(crate) fn options(&self) -> DockerOptions {
        DockerOptions { engine: vec![self.address()], image: IMAGE.to_owned(), ..DockerOptions::default() }
    }

    pub(crate) fn client(&self) -> bollard::Docker {
        self.connect().unwrap()
    }

    fn connect(&self) -> Result<bollard::Docker, bollard::errors::Error> {
        let socket = self.dir.join("socket");
        bollard::Docker::connect_with_unix(socket.to_str().unwrap(), 60, bollard::API_DEFAULT_VERSION)
    }

    async fn answers(&self) -> bool {
        match self.connect() {
            Ok(client) => client.ping().await.is_ok(),
            // Its socket is not there yet.
            Err(_) => false,
        }
    }

    /// A directory that goes with it, for what a test has on the host.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Where the engine keeps its data, as this process reaches it.
    pub(crate) fn data(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.first());
        Path::new(&root).join(self.dir.strip_prefix("/").unwrap()).join("data")
    }

    /// The first process in its namespaces.
    fn first(&self) -> i32 {
        let below = descendants(self.shell.id());
        let all = processes();
        let first =
            all.iter().find(|it| below.contains(&it.pid) && it.arguments.starts_with("bash -c \nset"));
        first.map(|it| it.pid).unwrap()
    }

    /// The processes of a part.
    pub(crate) fn pids(&self, part: Part) -> Vec<i32> {
        let program = match part {
            Part::Daemon => "dockerd",
            Part::Containerd => "containerd",
            Part::Shim => "containerd-shim-runc-v2",
            Part::Guest => "conjure-guest",
        };
        let below = descendants(self.shell.id());
        let is_it = |arguments: &str| {
            let name = arguments.split(' ').next().unwrap_or_default();
            name.rsplit('/').next() == Some(program)
        };
        let all = processes();
        let found =
            all.iter().filter(|it| it.state != 'Z' && below.contains(&it.pid) && is_it(&it.arguments));
        found.map(|it| it.pid).collect()
    }

    /// Sends a signal to a part, which must be there.
    pub(crate) fn signal(&self, part: Part, which: Signal) {
        let pids = self.pids(part);
        assert!(!pids.is_empty(), "there is no {part:?}");
        pids.into_iter().for_each(|pid| signal(pid, which));
    }

    /// Ends the engine, and waits until it has.
    pub(crate) async fn end(&self, how: Signal) {
        let pids = [self.pids(Part::Daemon), self.pids(Part::Containerd)].concat();
        self.signal(Part::Daemon, how);
        let deadline = SystemClock.deadline(Duration::from_secs(600));
        while pids.iter().any(|pid| is_alive(*pid)) {
            assert!(!SystemClock.remaining(deadline).is_zero(), "the engine does not end");
            pause().await;
        }
    }

    /// All its containers, in whatever state.
    pub(crate) async fn containers(&self) -> Vec<ContainerSummary> {
        let options = ListContainersOptions { all: true, ..ListContainersOptions::default() };
        self.client().list_containers(Some(options)).await.unwrap()
    }

    /// A container that was made and never started, as the host would have made it to which these labels belong.
    pub(crate) async fn make(&self, number: u32, labels: &HashMap<String, String>) -> String {
        let name = Some(format!("conjure-{}-{number}", labels["conjure.instance"]));
        let options = CreateContainerOptions { name, ..CreateContainerOptions::default() };
        let body = ContainerCreateBody {
            image: Some(IMAGE.to_owned()),
            labels: Some(labels.clone()),
            cmd: Some(["busybox", "sleep", "1000"].map(str::to_owned).to_vec()),
            ..ContainerCreateBody::default()
        };
        self.client().create_container(Some(options), body).await.unwrap().id
    }

    /// Ends when it has no container any more.
    pub(crate) async fn until_nothing_is_left(&self) {
        let deadline = SystemClock.deadline(Duration::from_secs(90));
        while !self.containers().await.is_empty() {
            let late = SystemClock.remaining(deadline).is_zero();
            assert!(!late, "containers are left: {:?}", self.containers().await);
            pause().await;
        }
    }

    #[expect(clippy::disallowed_methods, reason = "it packs with tar")]
    async fn import(&self) {
        let dir = self.dir("image");
        fs::create_dir_all(dir.join("bin")).unwrap();
        for name in ["busybox", "sh"] {
            fs::copy("/bin/busybox", dir.join("bin").join(name)).unwrap();
        }
        let tar =
            Command::new("tar").arg("--create").arg("--directory").arg(&dir).arg("bin").output().unwrap();
        assert!(tar.status.success());
        let options = CreateImageOptionsBuilder::new().from_src("-").repo("busybox").tag("own");
        let options = options.changes(vec!["ENV PATH=/bin".to_owned()]).build();
        let body = bollard::body_full(tar.stdout.into());
        self.client().create_image(Some(options), Some(body), None).try_collect::<Vec<_>>().await.unwrap();
    }
}

impl Drop for OwnEngine {
    /// Ends its first process, and waits until all of it is gone and removed.
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let ended = self.shell.wait();
        if let Ok(log) = fs::read_to_string(self.dir.join("namespaces")) {
            eprintln!("an engine of a test is left: {ended:?} {log}");
        }
    }
}

/// Between two looks at the outside world.
pub(crate) async fn pause() {
    SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(20))).await;
}

/// The missing requirements of such an engine.
#[expect(clippy::disallowed_methods, reason = "the test checks whether a program exists")]
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("root".to_owned());
    }
    let is_there = |program: &str| {
        let found =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        !matches!(found, Err(error) if error.kind() == io::ErrorKind::NotFound)
    };
    let programs = ["dockerd", "containerd", "runc", "unshare", "bash", "tar", "busybox"];
    programs.into_iter().find(|program| !is_there(program)).map(|program| format!("the program `{program}`"))
}

/// Removes what engines of tests have left that were killed together with who would have cleared up.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut fields = name.strip_prefix(PREFIX).unwrap_or_default().split('-');
        let (Some(pid), Some(start)) = (fields.next().and_then(|pid| pid.parse().ok()), fields.next()) else {
            continue;
        };
        // Somebody may be clearing up still: then all of it is gone when that is done.
        let is_tended = processes().iter().any(|it| it.arguments.contains(&name));
        if start_time(pid).as_deref() == Some(start) || is_tended {
            continue;
        }
        remove_groups(Path::new("/sys/fs/cgroup"), &name);
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// Removes the control groups of this name, and all beneath them.
fn remove_groups(dir: &Path, name: &str) {
    let below = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in below(dir).filter(|path| path.is_dir() && !path.is_symlink()) {
        let is_it = path.file_name().is_some_and(|it| it == name);
        if is_it {
            below(&path).filter(|path| path.is_dir()).for_each(|path| drop(fs::remove_dir(path)));
            let _ = fs::remove_dir(&path);
        } else if dir.ends_with("cgroup") {
            remove_groups(&path, name);
        }
    }
}
