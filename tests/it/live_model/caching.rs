//! The cost of each skill delivery for the service's cache, measured on the wire: how much of each request repeats the one
//! before.
//!
//! `cargo test --test it caching -- --nocapture` prints the table that the documentation has.

use conjure_anthropic::fake::{FakeMessages, RecordedRequest};
use conjure_conversation::scripted::Script;

use super::Service;

/// Two skills, one after the other, with a command in between.
const CONVERSATION: &str = "version: 1
turns:
  - content: [{tool_use: {name: NAME, input: FIRST}}]
  - content: [{tool_use: {name: bash_tool, input: {command: seq 300, description: x}}}]
  - content: [{tool_use: {name: NAME, input: SECOND}}]
  - content: [{tool_use: {name: bash_tool, input: {command: seq 300, description: x}}}]
  - content: Done.
";

/// A request, and how much of it is the beginning of the one before.
struct MeasuredRequest {
    bytes: usize,
    shared: usize,
    /// True if only its end is new.
    only_grew: bool,
}

fn measure(requests: &[RecordedRequest]) -> Vec<MeasuredRequest> {
    let mark = r#","cache_control":{"type":"ephemeral"}"#;
    let bodies: Vec<String> = requests
        .iter()
        .map(|request| String::from_utf8(request.body().to_vec()).unwrap().replace(mark, ""))
        .collect();
    let measured = bodies.windows(2).map(|pair| {
        let [before, after] = [pair[0].as_bytes(), pair[1].as_bytes()];
        let shared = before.iter().zip(after).take_while(|(a, b)| a == b).count();
        MeasuredRequest { bytes: after.len(), shared, only_grew: shared + "]}".len() >= before.len() }
    });
    measured.collect()
}

fn run(name: &str, inputs: [&str; 2], config: &str) -> Vec<MeasuredRequest> {
    let dir = tempfile::tempdir().unwrap();
    let script = CONVERSATION.replace("NAME", name).replace("FIRST", inputs[0]).replace("SECOND", inputs[1]);
    let path = dir.path().join("script.yaml");
    std::fs::write(&path, script).unwrap();
    let configured = dir.path().join("config.toml");
    std::fs::write(&configured, config).unwrap();
    let service = Service::start(FakeMessages::builder().script(Script::from_file(path).unwrap()));
    let run = service.run().arg("--config").arg(&configured).args(["--skills", "fixtures/skills"]);
    run.arg("Do it.").finish().code(0);
    measure(&service.requests())
}

#[test]
fn cache_reuse_of_each_skill_delivery() {
    let view = ["{path: '{{skill_location:log-analyzer}}'}", "{path: '{{skill_location:sales-report}}'}"];
    let load = ["{names: [log-analyzer]}", "{names: [sales-report]}"];
    let ways = [
        ("view", run("view", view, "[skills]\nactivation = \"view\"\n")),
        ("load, result", run("skills_load", load, "[skills]\ndelivery = \"result\"\n")),
        ("load, instructions", run("skills_load", load, "")),
    ];
    println!("| way | request | bytes | as before | |");
    for (way, requests) in &ways {
        for (index, request) in requests.iter().enumerate() {
            let percent = request.shared * 100 / request.bytes;
            println!("| {way} | {} | {} | {} | {percent} % |", index + 2, request.bytes, request.shared);
        }
    }
    let grew = |way: usize| -> Vec<bool> { ways[way].1.iter().map(|request| request.only_grew).collect() };
    assert_eq!(grew(0), [true; 4]);
    assert_eq!(grew(1), [true; 4]);
    // The request after each load begins with other instructions; what stands before them is as before.
    assert_eq!(grew(2), [false, true, false, true]);
    for index in [0, 2] {
        let request = &ways[2].1[index];
        assert!(request.shared > 4096, "tools and skills are listed again: {}", request.shared);
    }
}
