//! The engine of these tests: their own Podman service, separate from the machine's.
//!
//! State: one service for each process of tests, with all that it keeps in a directory that is named after the process. A shell
//! watches over it, which waits for the end of its input: when the process has ended, in whatever way, it ends the service,
//! removes what containers are left, and then the directory.

use std::fs;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::ContainerSummary;
use conjure_sandbox::EngineAddress;
use futures_util::TryStreamExt as _;

use crate::support::engine::client;
use crate::support::image::TestImage;
use crate::support::test_parameters;

/// Nothing of the machine's configuration, and locks that are not shared with its own Podman. Of the runtimes, `crun` knows no
/// machine that has both kinds of control groups.
pub(crate) const CONFIGURATION: &str = r#"[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
runtime = "runc"
"#;

/// Runs the service until its input ends. `$1` is the directory; the others are Podman's options.
const WATCH: &str = r#"
directory=$1; shift
podman "$@" system service --time=0 "unix://$directory/podman.sock" > "$directory/log" 2>&1 &
service=$!
cat > /dev/null
podman "$@" rm --all --force --time 0 > /dev/null 2>> "$directory/log"
kill $service
wait $service
cd /
umount --quiet --lazy "$directory/root/overlay"
rm -rf "$directory"
"#;

/// Where it listens; `None`, and a word about it, where there is no Podman and none is required.
pub(crate) fn address() -> Option<EngineAddress> {
    if let Some(socket) = crate::rootless::socket() {
        return Some(EngineAddress::Unix(socket));
    }
    // A process that a test has started uses the service of that test.
    if test_parameters().is_some() {
        return Some(EngineAddress::Unix(socket(&dir(std::os::unix::process::parent_id()))));
    }
    /// It ends with the process, which holds its input.
    static SERVICE: OnceLock<Option<(Child, PathBuf)>> = OnceLock::new();
    let (_, dir) = SERVICE.get_or_init(start).as_ref()?;
    Some(EngineAddress::Unix(socket(dir)))
}

/// Images stay for all tests, and go with the service.
pub(crate) fn keep(image: &TestImage) {
    static KEPT: Mutex<Vec<TestImage>> = Mutex::new(Vec::new());
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(image.clone());
}

/// All containers that bear this label: Podman's own answer, for in that to Docker's clients one that is half there hides them all.
pub(crate) async fn labelled(engine: &EngineAddress, label: &str) -> Result<Vec<ContainerSummary>, Error> {
    let filters = format!("%7B%22label%22%3A%5B%22{}%22%5D%7D", label.replace('=', "%3D"));
    let request_path = format!("/v4.0.0/libpod/containers/json?all=true&filters={filters}");
    let client = client(engine).await?.with_request_modifier(move |mut request| {
        // The socket is in what is before the path.
        let uri = request.uri();
        let uri = format!("{}://{}{request_path}", uri.scheme_str().unwrap(), uri.authority().unwrap());
        *request.uri_mut() = uri.parse().unwrap();
        request
    });
    // The client reads nothing in the answer to this.
    let answer = client.export_container("").try_collect::<Vec<_>>().await?.concat();
    let all: Vec<serde_json::Value> = serde_json::from_slice(&answer)?;
    let found = |container: serde_json::Value| ContainerSummary {
        id: container["Id"].as_str().map(str::to_owned),
        names: serde_json::from_value(container["Names"].clone()).unwrap(),
        labels: serde_json::from_value(container["Labels"].clone()).unwrap(),
        status: container["State"].as_str().map(str::to_owned),
        ..ContainerSummary::default()
    };
    Ok(all.into_iter().map(found).collect())
}

/// Where this process' service has its temporary files.
pub(crate) fn files() -> PathBuf {
    dir(process::id()).join("files")
}

/// True if the storage of this process' service has a container of this name.
pub(crate) fn stores(name: &str) -> bool {
    let list = dir(process::id()).join("root/overlay-containers/containers.json");
    fs::read_to_string(list).unwrap().contains(&format!("\"{name}\""))
}

/// Removes a container from the storage of this process' service, which continues in the belief that it is there: by a Podman that has
/// the same storage and another database, where it is nobody's.
#[expect(clippy::disallowed_methods, reason = "it asks another engine")]
pub(crate) fn remove_from_storage(name: &str) {
    let inner = |name: &str| dir(process::id()).join(name).to_str().unwrap().to_owned();
    let foreign =
        format!("{CONFIGURATION}static_dir = \"{}\"\ntmp_dir = \"{}\"\n", inner("static"), inner("other"));
    fs::write(inner("stranger.conf"), foreign).unwrap();
    let storage = format!(
        "[storage]\ndriver = \"overlay\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n",
        inner("root"),
        inner("run")
    );
    fs::write(inner("storage.conf"), storage).unwrap();
    let removed = Command::new("podman")
        .args(["rm", "--force", name])
        .env("CONTAINERS_CONF", inner("stranger.conf"))
        .env("CONTAINERS_STORAGE_CONF", inner("storage.conf"))
        .output()
        .unwrap();
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
}

/// The same for all processes, whatever directory they have for temporary files, and short enough for a socket.
fn dir(process: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/conjure-podman-{process}"))
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("podman.sock")
}

#[expect(clippy::disallowed_methods, reason = "it starts an engine")]
fn start() -> Option<(Child, PathBuf)> {
    let found = Command::new("podman").arg("--version").output();
    if !found.is_ok_and(|found| found.status.success()) {
        test_support::skip("there is no `podman`", "apt-get install podman runc");
        return None;
    }
    let dir = dir(process::id());
    fs::create_dir(&dir).unwrap();
    fs::create_dir(files()).unwrap();
    let inner = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    fs::write(inner("containers.conf"), CONFIGURATION).unwrap();
    let options = [
        ["--root", &inner("root")],
        ["--runroot", &inner("run")],
        ["--tmpdir", &inner("tmp")],
        ["--network-config-dir", &inner("networks")],
    ];
    let watch = Command::new("sh")
        .args(["-c", WATCH, "watch", dir.to_str().unwrap()])
        .args(options.concat())
        .env("CONTAINERS_CONF", inner("containers.conf"))
        .env("TMPDIR", files())
        // `conmon` leaves a file in its directory when memory runs out.
        .current_dir(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A signal from the terminal must not end it before its cleanup.
        .process_group(0)
        .spawn();
    let watch = watch.unwrap();
    until_it_listens(&socket(&dir), &dir.join("log"));
    Some((watch, dir))
}

/// Waits until a service answers there; what it complained of lies in `log`.
pub(crate) fn until_it_listens(socket: &Path, log: &Path) {
    for _ in 0..1200 {
        if UnixStream::connect(socket).is_ok() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    panic!("podman does not listen: {}", fs::read_to_string(log).unwrap_or_default());
}
