//! A server under test: the built command, its address, and its end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use test_support::Python;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Names the interpreter that has the SDK.
const VARIABLE: &str = "CONJURE_ORACLE_PYTHON_AGENTS";

/// How long a program or a start may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// The interpreter with the SDK, if there is one.
pub(crate) async fn python() -> Option<Python> {
    let check = "import anthropic; assert anthropic.__version__ == '2.12.0'";
    Python::find(VARIABLE, check, "`anthropic` 2.12.0").await
}

/// The directory of this package.
pub(crate) fn dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The built command beside this test.
pub(crate) fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("conjure");
    assert!(
        program.is_file(),
        "{} is not there: `cargo build --features full` makes it, as `cargo test --workspace` does",
        program.display()
    );
    program
}

/// The built command, with no arguments yet.
#[expect(clippy::disallowed_methods, reason = "the program is the one under test")]
pub(crate) fn command() -> Command {
    let mut command = Command::new(program());
    command.kill_on_drop(true);
    command
}

/// The command of a server at this address, with sandboxes of this kind. It is told of no settings of the machine.
pub(crate) fn serve_at(address: &str, sandbox: &str, home: &Path, data: &Path) -> Command {
    let mut command = command();
    command.args(["serve", "--listen", address, "--sandbox", sandbox, "--data"]).arg(data);
    command.current_dir(dir().join("../..")).env("HOME", home).env_remove("ANTHROPIC_API_KEY");
    command
}

/// The same on a free port.
pub(crate) fn serve(sandbox: &str, home: &Path, data: &Path) -> Command {
    serve_at("127.0.0.1:0", sandbox, home, data)
}

/// One of our scripts.
pub(crate) fn script(name: &str) -> PathBuf {
    dir().join("scripts").join(name)
}

/// What a test of jails needs: the interpreter, and a machine that permits jails.
pub(crate) async fn with_jails(python: impl Future<Output = Option<Python>>) -> Option<Python> {
    python.await.filter(|_| test_support::has_user_namespaces())
}

/// A server that answers.
pub(crate) struct RunningServer {
    child: Child,
    url: String,
}

impl RunningServer {
    /// Starts a server on a free port with this data directory, and with one of our scripts.
    pub(crate) async fn start(data: &Path, script: &str) -> Self {
        Self::start_at("127.0.0.1:0", data, script).await
    }

    /// The same at this address.
    pub(crate) async fn start_at(address: &str, data: &Path, script: &str) -> Self {
        let mut command = serve_at(address, "local", data, data);
        command.arg("--script").arg(self::script(&format!("{script}.yaml")));
        Self::spawn(command).await
    }

    /// Starts this command.
    pub(crate) async fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("it says where it listens");
        let line = line.unwrap().expect("the server ended before it listened");
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, url }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Ends it at whatever it does.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Sends it a signal.
    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        #[expect(clippy::disallowed_methods, reason = "the program is the one under test")]
        let status = Command::new("kill").args([name, &id]).status().await.unwrap();
        assert!(status.success());
    }

    /// Ends it in order, which must succeed.
    pub(crate) async fn stop(mut self) {
        self.signal("-TERM").await;
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap();
        assert_eq!(status.code(), Some(143), "SIGTERM ends it in order");
    }
}

/// Runs one of our programs. Its standard error is the message of a failure.
pub(crate) async fn run_python(python: &Python, program: &str, arguments: &[&str]) -> String {
    let path = dir().join("programs").join(program);
    let mut command = python.command();
    command.arg(&path).args(arguments).env("PYTHONPATH", dir().join("programs"));
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.unwrap_or_else(|_| panic!("{program} did not end")).unwrap();
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program}:\n{out}\n{error}");
    out.into_owned()
}
