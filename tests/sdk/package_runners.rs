//! Lines with `uvx` and `npx`, as people have them for MCP servers: the package comes from a registry of the test, through the network of the jail.

use std::path::Path;
use std::process::Stdio;

use test_support::Python;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::mcp::{programs, run};
use crate::server::{dir, with_jails};

/// The interpreter with `uv`, if there is one.
async fn uv_python() -> Option<Python> {
    Python::find("CONJURE_ORACLE_PYTHON_MCP", "import uv", "`uv`").await
}

/// A registry with the package `demo-server`, and its port.
async fn registry(mut command: Command) -> (Child, u16) {
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).await.unwrap();
    (child, port.trim().parse().unwrap())
}

/// Runs sessions with this server, whose package is at the port of 127.0.0.2. Each path that the registry is asked for is a line of the file
/// `asked`.
async fn works_and_is_fetched_once(home: &Path, port: u16, server: &str, package: &str) {
    let server = format!(
        "[mcp.demo]\n{server}\nrequired = true\nstartup_timeout = 120\nnetwork = ['127.0.0.2:{port}']\n"
    );
    let calls = [("mcp__demo__hello", "{}")];
    std::fs::write(home.join("config.toml"), &server).unwrap();
    let refused = run(home, &calls, &["--sandbox", "jail"]).await;
    let told = refused.last().unwrap();
    assert!(told.contains(&format!("refused `127.0.0.2:{port}`")), "{refused:#?}");

    std::fs::write(home.join("config.toml"), format!("private_addresses = ['127.0.0.2']\n{server}")).unwrap();
    let fetched = || {
        let asked = std::fs::read_to_string(home.join("asked")).unwrap();
        asked.lines().filter(|path| path.ends_with(package)).count()
    };
    let mut after_first = None;
    for _ in 0..2 {
        let [result] = &run(home, &calls, &["--sandbox", "jail"]).await[..] else { panic!("one result") };
        assert!(result.contains("hello from a package"), "{result}");
        assert_eq!(*after_first.get_or_insert_with(fetched), fetched());
    }
    assert_ne!(after_first, Some(0));
}

#[tokio::test]
async fn a_server_that_uvx_fetches_works_in_a_jail_and_is_fetched_once() {
    let Some(python) = with_jails(uv_python()).await else { return };
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let mut command = python.command();
    command.arg(dir().join("programs/python_index.py")).args([home.join("index"), home.join("asked")]);
    command.env("PYTHONPATH", dir().join("programs"));
    let (_registry, port) = registry(command).await;
    let server = format!(
        "command = '{}/uvx'\nargs = ['demo-server']\n\
         env = {{ UV_DEFAULT_INDEX = 'http://127.0.0.2:{port}', UV_PYTHON_DOWNLOADS = 'never' }}",
        programs(&python).await
    );
    works_and_is_fetched_once(home, port, &server, ".whl").await;
}

#[tokio::test]
async fn a_server_that_npx_fetches_works_in_a_jail_and_is_fetched_once() {
    let Some(python) = with_jails(uv_python()).await else { return };
    #[expect(clippy::disallowed_methods, reason = "a program of this machine")]
    let npx = Command::new("npx").arg("--version").output().await;
    if npx.is_err() {
        return test_support::skip("there is no `npx`", "the package `npm` has it");
    }
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let mut command = python.command();
    command.arg(dir().join("programs/npm_registry.py")).arg(home.join("asked"));
    let (_registry, port) = registry(command).await;
    let server = format!(
        "command = 'npx'\nargs = ['-y', 'demo-server']\n\
         env = {{ NPM_CONFIG_REGISTRY = 'http://127.0.0.2:{port}' }}"
    );
    works_and_is_fetched_once(home, port, &server, ".tgz").await;
}
