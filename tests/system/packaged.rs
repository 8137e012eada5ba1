//! That the published packages build by themselves, guest and all: they are packed, unpacked elsewhere, and a
//! program that depends on them is built and runs a command in a sandbox.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a helper of a test fails by panic")]
#![expect(clippy::disallowed_methods, reason = "it starts cargo and tar")]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The sandbox, and what of ours it depends on.
const PACKAGES: [&str; 6] =
    ["conjure-base", "conjure-egress", "conjure-fs", "conjure-guest", "conjure-store", "conjure-sandbox"];

const PROGRAM: &str = r#"
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{CallOptions, Command, ExecutionContext, Executor, Local, Sandbox};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let soon = || SystemClock.deadline(Duration::from_secs(30));
    let workspace = std::env::args().nth(1).unwrap();
    let local = Local::without_isolation(std::env::vars_os());
    let context = ExecutionContext::new(workspace);
    let sandbox = Sandbox::open(&local, &context, Arc::new(SystemClock), soon()).await.unwrap();
    let outcome = sandbox.run(Command::new(["echo", "hello"]), CallOptions::until(soon())).await.unwrap();
    sandbox.cleanup().await;
    println!("{}", String::from_utf8(outcome.stdout.head).unwrap());
}
"#;

#[test]
fn the_packages_build_with_their_guest_and_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    // Kept between runs: what does not change is not built again.
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = temporary.join("packaged");
    fs::create_dir_all(&path).unwrap();
    let packed = path.join("packed");
    let mut pack = cargo(root);
    pack.args(["package", "--no-verify", "--allow-dirty", "--offline", "--quiet", "--target-dir"])
        .arg(&packed);
    for package in PACKAGES {
        pack.args(["--package", package]);
    }
    succeed(&mut pack);

    let consumer = path.join("consumer");
    let unpacked = path.join("unpacked");
    // Unpacked beside first: cargo rebuilds what has a new time, so only files that differ are replaced.
    let fresh = tempfile::tempdir_in(&path).unwrap();
    let mut patches = String::new();
    for package in PACKAGES {
        let version = env!("CARGO_PKG_VERSION");
        let archive = packed.join("package").join(format!("{package}-{version}.crate"));
        // With the time of unpacking: those in the archive never change, and cargo would not rebuild.
        succeed(Command::new("tar").arg("-xmzf").arg(archive).arg("-C").arg(fresh.path()));
        let dir = unpacked.join(format!("{package}-{version}"));
        patches += &format!("{package} = {{ path = {dir:?} }}\n");
    }
    let manifest = format!(
        "[package]\nname = \"consumer\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         conjure-base = \"0.1\"\nconjure-sandbox = {{ version = \"0.1\", features = [\"local\"] }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt\", \"time\"] }}\n[patch.crates-io]\n{patches}"
    );
    mirror(fresh.path(), &unpacked);
    fs::create_dir_all(consumer.join("src")).unwrap();
    replace(&consumer.join("Cargo.toml"), manifest.as_bytes());
    replace(&consumer.join("src/main.rs"), PROGRAM.as_bytes());
    // The versions that are here already, so that nothing has to be fetched.
    replace(&consumer.join("Cargo.lock"), &fs::read(root.join("Cargo.lock")).unwrap());

    let workspace = tempfile::tempdir().unwrap();
    let mut run = cargo(&consumer);
    // A guest that was given for this build must not hide that it cannot be built.
    run.env_remove("CONJURE_GUEST").args(["run", "--offline", "--quiet", "--target-dir"]);
    // The workspace's own: what it has built of the outside world in the same way is not built again. Our packages
    // are told apart by where they lie.
    run.arg(temporary.parent().unwrap()).arg("--").arg(workspace.path());
    assert_eq!(succeed(&mut run).trim(), "hello");
    let is_written_to = unpacked.join(format!("conjure-guest-{}", env!("CARGO_PKG_VERSION"))).join("target");
    assert!(!is_written_to.exists(), "the build wrote beside the sources");
}

/// Makes a directory equal to another one, and touches nothing in it that is.
fn mirror(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let names = |dir: &Path| -> BTreeSet<OsString> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    for deleted in names(to).difference(&names(from)).map(|name| to.join(name)) {
        if deleted.is_dir() { fs::remove_dir_all(deleted) } else { fs::remove_file(deleted) }.unwrap();
    }
    for (source, target) in names(from).iter().map(|name| (from.join(name), to.join(name))) {
        if source.is_dir() {
            mirror(&source, &target);
        } else {
            replace(&target, &fs::read(source).unwrap());
        }
    }
}

/// Writes a file, unless it has this content.
fn replace(path: &Path, content: &[u8]) {
    if !fs::read(path).is_ok_and(|before| before == content) {
        fs::write(path, content).unwrap();
    }
}

fn cargo(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(dir);
    // Variables of the outer cargo must not reach this one.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_") && name != "CARGO_HOME") {
            command.env_remove(OsStr::new(&name));
        }
    }
    command
}

fn succeed(command: &mut Command) -> String {
    match command.output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => panic!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)),
        Err(error) => panic!("{command:?}: {error}"),
    }
}
