//! `conjure models` and models of other services: which respond, and the errors of the others.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use serde_json::Value;

use crate::support::Conjure;

/// A server that answers every request with this status and body, and never ends. Returns its address.
fn server(status: &'static str, kind: &'static str, body: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    address
}

/// An address where nobody listens.
fn unused_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], test_support::free_port()))
}

/// The command with this configuration.
fn conjure(arguments: &[&str], config: &str) -> Conjure {
    let command = Conjure::new(arguments);
    std::fs::create_dir(command.home().join(".conjure")).unwrap();
    std::fs::write(command.home().join(".conjure/config.toml"), config).unwrap();
    // The vendor that needs no key is not asked on a machine that may run it.
    command.env("OLLAMA_HOST", unused_address().to_string())
}

const LIST: &str = r#"{"object":"list","data":[{"id":"qwen","max_model_len":4096},{"id":"other"}]}"#;

#[test]
fn configured_models_and_vendors_are_listed_with_service_data() {
    let config = format!(
        "[models.good]\napi = \"chat\"\nmodel = \"qwen\"\nbase_url = \"http://{}/v1\"\n\
         [models.gone]\napi = \"responses\"\nbase_url = \"http://{}/v1\"\n\
         [models.keyed]\napi = \"gemini\"\nkey_env = \"MY_KEY\"\n",
        server("200 OK", "application/json", LIST),
        unused_address(),
    );
    let done = conjure(&["models", "--format", "json"], &config).finish().code(0);
    let listed: Value = serde_json::from_str(&done.stdout).unwrap();
    let service = |name: &str| {
        let services = listed["services"].as_array().unwrap();
        services.iter().find(|service| service["name"] == name).unwrap().clone()
    };
    let valid = service("good");
    assert_eq!((valid["state"].as_str(), valid["api"].as_str()), (Some("answers"), Some("chat")));
    assert_eq!(valid["models"][0], serde_json::json!({"id": "qwen", "context_tokens": 4096}));
    assert_eq!(service("gone")["state"], "unreachable");
    assert_eq!(
        (&service("keyed")["state"], &service("keyed")["reason"]),
        (&"no_key".into(), &"MY_KEY".into())
    );
    assert_eq!(service("anthropic:NAME")["reason"], "ANTHROPIC_API_KEY");
    assert_eq!(service("openai:NAME")["state"], "no_key");
    assert_eq!(service("ollama:NAME")["state"], "unreachable");

    let done = conjure(&["models"], &config).finish().code(0);
    let line = |name: &str| done.stdout.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("good").ends_with("answers, with 2 models"), "{}", done.stdout);
    assert!(line("keyed").ends_with("no key: `MY_KEY` is not set"), "{}", done.stdout);
    assert!(line("gone").contains("no connection to the service"), "{}", done.stdout);
}

#[test]
fn the_models_of_one_service_are_listed_by_name() {
    let address = server("200 OK", "application/json", LIST);
    let config = format!("[models.good]\napi = \"chat\"\nbase_url = \"http://{address}/v1\"\n");
    let done = conjure(&["models", "good"], &config).finish().code(0);
    assert_eq!(done.stdout, "qwen  (context 4096 tokens)\nother\n");
    let done = conjure(&["models", "openai:"], "").env("OPENAI_BASE_URL", format!("http://{address}/v1"));
    assert!(done.finish().code(0).stdout.starts_with("qwen"));
}

#[test]
fn an_invalid_model_list_is_reported_with_the_services_message() {
    let page = "<html><body>Welcome\u{1b}[2J to <b>nginx</b></body></html>";
    let cases = [
        (server("200 OK", "text/html", page), "did not answer with a list of models. It begins: Welcome"),
        (server("401 Unauthorized", "application/json", r#"{"error":"no entry"}"#), "answered 401"),
        (unused_address(), "no connection to the service"),
    ];
    for (address, part) in cases {
        let config = format!("[models.m]\napi = \"chat\"\nbase_url = \"http://{address}/v1\"\n");
        let done = conjure(&["models", "m"], &config).finish().code(1);
        assert!(done.stderr.contains(part), "{}", done.stderr);
        assert!(!done.stderr.contains('\u{1b}'), "{}", done.stderr);
    }
}

#[test]
fn an_unusable_model_reports_what_is_missing() {
    let config = "[models.m]\napi = \"chat\"\nbase_url = \"http://h.example/v1\"\nkey_env = \"MY_KEY\"\n";
    for (model, key, part, hint) in [
        ("m", None, "the model `m` needs a key, and `MY_KEY` is not set", "export MY_KEY"),
        (
            "m",
            Some(("MY_KEY", "sk-1")),
            "the key would travel in plain text",
            "`base_url` of the model's table",
        ),
        ("openai:", None, "`openai:` names no model", "--model ollama:qwen3"),
        ("gemini:x", None, "`GEMINI_API_KEY` is not set", "export GEMINI_API_KEY"),
        (
            "openai:x",
            Some(("OPENAI_API_KEY", "sk-1\nx")),
            "holds a line break",
            "taken from `OPENAI_API_KEY`",
        ),
        ("claude-x", None, "`ANTHROPIC_API_KEY` is not set", "`ollama:NAME`; configured are `m`"),
    ] {
        let mut run = conjure(&["run", "--ephemeral", "--sandbox", "local", "--model", model, "hi"], config);
        if let Some((name, value)) = key {
            run = run.env(name, value);
        }
        let done = run.finish().code(2);
        assert!(done.stderr.contains(part) && done.stderr.contains(hint), "{model}: {}", done.stderr);
        assert!(!done.stderr.contains("sk-1"), "{}", done.stderr);
    }
}

#[test]
fn the_doctor_asks_the_services_of_configured_models() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let config = format!(
        "[models.good]\napi = \"chat\"\nbase_url = \"http://{}/v1\"\n[models.gone]\napi = \"chat\"\nbase_url = \"http://{}/v1\"\n",
        server("200 OK", "application/json", LIST),
        unused_address(),
    );
    let done = conjure(&["doctor"], &config).finish().code(0);
    let line = done.stdout.lines().find(|line| line.contains(" models  ")).unwrap();
    assert!(line.starts_with("no") && line.contains("`gone`") && !line.contains("`good`"), "{}", done.stdout);
}
