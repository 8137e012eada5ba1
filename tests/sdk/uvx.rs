//! Lines with `uvx`, as people have them for MCP servers: the package comes from an index of the test, through the network of the jail.

use std::path::Path;
use std::process::Stdio;

use test_support::Python;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use crate::mcp::{programs, run};
use crate::server::folder;

/// The interpreter with `uv`, if there is one.
async fn python() -> Option<Python> {
    Python::find("CONJURE_ORACLE_PYTHON_MCP", "import uv", "`uv`").await
}

/// An index with the package `demo-server`, and its port. Each path that is asked for becomes a line of the file `asked`.
async fn index(python: &Python, home: &Path) -> (Child, u16) {
    let mut command = python.command();
    command.arg(folder().join("programs/package_index.py")).args([home.join("index"), home.join("asked")]);
    command.env("PYTHONPATH", folder().join("programs"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).await.unwrap();
    (child, port.trim().parse().unwrap())
}

#[tokio::test]
async fn a_server_that_uvx_fetches_works_in_a_jail_and_is_fetched_once() {
    let Some(python) = python().await else { return };
    if !test_support::has_user_namespaces() {
        return test_support::skip("this machine permits no jail", "unprivileged user namespaces are needed");
    }
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let (_index, port) = index(&python, home).await;
    let uvx = format!("{}/uvx", programs(&python).await);
    let server = format!(
        "[mcp.demo]\ncommand = '{uvx}'\nargs = ['demo-server']\nrequired = true\nstartup_timeout = 120\n\
         network = ['127.0.0.2:{port}']\n\
         env = {{ UV_DEFAULT_INDEX = 'http://127.0.0.2:{port}', UV_PYTHON_DOWNLOADS = 'never' }}\n"
    );
    let calls = [("mcp__demo__hello", "{}")];

    std::fs::write(home.join("config.toml"), &server).unwrap();
    let refused = run(home, &calls, &["--sandbox", "jail"]).await;
    let told = refused.last().unwrap();
    assert!(told.contains(&format!("refused `127.0.0.2:{port}`")), "{refused:#?}");

    std::fs::write(home.join("config.toml"), format!("private_addresses = ['127.0.0.2']\n{server}")).unwrap();
    let fetched = || {
        let asked = std::fs::read_to_string(home.join("asked")).unwrap();
        asked.lines().filter(|path| path.ends_with(".whl")).count()
    };
    let mut after_first = None;
    for _ in 0..2 {
        let [result] = &run(home, &calls, &["--sandbox", "jail"]).await[..] else { panic!("one result") };
        assert!(result.contains("hello from a package"), "{result}");
        assert_eq!(*after_first.get_or_insert_with(fetched), fetched());
    }
    assert_ne!(after_first, Some(0));
}
