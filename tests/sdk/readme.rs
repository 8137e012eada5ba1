//! The server example of the README: it runs unchanged, on a free port.

use crate::server::{self, RunningServer, dir, python};

/// The fenced blocks of this language, in order.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let opening = format!("```{language}\n");
    let remainder = text.split(opening.as_str()).skip(1);
    remainder.map(|block| block.split("```").next().unwrap_or_default()).collect()
}

#[tokio::test]
async fn the_readme_starts_a_server_and_gets_an_answer() {
    let Some(python) = python().await else { return };
    let readme = std::fs::read_to_string(dir().join("../../README.md")).unwrap();
    let command =
        blocks(&readme, "sh").into_iter().flat_map(str::lines).find(|line| line.contains(" serve "));
    let command = command.expect("README starts a server");
    let (_, arguments) = command.split_once(" -- ").expect("by `cargo run … -- serve …`");
    let home = tempfile::tempdir().unwrap();
    let mut arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
    // The block takes the usual port and directory; the test takes free ones.
    arguments.extend(["--listen", "127.0.0.1:0", "--data"].map(str::to_owned));
    arguments.push(home.path().display().to_string());
    let mut command = server::command();
    command.env_remove("ANTHROPIC_API_KEY");
    command.args(arguments).current_dir(dir().join("../..")).env("HOME", home.path());
    let server = RunningServer::spawn(command).await;
    let program = blocks(&readme, "python").into_iter().next().expect("README has a client");
    assert!(program.contains("http://127.0.0.1:8400"), "{program}");
    let program = program.replace("http://127.0.0.1:8400", server.url());
    let output = python.run(&["-c", &program], "").await;
    assert_eq!(output.trim(), "You said: Hello");
    server.stop().await;
}
