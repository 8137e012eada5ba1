//! An image for the tests from this machine's own packages: nothing is downloaded, and it is built in a few seconds.
//!
//! State: one image for each process of tests, each engine and each [`Content`], made when the first test asks for it and removed with
//! the last [`TestImage`] of it, also when tests fail. Its name says which process made it, so that the images of
//! processes that were killed are removed by the next that makes one.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "it packs with tar, sends with curl, and says what was skipped"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bollard::Docker;
use bollard::query_parameters::{ListImagesOptionsBuilder, RemoveImageOptionsBuilder};
use conjure_base::Digest;
use conjure_sandbox::EngineAddress;
use tempfile::TempDir;

use super::engine::{client, docker};

/// The repository of the images of tests; their tags are `<content>-<pid>-<start time>-<number>`.
const REPOSITORY: &str = "conjure-test";

/// The content of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    /// Debian packages of this machine; with everything that they need of libraries.
    pub(crate) packages: &'static [&'static str],
    /// Files of this machine, and where they lie in the image: for what is no package.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// Instructions of a Dockerfile: `USER`, `ENTRYPOINT`, `ENV`, `HEALTHCHECK` and the like.
    pub(crate) changes: &'static [&'static str],
}

impl Content {
    /// How the names of images with it begin that this process makes.
    pub(crate) fn name_of(&self, process: u32) -> String {
        let content = Digest::of_bytes(format!("{self:?}").as_bytes()).to_hex();
        format!("{REPOSITORY}:{}-{process}-", content.get(..12).unwrap())
    }
}

/// The programs of a small Debian: a shell, its tools, Python with its library, curl.
pub(crate) const DEBIAN: Content = Content {
    packages: &[
        "bash",
        "ca-certificates",
        "coreutils",
        "curl",
        "dash",
        "diffutils",
        "findutils",
        "grep",
        "gzip",
        "hostname",
        "libc-bin",
        "mawk",
        "openssl",
        "procps",
        "python3",
        "sed",
        "tar",
        "tzdata",
        "util-linux",
    ],
    files: &[],
    changes: &["USER sandbox", "WORKDIR /workspace", "ENV PATH=/usr/local/bin:/usr/bin:/bin"],
};

/// An image of the engine, which is removed with the last value of it.
#[derive(Debug, Clone)]
pub(crate) struct TestImage {
    image: Arc<Image>,
}

impl TestImage {
    /// Its name for the engine, `repository:tag`.
    pub(crate) fn name(&self) -> &str {
        &self.image.name
    }
}

/// The image with [`DEBIAN`] in it, of Docker Engine. Hold it for longer than every container that is made from it.
///
/// `None`, and a word about it, where there is no engine and none is required. Blocks for some seconds.
pub(crate) fn test_image() -> Option<TestImage> {
    test_image_of(&docker(), &DEBIAN)
}

/// As [`test_image`], of another engine and with another content.
pub(crate) fn test_image_of(engine: &EngineAddress, content: &'static Content) -> Option<TestImage> {
    if let Err(reason) = in_engine(engine, async |docker| docker.ping().await.map(drop)) {
        test_support::skip(&format!("no container engine answers: {reason}"), "apt-get install docker.io");
        return None;
    }
    /// Those that are in use.
    static IMAGES: Mutex<Vec<(&'static Content, Weak<Image>)>> = Mutex::new(Vec::new());
    // A test that failed over it has left it as it was.
    let mut images = IMAGES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    images.retain(|(_, image)| image.strong_count() > 0);
    let mut present = images.iter().filter(|(other, _)| *other == content);
    let image = present.find_map(|(_, image)| image.upgrade().filter(|image| image.engine == *engine));
    let image = image.unwrap_or_else(|| {
        let image = Arc::new(Image::make(engine, content));
        images.push((content, Arc::downgrade(&image)));
        image
    });
    Some(TestImage { image })
}

#[derive(Debug)]
struct Image {
    engine: EngineAddress,
    name: String,
}

impl Image {
    fn make(engine: &EngineAddress, content: &Content) -> Self {
        /// One that is being removed, while the next with the same content is made, has another name.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        sweep(engine);
        let tar = RootFs::of(content).tar();
        let own_pid = std::process::id();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{}-{number}", content.name_of(own_pid), start_time(own_pid).unwrap());
        import(engine, &name, content.changes, &tar);
        Self { engine: engine.clone(), name }
    }
}

impl Drop for Image {
    /// Without force: a container that a test has left is a failure of that test.
    fn drop(&mut self) {
        if let Err(reason) = remove(&self.engine, &self.name) {
            let message = format!("`{}` is left: {reason}", self.name);
            assert!(std::thread::panicking(), "{message}");
            eprintln!("{message}");
        }
    }
}

fn remove(engine: &EngineAddress, name: &str) -> Result<(), String> {
    let options = RemoveImageOptionsBuilder::new().build();
    in_engine(engine, async |docker| docker.remove_image(name, Some(options), None).await.map(drop))
}

/// Has the engine take an image. Not by the client: Podman wants each instruction by itself, as other clients send them, and
/// the tag with the name.
fn import(engine: &EngineAddress, name: &str, changes: &[&str], tar: &[u8]) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail-with-body", "--data-binary", "@-"]);
    let host = match engine {
        EngineAddress::Unix(path) => {
            curl.arg("--unix-socket").arg(path);
            "engine"
        }
        EngineAddress::Tcp(host) => host,
    };
    let changes: String = changes.iter().map(|change| format!("&changes={}", encoded(change))).collect();
    curl.arg(format!("http://{host}/v1.41/images/create?fromSrc=-&repo={}{changes}", encoded(name)));
    curl.args(["--header", "Content-Type: application/x-tar"]);
    let mut curl = curl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    curl.stdin.take().unwrap().write_all(tar).unwrap();
    let done = curl.wait_with_output().unwrap();
    let stdout = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && !stdout.contains("\"error\""), "the engine imports no image: {stdout}");
}

/// As it stands in a query.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Removes the images of processes that are dead.
fn sweep(engine: &EngineAddress) {
    let all = in_engine(engine, async |docker| {
        docker.list_images(Some(ListImagesOptionsBuilder::new().all(true).build())).await
    });
    let names = all.unwrap().into_iter().flat_map(|image| image.repo_tags);
    for name in names {
        let Some((_, tag)) = name.split_once(&format!("{REPOSITORY}:")) else { continue };
        let mut fields = tag.split('-').skip(1);
        let (Some(pid), Some(start)) = (fields.next(), fields.next()) else { continue };
        let is_alive = pid.parse().ok().and_then(start_time).is_some_and(|time| time == start);
        // Somebody else may be at it as well, or a container may still be there.
        if !is_alive && let Err(reason) = remove(engine, &name) {
            eprintln!("`{name}`, of tests that were killed, is left: {reason}");
        }
    }
}

/// When a process began, in ticks since the machine did.
pub(crate) fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything; the start is the twentieth field after it.
    stat.rsplit_once(") ")?.1.split(' ').nth(19).map(str::to_owned)
}

/// Asks the engine on a thread of its own, so that a test need not be asynchronous, and may be.
fn in_engine<T: Send>(
    engine: &EngineAddress,
    ask: impl AsyncFnOnce(Docker) -> Result<T, bollard::errors::Error> + Send,
) -> Result<T, String> {
    let asked = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { ask(client(engine).await?).await })
    };
    let done = std::thread::scope(|scope| scope.spawn(asked).join());
    done.unwrap().map_err(|error| error.to_string())
}

/// The root directory of an image under construction.
struct RootFs {
    /// Beneath `/`, of this machine, by the same paths.
    paths: BTreeSet<PathBuf>,
    /// The differences from this machine.
    own: TempDir,
}

impl RootFs {
    fn of(content: &Content) -> Self {
        let mut root = Self { paths: BTreeSet::new(), own: tempfile::tempdir().unwrap() };
        root.add_packages(&with_libraries(content.packages));
        // Else it is the engine's storage that says who may enter them.
        let dirs: BTreeSet<&Path> = root.paths.iter().filter_map(|path| path.parent()).collect();
        for dir in dirs {
            root.dir(dir.to_str().unwrap(), 0o755);
        }
        // Where the parts of a system were before they were all put into `/usr`.
        for name in ["bin", "lib", "lib64", "sbin"] {
            std::os::unix::fs::symlink(format!("usr/{name}"), root.own.path().join(name)).unwrap();
        }
        root.write(
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/sh\nsandbox:x:1000:1000::/home/sandbox:/bin/sh\n",
        );
        root.write("etc/group", "root:x:0:\nsandbox:x:1000:\n");
        for (from, to) in content.files {
            let to = root.made(to);
            fs::copy(from, to).unwrap();
        }
        root.dir("tmp", 0o1777);
        root.dir("root", 0o700);
        root.dir("workspace", 0o777);
        root.dir("home/sandbox", 0o777);
        root
    }

    fn add_packages(&mut self, packages: &BTreeSet<String>) {
        if packages.is_empty() {
            return;
        }
        let listed = output(Command::new("dpkg-query").arg("--listfiles").args(packages));
        for line in listed.lines().filter(|line| line.starts_with('/') && !is_documentation(line)) {
            let path = Path::new(line);
            let Ok(kind) = fs::symlink_metadata(path) else { continue };
            // The links at the top are made for every image.
            if kind.is_dir() || path.parent() == Some(Path::new("/")) {
                continue;
            }
            self.paths.insert(in_place(path));
        }
        // Files that no package lists.
        let made = ["/usr/bin/awk", "/etc/alternatives/awk", "/etc/ssl/certs/ca-certificates.crt"];
        let (mawk, certificates) = (packages.contains("mawk"), packages.contains("ca-certificates"));
        let are_there = [mawk, mawk, certificates];
        self.paths.extend(made.iter().zip(are_there).filter(|(_, is)| *is).map(|(path, _)| path.into()));
    }

    fn made(&self, path: &str) -> PathBuf {
        let path = self.own.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.made(path), text).unwrap();
    }

    fn dir(&self, path: &str, mode: u32) {
        let path = self.made(path);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The same bytes for the same files.
    fn tar(&self) -> Vec<u8> {
        let list = self.own.path().with_extension("list");
        let names = self.paths.iter().map(|path| path.strip_prefix("/").unwrap().as_os_str().as_bytes());
        fs::write(&list, names.collect::<Vec<_>>().join(&b'\n')).unwrap();
        let mut tar = Command::new("tar");
        tar.args(["--create", "--sort=name", "--mtime=@0", "--numeric-owner", "--owner=0", "--group=0"]);
        tar.arg("--directory").arg(self.own.path()).arg(".");
        tar.arg("--directory").arg("/").arg("--no-recursion").arg("--files-from").arg(&list);
        let done = tar.stdin(Stdio::null()).stderr(Stdio::inherit()).output().unwrap();
        fs::remove_file(list).unwrap();
        assert!(done.status.success(), "tar packs the image");
        done.stdout
    }
}

/// Documentation takes more room than everything else.
fn is_documentation(path: &str) -> bool {
    ["/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/", "/usr/share/lintian/"]
        .iter()
        .any(|dir| path.starts_with(dir))
}

/// The path by which a file is reached through no link but itself.
fn in_place(path: &Path) -> PathBuf {
    let dir = fs::canonicalize(path.parent().unwrap()).unwrap();
    dir.join(path.file_name().unwrap_or(OsStr::new("")))
}

/// These packages, and those that they depend on, as this machine has them.
fn with_libraries(packages: &[&str]) -> BTreeSet<String> {
    let format = "${Package}\t${Pre-Depends}, ${Depends}\n";
    let listing = output(Command::new("dpkg-query").args(["--show", "--showformat", format]));
    let installed: BTreeMap<&str, &str> = listing.lines().filter_map(|line| line.split_once('\t')).collect();
    let mut found = BTreeSet::new();
    let mut pending = packages.to_vec();
    while let Some(package) = pending.pop() {
        let Some(needs) = installed.get(package) else {
            // Else another one provides it.
            assert!(!packages.contains(&package), "the package `{package}` is not on this machine");
            continue;
        };
        if found.insert(package.to_owned()) {
            let names = needs.split([',', '|']).map(|one| one.trim().split([' ', ':', '(']).next().unwrap());
            pending.extend(
                names.filter(|name| ["lib", "python3", "zlib"].iter().any(|start| name.starts_with(start))),
            );
        }
    }
    found
}

fn output(command: &mut Command) -> String {
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().unwrap();
    assert!(done.status.success(), "{command:?}");
    String::from_utf8(done.stdout).unwrap()
}
