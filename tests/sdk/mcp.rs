//! MCP servers of other people as tools of a session: reference servers of the newest revision of the protocol and of earlier ones, and
//! one of the official SDK, which speaks the newest revision by standard streams and by HTTP.

use std::path::Path;
use std::process::Stdio;

use test_support::{Python, free_port};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::server::{self, RunningServer, command, dir, program, run_python, with_jails};

/// The interpreter with the SDK and the servers, if there is one.
pub(crate) async fn python() -> Option<Python> {
    let check = "import mcp, mcp_server_fetch, mcp_server_git, mcp_server_time";
    Python::find("CONJURE_ORACLE_PYTHON_MCP", check, "`mcp` 2.3.0 and its reference servers").await
}

/// The interpreter with a server on the SDK's first major version, which speaks the revisions with `initialize` alone.
pub(crate) async fn former_python() -> Option<Python> {
    let check = "import mcp_server_sqlite, mcp.server.fastmcp";
    Python::find("CONJURE_ORACLE_PYTHON_MCP_1", check, "`mcp` before 2 and `mcp-server-sqlite`").await
}

/// The directory of the programs beside the interpreter.
pub(crate) async fn programs(python: &Python) -> String {
    let interpreter = interpreter(python).await;
    interpreter.rsplit_once('/').unwrap().0.to_owned()
}

/// The path of the interpreter.
async fn interpreter(python: &Python) -> String {
    python.run(&["-c", "import sys; print(sys.executable, end='')"], "").await
}

/// What a run prints whose model calls these tools, one after the other, with these inputs: each result in order, then what it said of missing tools.
pub(crate) async fn run(home: &Path, calls: &[(&str, &str)], arguments: &[&str]) -> Vec<String> {
    let arguments: Vec<&str> = ["--ephemeral"].iter().chain(arguments).copied().collect();
    run_in(home, calls, &arguments).await
}

/// The same with sessions that stay in the data directory.
async fn run_in(home: &Path, calls: &[(&str, &str)], arguments: &[&str]) -> Vec<String> {
    let mut script = "version: 1\nturns:\n".to_owned();
    for (tool, input) in calls {
        script.push_str(&format!(
            "  - content: [{{text: Working.}}, {{tool_use: {{name: {tool}, input: {input}}}}}]\n"
        ));
    }
    script.push_str("  - content: done\n");
    std::fs::write(home.join("script.yaml"), script).unwrap();
    let mut command = command();
    command.args(["run", "--json", "--data"]).arg(home.join("data"));
    command.arg("--script").arg(home.join("script.yaml")).args(arguments).arg("go");
    let config = home.join("config.toml");
    if config.is_file() {
        command.env("CONJURE_CONFIG", config);
    }
    let output = command.env("TOKEN", "t0ken").output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let events = String::from_utf8(output.stdout).unwrap();
    let of = |line: &str| {
        let (_, after) = line.split_once(r#""type":"agent.tool_result""#)?;
        Some(after.to_owned())
    };
    let missing = events
        .lines()
        .filter(|line| line.contains(r#""type":"session.tool_server_failed""#))
        .map(str::to_owned);
    events.lines().filter_map(of).chain(missing).collect()
}

#[tokio::test]
async fn the_reference_servers_work_in_jails() {
    let Some(python) = with_jails(python()).await else { return };
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    let repository = home.join("repository");
    let git = "import sys, git; repo = git.Repo.init(sys.argv[1]); repo.index.commit('first of all')";
    python.run(&["-c", git, repository.to_str().unwrap()], "").await;
    let bin = programs(&python).await;
    let workspace = home.join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let file = format!(
        r#"{{"mcpServers": {{
            "time": {{"command": "{bin}/mcp-server-time", "args": ["--local-timezone=${{ZONE:-UTC}}"]}},
            "git": {{"type": "stdio", "command": "{bin}/mcp-server-git", "args": ["--repository", "{}"]}}
        }}}}"#,
        repository.display(),
    );
    std::fs::write(home.join(".mcp.json"), file).unwrap();
    let (config, workspace) = (home.join(".mcp.json"), workspace.display().to_string());
    let arguments =
        ["--sandbox", "jail", "--mcp-config", config.to_str().unwrap(), "--workspace", &workspace];
    // The servers of a file are not waited for. Once their tools were listed, later sessions know them. Each server ends with its run, so a
    // busy machine needs a longer run.
    let manifests = home.join("data/tenants/local/mcp");
    for seconds in [2, 4, 8, 16, 32, 50, 50] {
        let wait = format!("{{command: sleep {seconds}, description: Wait for the servers}}");
        run(&home, &[("bash_tool", &wait)], &arguments).await;
        if ["time", "git"].iter().all(|name| manifests.join(format!("{name}.json")).is_file()) {
            break;
        }
    }
    let tokyo = r#"{source_timezone: UTC, time: "12:00", target_timezone: Asia/Tokyo}"#;
    let log = format!("{{repo_path: {}}}", repository.display());
    let calls = [("mcp__time__convert_time", tokyo), ("mcp__git__git_log", &log)];
    let results = run(&home, &calls, &arguments).await;
    let [time, log] = results.as_slice() else { panic!("{results:#?}") };
    assert!(time.contains("+9.0h"), "{time}");
    assert!(log.contains("first of all"), "{log}");
}

/// A server of an older revision in a jail: its SDK asks by requests. That a person is asked is tested where a person can be.
#[tokio::test]
async fn an_older_server_gets_its_roots_and_may_sample_the_model() {
    let Some(python) = with_jails(former_python()).await else { return };
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    let project = home.join("project");
    std::fs::create_dir(&project).unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/mcp/tests/client/older_server.py");
    let server = |name: &str, further: &str| {
        let (python, program) = (python.program(), program.canonicalize().unwrap());
        let args = format!("args = ['{}', '{}']", program.display(), project.display());
        format!("[mcp.{name}]\ncommand = '{python}'\n{args}\nrequired = true\n{further}\n")
    };
    let config = server("may", "sampling = true") + &server("not", "");
    std::fs::write(home.join("config.toml"), config).unwrap();
    // The third answer of the script is the one to the server, which gets its text.
    let sample = ("mcp__may__sample", "{}");
    let calls = [("mcp__may__roots", "{}"), sample, sample, ("mcp__not__sample", "{}")];
    let results = run(&home, &calls, &["--sandbox", "jail"]).await;
    let [roots, sampled, refused] = results.as_slice() else { panic!("{results:#?}") };
    let expected = format!("file:///workspace/\\nfile://{}/", project.display());
    assert!(roots.contains(&expected), "{roots}");
    assert!(sampled.contains("endTurn: Working."), "{sampled}");
    assert!(refused.contains("`sampling` is not set"), "{refused}");
}

/// A server that fetches pages reaches what its configuration names. What is refused is told by its name: the server itself knows of a status
/// at most.
#[tokio::test]
async fn a_blocked_host_is_named_to_the_server() {
    let Some(python) = with_jails(python()).await else { return };
    let home = tempfile::tempdir().unwrap();
    let server = |name: &str, network: &str| {
        let program = "command = 'BIN/mcp-server-fetch'\nargs = ['--ignore-robots-txt']\nrequired = true\n";
        format!("[mcp.{name}]\n{program}{network}\n")
    };
    let config = server("some", "network = ['permitted.example']") + &server("none", "");
    let config = config.replace("BIN", &programs(&python).await);
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    let calls = [
        ("mcp__some__fetch", "{url: 'http://refused.example/page'}"),
        ("mcp__some__fetch", "{url: 'https://refused.example/page'}"),
        ("mcp__none__fetch", "{url: 'https://permitted.example/page'}"),
    ];
    let results = run(home.path(), &calls, &["--sandbox", "jail"]).await;
    let refused = [
        "refused `refused.example:80` (the name is not on the list",
        "refused `refused.example:443` (the name is not on the list",
        "refused `permitted.example:443` (the name is not on the list",
    ];
    assert_eq!(results.len(), refused.len(), "{results:#?}");
    for (result, refused) in results.iter().zip(refused) {
        assert!(result.contains(r#""is_error":true"#) && result.contains(refused), "{refused}: {result}");
    }
    assert!(results[2].contains("`network` in the configuration of `none`"), "{results:#?}");
}

#[tokio::test]
async fn a_server_of_the_previous_revision_writes_only_into_the_workspace() {
    let Some(python) = with_jails(former_python()).await else { return };
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    let workspace = home.join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let server = format!("{}/mcp-server-sqlite --db-path", programs(&python).await);
    let inside = format!("db={server} '{}/notes.db'", workspace.display());
    let outside = format!("out={server} '{}/notes.db'", home.display());
    let dir = workspace.display().to_string();
    let arguments = ["--sandbox", "jail", "--workspace", &dir, "--mcp", &inside, "--mcp", &outside];
    let calls = [
        ("mcp__db__create_table", "{query: CREATE TABLE notes (words TEXT)}"),
        ("mcp__db__write_query", "{query: INSERT INTO notes VALUES ('kept')}"),
        ("mcp__db__read_query", "{query: SELECT words FROM notes}"),
    ];
    let results = run(&home, &calls, &arguments).await;
    let [_, _, read, missing] = results.as_slice() else { panic!("{results:#?}") };
    assert!(read.contains("kept"), "{read}");
    assert!(missing.contains("the MCP server `out` could not be started"), "{missing}");
    assert!(workspace.join("notes.db").is_file() && !home.join("notes.db").exists());
}

const CALLS: [(&str, &str); 4] = [
    ("mcp__tools__add", "{a: 2, b: 3}"),
    ("mcp__tools__version", "{}"),
    ("mcp__tools__mixed", "{}"),
    ("mcp__tools__broken", "{}"),
];

fn check(results: &[String]) {
    let [add, version, mixed, broken] = results else { panic!("{results:#?}") };
    assert!(add.contains(r#""content":"5""#), "{add}");
    assert!(version.contains("2026-07-28"), "{version}");
    for part in ["words", "image/png", "audio/wav, 5 bytes, is in the file", "a note", "test://link"] {
        assert!(mixed.contains(part), "{part}: {mixed}");
    }
    assert!(broken.contains(r#""is_error":true"#) && broken.contains("broken"), "{broken}");
}

#[tokio::test]
async fn a_server_of_the_official_sdk_speaks_the_newest_revision() {
    let Some(python) = python().await else { return };
    let home = tempfile::tempdir().unwrap();
    let server = dir().join("programs/mcp_tools.py");
    let server = format!("tools={} '{}'", interpreter(&python).await, server.display());
    check(&run(home.path(), &CALLS, &["--sandbox", "local", "--mcp", &server]).await);
}

#[tokio::test]
async fn a_resumed_session_has_the_servers_named_again_by_the_command() {
    let Some(python) = python().await else { return };
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let server = dir().join("programs/mcp_tools.py");
    let server = format!("tools={} '{}'", interpreter(&python).await, server.display());
    let first = run_in(home, &CALLS[..1], &["--sandbox", "local", "--mcp", &server]).await;
    assert!(first[0].contains(r#""content":"5""#), "{first:?}");
    let call =
        "  - content: [{tool_use: {name: mcp__tools__add, input: {a: 40, b: 2}}}]\n  - content: done\n";
    std::fs::write(home.join("script.yaml"), format!("version: 1\nturns:\n{}", call.repeat(2))).unwrap();
    let mut list = command();
    list.args(["sessions", "list", "--data"]).arg(home.join("data"));
    let listed = String::from_utf8(list.output().await.unwrap().stdout).unwrap();
    let id = listed.split_whitespace().find(|word| word.starts_with("sesn_")).unwrap();
    let resume = async |server: &str| {
        let mut command = command();
        command.args(["sessions", "resume", id, "again", "--json", "--mcp", server, "--data"]);
        command.arg(home.join("data")).arg("--script").arg(home.join("script.yaml"));
        command.output().await.unwrap()
    };
    let resumed = resume(&server).await;
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    let events = String::from_utf8(resumed.stdout).unwrap();
    assert!(events.contains(r#""content":"42""#), "{events}");
    let other = resume(&server.replace("tools=", "other=")).await;
    let stderr = String::from_utf8(other.stderr).unwrap();
    assert_eq!(other.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("without an MCP server `other`") && stderr.contains("`tools`"), "{stderr}");
}

/// A server by HTTP.
pub(crate) async fn serve(python: &Python, port: u16, guard: &[&str]) -> Child {
    start(python, "mcp_tools.py", port, guard).await
}

async fn start(python: &Python, name: &str, port: u16, guard: &[&str]) -> Child {
    let mut command = python.command();
    command.arg(dir().join("programs").join(name));
    command.args(["--port", &port.to_string()]).args(guard).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    child
}

#[tokio::test]
async fn a_server_by_http_wants_its_token() {
    let Some(python) = python().await else { return };
    let home = tempfile::tempdir().unwrap();
    let port = free_port();
    let _server = serve(&python, port, &["--token", "t0ken"]).await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    let config = format!(
        "[mcp.tools]\nurl = '{url}'\nheaders = {{ Authorization = 'Bearer ${{TOKEN}}' }}\nrequired = true\n"
    );
    let file = home.path().join("config.toml");
    std::fs::write(&file, config).unwrap();
    check(&run(home.path(), &CALLS, &["--sandbox", "local"]).await);
    std::fs::remove_file(&file).unwrap();

    let without =
        run(home.path(), &CALLS[..1], &["--sandbox", "local", "--mcp", &format!("tools={url}")]).await;
    assert!(without.last().unwrap().contains("asks for authorization"), "{without:?}");
}

#[tokio::test]
async fn the_official_sdk_is_a_client_of_skills_a_sandbox_and_an_agent() {
    let Some(python) = python().await else { return };
    let home = tempfile::tempdir().unwrap();
    let client = dir().join("programs/mcp_client.py");
    let (program, skills) = (program(), dir().join("../../fixtures/skills"));
    let script = dir().join("scripts/echo.yaml");
    let arguments = [
        client.to_str().unwrap(),
        program.to_str().unwrap(),
        "mcp",
        "serve",
        "--skills",
        skills.to_str().unwrap(),
        "--sandbox",
        "local",
        "--script",
        script.to_str().unwrap(),
        "--data",
        home.path().to_str().unwrap(),
    ];
    let output = python.run(&arguments, "").await;
    assert!(output.contains("auto") && output.contains("legacy"), "{output}");
}

#[tokio::test]
async fn agents_of_the_api_use_servers_with_credentials_of_vaults() {
    let (Some(python), Some(sdk)) = (python().await, server::python().await) else { return };
    let data = tempfile::tempdir().unwrap();
    let (guarded, rotating) = (free_port(), free_port());
    let _guarded = serve(&python, guarded, &["--token", "t0ken"]).await;
    let _rotating = serve(&python, rotating, &["--rotating"]).await;
    let server = RunningServer::spawn(serve_with_private_servers(data.path(), "mcp.yaml")).await;
    let urls = [format!("http://127.0.0.1:{guarded}/mcp"), format!("http://127.0.0.1:{rotating}")];
    run_python(&sdk, "mcp_agent.py", &[server.url(), &urls[0], &urls[1]]).await;
    server.stop().await;
    // The secrets are nowhere on the disk in plain.
    for secret in ["t0ken", "wr0ng", "s3cret"] {
        let found = files_with(data.path(), secret.as_bytes());
        assert!(found.is_empty(), "{secret}: {found:?}");
    }
}

#[tokio::test]
async fn an_elicitation_survives_a_restart_until_the_api_client_answers() {
    let (Some(python), Some(sdk)) = (python().await, server::python().await) else { return };
    let data = tempfile::tempdir().unwrap();
    let port = free_port();
    let _asking = start(&python, "mcp_asking.py", port, &[]).await;
    let start = || RunningServer::spawn(serve_with_private_servers(data.path(), "elicitation.yaml"));
    let server = start().await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    let sessions = run_python(&sdk, "elicitation_asked.py", &[server.url(), &url]).await;
    server.kill().await;
    let server = start().await;
    let ids: Vec<&str> = sessions.split_whitespace().collect();
    let arguments = [&[server.url()], ids.as_slice()].concat();
    run_python(&sdk, "elicitation_answered.py", &arguments).await;
    server.stop().await;
}

#[tokio::test]
async fn a_person_signs_in_and_sessions_use_it() {
    let Some(python) = python().await else { return };
    let home = tempfile::tempdir().unwrap();
    let port = free_port();
    // Each access token ends so soon that it is renewed before it is used.
    let _server = start(&python, "mcp_login.py", port, &["--lifetime", "30"]).await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    std::fs::write(home.path().join("config.toml"), format!("[mcp.tools]\nurl = '{url}'\nrequired = true\n"))
        .unwrap();
    let calls = [("mcp__tools__add", "{a: 2, b: 3}")];
    let data = home.path().join("data").display().to_string();
    let arguments = ["--sandbox", "local"];
    let before = run_in(home.path(), &calls, &arguments).await;
    assert!(before.last().unwrap().contains("conjure mcp login tools"), "{before:?}");

    let config = home.path().join("config.toml");
    let (mut login, address) = begin_login(&data, &config, &[]).await;
    // Acts as the browser: the authorization server redirects it to the command. Other requests change nothing.
    let visit = "import sys, urllib.parse, urllib.request as r\n\
                 query = urllib.parse.parse_qs(urllib.parse.urlparse(sys.argv[1]).query)\n\
                 back = query['redirect_uri'][0]\n\
                 try:\n r.urlopen(back + '?code=x&state=wrong')\nexcept Exception as error: print(error.code)\n\
                 print(r.urlopen(sys.argv[1]).read().decode())";
    let page = python.run(&["-c", visit, &address], "").await;
    assert!(page.contains("404") && page.contains("You are signed in."), "{page}");
    assert!(login.wait().await.unwrap().success());
    // Somebody refuses.
    let (mut login, address) = begin_login(&data, &config, &[]).await;
    let refuse = "import sys, urllib.parse, urllib.request as r\n\
                  query = urllib.parse.parse_qs(urllib.parse.urlparse(sys.argv[1]).query)\n\
                  r.urlopen(query['redirect_uri'][0] + '?error=access_denied&state=' + query['state'][0])";
    python.run(&["-c", refuse, &address], "").await;
    assert_eq!(login.wait().await.unwrap().code(), Some(1));
    for _ in 0..2 {
        let after = run_in(home.path(), &calls, &arguments).await;
        assert!(after[0].contains(r#""content":"5""#), "{after:?}");
    }
    // Later requests use the earlier grant, also after these renewals.
    let (mut login, address) = begin_login(&data, &config, &["--scope", "write"]).await;
    assert!(address.contains("scope=use+write"), "{address}");
    python.run(&["-c", visit, &address], "").await;
    assert!(login.wait().await.unwrap().success());
    for secret in ["access-", "refresh-"] {
        let found = files_with(home.path(), secret.as_bytes());
        assert!(found.is_empty(), "{secret}: {found:?}");
    }
    let mut command = command();
    command.args(["mcp", "logout", &url, "--data", &data]).env("CONJURE_CONFIG", &config);
    assert!(command.status().await.unwrap().success());
    std::fs::remove_dir_all(home.path().join("data/tenants/local/mcp")).unwrap();
    let later = run_in(home.path(), &calls, &arguments).await;
    assert!(later.last().unwrap().contains("conjure mcp login tools"), "{later:?}");
}

/// The command of a server with this script, whose agents may reach MCP servers of this machine.
pub(crate) fn serve_with_private_servers(data: &Path, script: &str) -> Command {
    let config = data.join("config.toml");
    std::fs::write(&config, "[serve]\nprivate_mcp_servers = true\n").unwrap();
    let mut command = server::serve("local", data, data);
    command.arg("--script").arg(server::script(script)).env("CONJURE_CONFIG", config);
    command
}

/// A sign-in that has begun, and the address for a browser.
async fn begin_login(data: &str, config: &Path, further: &[&str]) -> (Child, String) {
    let mut command = command();
    command.args(["mcp", "login", "tools", "--data", data]).args(further).env("CONJURE_CONFIG", config);
    let mut login = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(login.stdout.take().unwrap()).lines();
    let address = lines.next_line().await.unwrap().expect("it prints where to sign in");
    (login, address)
}

/// The files beneath a directory that hold these bytes.
pub(crate) fn files_with(dir: &Path, bytes: &[u8]) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, bytes));
        } else if path.is_file()
            && std::fs::read(&path).unwrap().windows(bytes.len()).any(|window| window == bytes)
        {
            found.push(path);
        }
    }
    found
}
