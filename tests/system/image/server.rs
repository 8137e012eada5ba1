//! The image of the server: a conversation over the API whose tool call runs in a jail in the container, with the options that the guide
//! has, and what the server says without them.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "it builds and runs images as a user does, and tests fail by panic"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use test_support::Python;

use crate::support::image::{TestImage, test_image};

/// The calls that a jail needs beyond those of the profile for the containers of sandboxes.
const JAIL_CALLS: [&str; 11] = [
    "fsconfig",
    "fsmount",
    "fsopen",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "pivot_root",
    "sethostname",
    "umount2",
    "unshare",
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn profile() -> PathBuf {
    source().join("docker/server/seccomp.json")
}

#[test]
fn the_servers_seccomp_profile_is_the_sandbox_profile_plus_jail_needs() {
    let read =
        |path: PathBuf| -> Value { serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap() };
    let mut expected = read(source().join("docker/seccomp.json"));
    let rule = json!({"action": "SCMP_ACT_ALLOW", "names": JAIL_CALLS});
    expected["syscalls"].as_array_mut().unwrap().push(rule);
    assert_eq!(read(profile()), expected);
}

/// The server's image, a volume and what runs of them; all goes with the value.
struct ServerImage {
    name: String,
    // Without it the base is gone.
    _base: TestImage,
}

impl ServerImage {
    /// `None` where there is no engine.
    fn build() -> Option<Self> {
        let base = test_image()?;
        let image = Self { name: format!("conjure-test-server-{}", std::process::id()), _base: base };
        let context = tempfile::tempdir().unwrap();
        std::fs::copy(source().join("docker/server/Dockerfile"), context.path().join("Dockerfile")).unwrap();
        // The tests are beside the program. What it has for debuggers takes longer to send than to leave out.
        let tests = std::env::current_exe().unwrap();
        let program = tests.ancestors().nth(2).unwrap().join("conjure");
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(context.path().join("conjure")).arg(program);
        assert!(strip.status().unwrap().success());
        let from = format!("BASE={}", image._base.name());
        let context = context.path().to_str().unwrap();
        output(&["build", "--no-cache", "--quiet", "--tag", &image.name, "--build-arg", &from, context]);
        output(&["volume", "create", &image.name]);
        Some(image)
    }

    /// `docker run` with the volume, the scripts and these arguments.
    fn run(&self, options: &[&str], arguments: &[&str]) -> Output {
        let (data, scripts) =
            (format!("{}:/data", self.name), format!("{}:/scripts:ro", scripts().display()));
        let common = ["run", "--label", &self.name, "--volume", &data, "--volume", &scripts];
        docker(&[&common[..], options, &[&self.name], arguments].concat())
    }
}

impl Drop for ServerImage {
    fn drop(&mut self) {
        let label = format!("label={}", self.name);
        let containers = docker(&["ps", "--all", "--quiet", "--filter", &label]).stdout;
        for container in String::from_utf8_lossy(&containers).split_whitespace() {
            docker(&["rm", "--force", container]);
        }
        docker(&["volume", "rm", &self.name]);
        docker(&["image", "rm", &self.name]);
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("image")
}

fn docker(arguments: &[&str]) -> Output {
    // A server that starts where it should refuse to must not keep the test.
    Command::new("timeout").args(["300", "docker"]).args(arguments).output().unwrap()
}

/// The output of a successful command.
fn output(arguments: &[&str]) -> String {
    text(&docker(arguments))
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_server_in_a_container_runs_tools_in_jails_and_says_what_they_need() {
    let check = "import anthropic; assert anthropic.__version__ == '2.12.0'";
    let python = Python::find("CONJURE_ORACLE_PYTHON_AGENTS", check, "`anthropic` 2.12.0").await;
    let Some(python) = python else { return };
    let Some(image) = ServerImage::build() else { return };
    let serve = ["serve", "--listen", "0.0.0.0:8400", "--script", "/scripts/server.yaml"];
    let key = text(&image.run(&["--rm"], &["keys", "create", "test"]));
    let seccomp = format!("seccomp={}", profile().display());
    for options in [&[][..], &["--security-opt", &seccomp]] {
        let refused = image.run(options, &serve);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("--security-opt systempaths=unconfined"), "{stderr}");
        assert_eq!(options.is_empty(), stderr.contains("docker/server/seccomp.json"), "{stderr}");
    }
    let publish = ["--detach", "--publish", "127.0.0.1::8400"];
    let security = ["--security-opt", &seccomp, "--security-opt", "systempaths=unconfined"];
    let container = text(&image.run(&[&publish[..], &security].concat(), &serve));
    let address = output(&["port", &container, "8400"]);
    let client = scripts().join("server_client.py");
    let program = [client.to_str().unwrap(), &format!("http://{address}"), &key];
    assert_eq!(python.run(&program, "").await.trim(), "the tool ran");
    // It ends in order, before the engine kills it.
    output(&["stop", "--time", "60", &container]);
    let status = output(&["inspect", "--format", "{{.State.ExitCode}}", &container]);
    assert_eq!(status, "143");
}
