//! [`Python`]: an interpreter that has what tests compare with: official SDKs, and servers.
#![expect(clippy::unwrap_used, reason = "a test that cannot run its program has failed")]

use std::process::Stdio;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// What tests do not give to the programs that they run: the proxies and the keys of the machine.
const REMOVED: [&str; 10] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OPENAI_API_KEY",
];

/// An interpreter with some packages.
#[derive(Debug, Clone)]
pub struct Python {
    program: String,
}

impl Python {
    /// The interpreter that this variable names, else `python3`. `None`, which is recorded as a skip of the calling test, where it cannot
    /// run `check`. `packages` says what it needs.
    pub async fn find(variable: &str, check: &str, packages: &str) -> Option<Self> {
        let python = Self { program: setting(variable).unwrap_or_else(|| "python3".to_owned()) };
        let checked = python.command().args(["-c", check]).stderr(Stdio::null()).status().await;
        if checked.is_ok_and(|status| status.success()) {
            return Some(python);
        }
        let reason = format!("`{}` has no {packages} of PyPI, and {variable} names no other", python.program);
        crate::skip(&reason, ".ci/run installs it");
        None
    }

    /// The interpreter.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }

    /// A command that runs the interpreter. Dropping its child ends it.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the program is one of the test, not of a sandbox")]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for name in REMOVED {
            command.env_remove(name);
        }
        command.env("NO_PROXY", "*").kill_on_drop(true);
        command
    }

    /// What a program prints that reads this.
    ///
    /// # Panics
    ///
    /// Where the program fails.
    pub async fn run(&self, arguments: &[&str], input: &str) -> String {
        let mut command = self.command();
        let piped =
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let (written, output) = tokio::join!(
            async move {
                let written = stdin.write_all(input.as_bytes()).await;
                drop(stdin);
                written
            },
            child.wait_with_output()
        );
        let output = output.unwrap();
        assert!(output.status.success() && written.is_ok(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The JSON that a program prints that reads this JSON.
    ///
    /// # Panics
    ///
    /// Where the program fails, or prints something else.
    pub async fn run_json(&self, arguments: &[&str], input: &Value) -> Value {
        serde_json::from_str(&self.run(arguments, &input.to_string()).await).unwrap()
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests' own setting")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
