//! That no path, and no race, leads file operations out of a sandbox's roots.
//!
//! What lies outside is a directory of the host's, which a sandbox may not even have, and what the sandbox itself has beside
//! its roots: `/etc`, and the guest's own `/proc/self`.

use std::fs;
use std::path::Path;

use conjure_sandbox::{CallOptions, Command, CommandEnd, Executor, SandboxError, SandboxErrorKind, View};
use futures_util::{StreamExt, future, stream};
use tempfile::TempDir;

use crate::support::{Fixture, Kind, options, soon, text, until};

const SECRET: &str = "secret of the host";

/// A directory outside of all roots that must stay as it is.
struct OutsideDir(TempDir);

impl OutsideDir {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), SECRET).unwrap();
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    #[track_caller]
    fn assert_unchanged(&self, by: &str) {
        assert_eq!(fs::read_to_string(self.path().join("file")).unwrap(), SECRET, "{by}");
        assert_eq!(fs::read_dir(self.path()).unwrap().count(), 1, "{by}");
    }
}

/// The content that a file operation returns.
async fn file_content(fixture: &Fixture, path: &str) -> Result<String, SandboxError> {
    match fixture.sandbox.view(path, None, 1000, options()).await? {
        View::Text { text, .. } => Ok(text),
        View::Directory(listing) => Ok(format!("{:?}", listing.entries)),
        View::Image { .. } | View::Binary { .. } => Ok(String::new()),
    }
}

async fn read(fixture: &Fixture, path: &str) -> Result<String, SandboxError> {
    let mut content = fixture.sandbox.read(path, options()).await?;
    let mut all = Vec::new();
    while let Some(piece) = content.next().await {
        all.extend_from_slice(&piece?);
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}

async fn listed(fixture: &Fixture, path: &str) -> Result<String, SandboxError> {
    let listing = fixture.sandbox.list(path, 3, 1000, options()).await?;
    Ok(format!("{:?}", listing.entries))
}

/// True if the text was read outside: the host's file, `/etc/passwd`, or a variable of the guest.
#[track_caller]
fn assert_inside(what: &str, text: &str) {
    for part in [SECRET, "root:x:0", "passwd-", "ld.so.cache", "PATH="] {
        assert!(!text.contains(part), "{what} shows {text}");
    }
}

/// At rest: names with `..`, absolute names, links on the way and links at the end.
pub(crate) async fn no_path_leads_out_of_the_roots(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let outside = OutsideDir::new();
    let file = outside.path().join("file");
    fixture.put_link(outside.path(), "out").await;
    fixture.put_link(&file, "leak").await;
    fixture.put_link("/etc", "etc").await;
    fixture.put_link("/etc/passwd", "users").await;
    fixture.put_link("../../../../../../etc/passwd", "up").await;
    fixture.put_link("/proc/self/cwd/../etc/passwd", "own").await;
    fixture.put_link("/proc/self/environ", "environ").await;
    fixture.put_link("chain", "chained").await;
    fixture.put_link("etc/passwd", "chain").await;
    let beside = format!("../{}/file", outside.path().file_name().unwrap().to_str().unwrap());
    let paths = [
        &beside,
        file.to_str().unwrap(),
        "out/file",
        "out",
        "leak",
        "/etc/passwd",
        "/etc",
        "etc/passwd",
        "etc",
        "users",
        "up",
        "own",
        "environ",
        "chained",
        "a/../../etc/passwd",
        "../../../../etc/passwd",
        "/proc/self/root/etc/passwd",
        "/proc/1/environ",
        "..",
        "/",
    ];
    for path in paths {
        let refusals = [
            file_content(&fixture, path).await.map(|_| ()),
            read(&fixture, path).await.map(|_| ()),
            listed(&fixture, path).await.map(|_| ()),
            fixture.sandbox.str_replace(path, SECRET, "x", options()).await.map(|_| ()),
        ];
        for (refusal, operation) in refusals.into_iter().zip(["view", "read", "list", "replace"]) {
            let error = refusal.expect_err(&format!("{operation} {path}"));
            let kinds = [
                SandboxErrorKind::PathNotAllowed,
                SandboxErrorKind::NotFound,
                // A link at the end, listed: it is no directory.
                SandboxErrorKind::WrongFileType,
            ];
            assert!(kinds.contains(&error.kind()), "{operation} {path}: {error:?}");
        }
    }
    // Writing may replace a link itself, never what it points to; so it is tried last.
    for path in paths.into_iter().filter(|path| has_own_root(&fixture) || !path.contains("etc")) {
        let _ = fixture.sandbox.create_file(path, b"changed", options()).await;
        let content = stream::iter([Ok("changed".into())]).boxed();
        let _ = fixture.sandbox.write(path, content, options()).await;
        outside.assert_unchanged(path);
    }
    let passwd = fixture.bash("grep -c changed /etc/passwd").await.unwrap();
    assert_eq!(passwd.end, CommandEnd::Exited(1));
}

/// True if its `/etc` is not the host's, which no failing test may change.
fn has_own_root(fixture: &Fixture) -> bool {
    fixture.sandbox.layout().workspace != fs::canonicalize(fixture.workspace.path()).unwrap()
}

/// Exchanges a directory and a link to the directory in its argument, and a file and a link to a file there, for ever.
const SWAPPER: &str = "import ctypes, os, sys
target, name = sys.argv[1:]
for path in ['dir', 'link', 'leaf', 'away']:
    os.system('rm -rf ' + path)
os.mkdir('dir')
for path in ['dir/' + name, 'leaf']:
    with open(path, 'w') as file: file.write('mine')
os.symlink(target, 'link')
os.symlink(os.path.join(target, name), 'away')
libc = ctypes.CDLL(None, use_errno=True)
def swap(one, other):
    if libc.renameat2(-100, one, -100, other, 2) != 0: sys.exit(os.strerror(ctypes.get_errno()))
swap(b'dir', b'link')
open('ready', 'w')
while True:
    swap(b'dir', b'link')
    swap(b'leaf', b'away')
";

/// While a command swaps a directory and a link as fast as it can, and a file and a link.
pub(crate) async fn no_race_of_links_leads_out_of_the_roots(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let outside = OutsideDir::new();
    // In a sandbox with a root of its own, the host's directory is not there, and `/etc` is.
    let targets = [(outside.path().to_str().unwrap(), "file"), ("/etc", "passwd")];
    for (target, file) in targets.into_iter().take(if has_own_root(&fixture) { 2 } else { 1 }) {
        let swapper = Command::new(["python3", "-c", SWAPPER, target, file]);
        // It continues beside all that is done in the meantime, at the cost of it.
        let options_of_swapper = CallOptions::until(soon(3600));
        let cancel = options_of_swapper.cancel.clone();
        let swapping = fixture.sandbox.run(swapper, options_of_swapper);
        let attacking = async {
            fixture.until_file_exists("ready").await;
            for round in 0..100 {
                attack(&fixture, file, round).await;
            }
            cancel.cancel();
        };
        let (outcome, ()) = future::join(swapping, attacking).await;
        let outcome = outcome.unwrap();
        assert_eq!(outcome.end, CommandEnd::Cancelled, "{}", text(&outcome));
        outside.assert_unchanged(target);
        fixture.remove("ready").await;
    }
}

/// Every operation once, through the directory and on the file that are swapped.
async fn attack(fixture: &Fixture, file: &str, round: u32) {
    let inner = format!("dir/{file}");
    for path in [inner.as_str(), "leaf"] {
        for seen in [file_content(fixture, path).await, read(fixture, path).await].into_iter().flatten() {
            assert_inside(path, &seen);
        }
        let _ = fixture.sandbox.str_replace(path, SECRET, "changed", options()).await;
        let _ = fixture.sandbox.str_replace(path, "root", "changed", options()).await;
    }
    for seen in [file_content(fixture, "dir").await, listed(fixture, "dir").await].into_iter().flatten() {
        assert_inside("dir", &seen);
    }
    let _ = fixture.sandbox.create_file(&format!("dir/new-{round}"), b"x", options()).await;
    let _ = fixture.sandbox.create_file(&format!("dir/deep-{round}/new"), b"x", options()).await;
    let content = stream::iter([Ok("x".into())]).boxed();
    let _ = fixture.sandbox.write(&format!("dir/more-{round}"), content, options()).await;
}
