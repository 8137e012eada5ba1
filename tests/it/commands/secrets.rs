//! Secrets of the command: their sources, and where they must not appear.

use std::fs;
use std::path::Path;

use crate::support::{Conjure, Finished, script};

fn session_of(finished: &Finished) -> String {
    let (_, remainder) = finished.stderr.split_once("conjure sessions resume ").unwrap();
    remainder[..37].to_owned()
}

/// A script that runs this command and says its result.
fn command(command: &str) -> tempfile::NamedTempFile {
    script(&format!(
        "- content: [{{tool_use: {{name: bash_tool, input: {{command: '{command}', description: x}}}}}}]\n\
         - content: \"{{{{result:last}}}}\"\n"
    ))
}

fn journal_holds(data: &Path, secret: &str) -> bool {
    let files = fs::read_dir(data.join("journal")).unwrap().map(|entry| entry.unwrap().path());
    let holds =
        |path: &Path| fs::read(path).unwrap().windows(secret.len()).any(|window| window == secret.as_bytes());
    files.filter(|path| path.is_file()).any(|path| holds(&path))
}

#[test]
fn a_secret_in_the_name_of_a_file_is_reported_nowhere() {
    let data = tempfile::tempdir().unwrap();
    let script =
        command("echo 1 > report-$API_KEY.txt; mkdir $API_KEY; echo 2 > $API_KEY/a.txt; echo 3 > plain.txt");
    let run = Conjure::new(["run", "--env", "API_KEY=hunter2-secret", "--script"]).arg(script.path());
    let done = run.arg("Go").env("CONJURE_DATA", data.path()).finish().code(0);
    let id = session_of(&done);
    assert!(!journal_holds(data.path(), "hunter2"));
    assert!(journal_holds(data.path(), "report-[REDACTED:API_KEY].txt"));
    for arguments in [
        &["sessions", "show", &id][..],
        &["sessions", "show", &id, "--format", "json"],
        &["sessions", "export", &id],
    ] {
        let stdout = Conjure::new(arguments).env("CONJURE_DATA", data.path()).finish().code(0).stdout;
        assert!(!stdout.contains("hunter2"), "{stdout}");
        assert!(stdout.contains("plain.txt"), "{stdout}");
    }
}

#[test]
fn secret_variables_are_not_reported_to_the_model() {
    let data = tempfile::tempdir().unwrap();
    let script =
        command("echo $DATABASE_URL; echo $MY_PAT $APP_JWT $SESSION $COOKIE; echo ${DATABASE_URL:15:8}");
    let variables = [
        "DATABASE_URL=postgres://app:hunter2x@db/main",
        "MY_PAT=hunter2-pat",
        "APP_JWT=hunter2-jwt",
        "SESSION=hunter2-session",
        "COOKIE=hunter2-cookie",
    ];
    let run = variables.iter().fold(Conjure::new(["run", "--script"]).arg(script.path()), |run, variable| {
        run.args(["--env", variable])
    });
    let done = run.arg("Go").env("CONJURE_DATA", data.path()).finish().code(0);
    let names = ["MY_PAT", "APP_JWT", "SESSION", "COOKIE"].map(|name| format!("[REDACTED:{name}]")).join(" ");
    let url = "[REDACTED:DATABASE_URL]";
    assert_eq!(done.stdout.trim_end(), format!("{url}\n{names}\n{url}"));
    assert!(!journal_holds(data.path(), "hunter2"));
}

#[test]
fn an_input_may_come_from_a_file_or_standard_input() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("name");
    fs::write(&file, "Grace\n").unwrap();
    let path = file.to_str().unwrap();
    let run_with = |input: &str, stdin: &str| {
        let script = command("echo \"<$CONJURE_INPUT_USERNAME>\"");
        let run =
            Conjure::new(["run", "--skills", "fixtures/manifests/sidecar", "--script"]).arg(script.path());
        run.args(["--input", input]).input(stdin).arg("Go").env("CONJURE_DATA", data.path()).finish()
    };
    assert_eq!(run_with(&format!("username=@{path}"), "").code(0).stdout, "<Grace>\n");
    assert_eq!(run_with("username=-", "Ada\r\n").code(0).stdout, "<Ada>\n");
    assert_eq!(run_with("username=@@home", "").code(0).stdout, "<@home>\n");
    run_with("username=@/no/such/file", "").code(2).says("`/no/such/file` cannot be opened");
    fs::write(&file, b"\xff").unwrap();
    run_with(&format!("username=@{path}"), "").code(2).says("is not UTF-8 text");
    run_with("username=@/dev/zero", "").code(2).says("is larger than 1 MiB");
    let twice = Conjure::new(["run", "--input", "a=-", "--input", "b=-", "--script", "x", "Go"]).input("x");
    twice.finish().code(2).says("standard input is the value of one input alone");
}

#[test]
fn the_servers_of_a_trusted_project_get_no_secret_unless_the_user_names_their_file() {
    let (project, script) = (tempfile::tempdir().unwrap(), script("- content: Done.\n"));
    let servers =
        r#"{"mcpServers": {"x": {"url": "http://127.0.0.1:9/${LEVEL}", "headers": {"a": "${MY_API_KEY}"}}}}"#;
    fs::write(project.path().join(".mcp.json"), servers).unwrap();
    let run = || {
        Conjure::new(["run", "Go", "--sandbox", "local", "--script"])
            .arg(script.path())
            .dir(project.path())
            .env("CONJURE_TRUSTED_PROJECTS", project.path())
            .env("LEVEL", "info")
    };
    let refused = run().env("MY_API_KEY", "hunter2-secret").finish().code(2);
    refused
        .says("it wants the variable `MY_API_KEY`, which looks like a secret")
        .says("--mcp-config .mcp.json");
    if cfg!(feature = "mcp") {
        run().env("MY_API_KEY", "hunter2-secret").args(["--mcp-config", ".mcp.json"]).finish().code(0);
        run().finish().code(0);
    }
}
