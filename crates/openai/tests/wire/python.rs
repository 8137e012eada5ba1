//! Finds the Python that has the official SDK, and runs programs in it.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The interpreter that has these modules; `None`, told loudly, without them.
pub(crate) async fn interpreter(check: &str, modules: &str) -> Option<String> {
    let python = variable("CONJURE_ORACLE_PYTHON").unwrap_or_else(|| "python3".to_owned());
    let found = command(&python).args(["-c", check]).stderr(Stdio::null()).status().await;
    if found.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    let reason = format!("`{python}` has no {modules} of PyPI, and CONJURE_ORACLE_PYTHON names no other");
    test_support::skip(&reason, ".ci/run installs it");
    None
}

#[expect(clippy::disallowed_methods, reason = "the oracle is a program of the test, not of a sandbox")]
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    // Nothing of the machine's own proxies or keys.
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "OPENAI_API_KEY"] {
        command.env_remove(name);
    }
    command.env("NO_PROXY", "*").kill_on_drop(true);
    command
}

#[expect(clippy::disallowed_methods, reason = "the tests' own setting, declared at the top of `main.rs`")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What a program prints that reads this.
pub(crate) async fn run(python: &str, arguments: &[&str], given: &Value) -> Value {
    let mut child = command(python)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(given.to_string().as_bytes()).await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
