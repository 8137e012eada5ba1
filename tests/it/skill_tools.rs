//! Skills over complete sessions: each request while skills are loaded, read, run, switched and unloaded.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use conjure::config::{ExecutorKind, SkillSettings};
use conjure::conversation::Decision;
use conjure::model::{BlockKind, Role};
use conjure::session::{Grant, GrantScope, SessionStopReason, SkillActivation, SkillDelivery};
use conjure::tool::{Authorization, ToolCall};
use conjure::{
    Block, Message, Model, Request, Response, Runtime, RuntimeOptions, Session, SessionEventKind,
    SessionSpec, Settings, StopReason, TurnEvent, Update, Usage, approver_fn, model_fn,
};
use serde_json::{Value, json};

use crate::runtime::fixture::{Fixture, ask, follow, soon, spec, tenant};

/// Everything that a model was sent.
#[derive(Clone, Default)]
struct SentRequests(Arc<Mutex<Vec<Request>>>);

impl SentRequests {
    /// A model that makes the calls of a JSON array that it is given, at once, and then says what came of them.
    fn model(&self) -> impl Model + use<> {
        let sent = self.clone();
        model_fn(move |request: Request| {
            let answer = answer(&request);
            sent.0.lock().unwrap().push(request);
            async move { Ok(answer) }
        })
    }

    /// The requests since the last call.
    fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn answer(request: &Request) -> Response {
    let last = request.messages.last().unwrap();
    assert_eq!(last.role, Role::User);
    let results: Vec<String> = last.content.iter().filter_map(result).collect();
    let (content, stop_reason) = if results.is_empty() {
        let calls: Vec<Value> = serde_json::from_str(&last.text()).unwrap();
        let call = |(index, call): (usize, Value)| {
            let id = format!("toolu_{}_{index}", request.messages.len());
            Block::tool_use(id, call["name"].as_str().unwrap(), &call["input"])
        };
        (calls.into_iter().enumerate().map(call).collect(), StopReason::ToolUse)
    } else {
        (vec![Block::text(results.join("\n===\n"))], StopReason::EndTurn)
    };
    let usage = Usage { input_tokens: 1, output_tokens: 1, ..Usage::default() };
    Response { usage, ..Response::new(content, stop_reason) }
}

fn result(block: &Block) -> Option<String> {
    match block.kind() {
        BlockKind::ToolResult { text, .. } => Some(text.clone()),
        _ => None,
    }
}

fn call(name: &str, input: Value) -> Value {
    json!({"name": name, "input": input})
}

fn load(names: &[&str]) -> Value {
    call("skills_load", json!({"names": names}))
}

/// Has the model make these calls, and returns what came of them.
async fn make(session: &Session, calls: &[Value]) -> String {
    ask(session, &Value::from(calls).to_string()).await
}

/// True if each history begins with the previous one, byte for byte.
fn assert_append_only(requests: &[Request]) {
    let texts = |message: &Arc<Message>| -> Vec<String> {
        message.content.iter().map(|block| block.json().to_owned()).collect()
    };
    for pair in requests.windows(2) {
        let [before, after] = [&pair[0], &pair[1]].map(|request| {
            request.messages.iter().map(|message| (message.role, texts(message))).collect::<Vec<_>>()
        });
        assert!(after.starts_with(&before), "{before:?}\nand then\n{after:?}");
        assert_eq!(pair[0].tools, pair[1].tools);
    }
}

/// The last part of the instructions, where that is of active skills.
fn active(request: &Request) -> Option<&str> {
    request.instructions.last().map(String::as_str).filter(|part| part.starts_with("<active_skills>"))
}

/// A skill with these files.
fn write(host: &Fixture, name: &str, body: &str, files: &[(&str, &str)]) {
    let dir = host.skill(name);
    let text = format!("---\nname: {name}\ndescription: About {name}.\n---\n{body}\n");
    for (path, content) in files.iter().copied().chain([("SKILL.md", text.as_str())]) {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// A host with two skills beside `greeting`.
fn host(kind: ExecutorKind) -> Fixture {
    let host = Fixture::new(kind);
    write(
        &host,
        "alpha",
        "Instructions of alpha.",
        &[
            ("scripts/run.py", "import sys\nprint('alpha', sys.argv[1:])\n"),
            ("references/note.md", "The note.\n"),
        ],
    );
    write(&host, "beta", "Instructions of beta.", &[("scripts/run.sh", "echo beta; exit 3\n")]);
    host
}

fn options(host: &Fixture, sent: &SentRequests) -> RuntimeOptions {
    RuntimeOptions::from(host.config()).model("echo", sent.model())
}

async fn open(host: &Fixture, spec: SessionSpec) -> (Runtime, Session, SentRequests) {
    let sent = SentRequests::default();
    let runtime = Runtime::spawn(options(host, &sent)).await.unwrap();
    let session = runtime.open(spec).await.unwrap();
    (runtime, session, sent)
}

#[tokio::test]
async fn choose_activate_use() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let host = host(ExecutorKind::Jail);
    let (runtime, session, sent) = open(&host, spec()).await;
    let receipt: Value = serde_json::from_str(&make(&session, &[load(&["alpha"])]).await).unwrap();
    let entry = &receipt["active_skills"][0];
    assert_eq!(entry["name"], "alpha");
    assert_eq!(entry["location"], "/mnt/skills/alpha/SKILL.md");
    assert_eq!(entry["root_dir"], "/mnt/skills/alpha");
    assert!(entry["digest"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(entry["properties"], json!({"name": "alpha", "description": "About alpha."}));
    assert_eq!(
        make(&session, &[call("skills_read", json!({"path": "references/note.md"}))]).await,
        "The note.\n"
    );
    let args = json!({"path": "scripts/run.py", "args": ["--in", "a b; $(c)"]});
    let report: Value =
        serde_json::from_str(&make(&session, &[call("skills_run_script", args)]).await).unwrap();
    let stdout = "alpha ['--in', 'a b; $(c)']\n";
    assert_eq!(report, json!({"path": "scripts/run.py", "exit_code": 0, "stdout": stdout, "stderr": ""}));

    let requests = sent.take();
    assert_eq!(requests.len(), 6);
    assert_append_only(&requests);
    let stable = &requests[0].instructions;
    assert!(stable.last().unwrap().contains("You MUST load a skill with the skills_load tool"), "{stable:?}");
    assert_eq!(active(&requests[0]), None);
    for request in &requests[1..] {
        // The earlier prompt stays in front, followed by the instructions of the first call after the load.
        assert_eq!(request.instructions[..stable.len()], stable[..]);
        assert_eq!(request.instructions[stable.len()..], requests[1].instructions[stable.len()..]);
        assert!(active(request).unwrap().contains("\nInstructions of alpha.\n"));
    }
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn switching_skills_changes_the_instructions_and_no_message() {
    let host = host(ExecutorKind::Jail);
    let (runtime, session, sent) = open(&host, spec()).await;
    let mut requests = Vec::new();
    let mut after = async |calls: &[Value]| {
        make(&session, calls).await;
        requests.extend(sent.take());
        active(requests.last().unwrap()).map(str::to_owned)
    };
    let alpha = after(&[load(&["alpha"])]).await.unwrap();
    assert!(alpha.contains("Instructions of alpha.") && !alpha.contains("Instructions of beta."));
    let beta = after(&[load(&["beta"])]).await.unwrap();
    assert!(beta.contains("Instructions of beta.") && !beta.contains("Instructions of alpha."));
    let both = after(&[call("skills_load", json!({"names": ["alpha"], "mode": "add"}))]).await.unwrap();
    assert!(both.find("Instructions of beta.") < both.find("Instructions of alpha."), "{both}");
    // A load and what needs it, in one answer: the load is a barrier.
    let again =
        [call("skills_unload", json!({"names": ["beta"]})), call("skills_read", json!({"path": "SKILL.md"}))];
    assert_eq!(after(&again).await.unwrap(), alpha);
    assert_eq!(after(&[call("skills_unload", json!({"all": true}))]).await, None);
    assert_append_only(&requests);
    assert_eq!(requests.first().unwrap().instructions, requests.last().unwrap().instructions);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn in_results_instructions_are_delivered_once_and_no_request_changes_what_was_sent() {
    let host = host(ExecutorKind::Jail);
    let (runtime, session, sent) = open(&host, spec().delivery(SkillDelivery::Result)).await;
    assert!(
        make(&session, &[load(&["alpha"])]).await.contains("<skill_instructions>\nInstructions of alpha.\n")
    );
    let reopened = make(&session, &[load(&["alpha"])]).await;
    assert!(
        reopened.contains("already_active") && !reopened.contains("Instructions of alpha."),
        "{reopened}"
    );
    make(&session, &[call("skills_unload", json!({"all": true}))]).await;
    let requests = sent.take();
    assert_append_only(&requests);
    assert!(requests.iter().all(|request| request.instructions == requests[0].instructions));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn skills_that_are_read_with_view_are_listed_as_before() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let host = host(ExecutorKind::Jail);
    let (runtime, session, sent) = open(&host, spec().activation(SkillActivation::View)).await;
    let read = call("view", json!({"path": "/mnt/skills/alpha/SKILL.md"}));
    assert!(make(&session, &[read]).await.contains("Instructions of alpha."));
    let requests = sent.take();
    let names: Vec<&str> = requests[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["view", "bash_tool", "create_file", "str_replace"]);
    assert!(requests.iter().all(|request| request.instructions == requests[0].instructions));
    assert!(requests[0].instructions[2].contains("first read its SKILL.md file using the view tool"));
    // Tools that are not offered do not exist.
    assert!(make(&session, &[load(&["alpha"])]).await.starts_with("there is no tool `skills_load`"));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn without_skills_there_is_no_block_and_no_tool() {
    let host = host(ExecutorKind::Jail);
    let (runtime, session, sent) = open(&host, spec().without_skills()).await;
    make(&session, &[load(&["alpha"])]).await;
    let request = sent.take().swap_remove(0);
    assert!(request.tools.iter().all(|tool| !tool.name.starts_with("skills")));
    assert!(request.instructions.iter().all(|part| !part.contains("skill")), "{:?}", request.instructions);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn invalid_input_is_reported_and_changes_nothing() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let interpreters = [("xyz".to_owned(), vec!["no-such-interpreter".to_owned()])].into();
    let skills = SkillSettings { interpreters, max_active: Some(2), ..SkillSettings::default() };
    let host = Fixture::with(ExecutorKind::Jail, Settings { skills: Some(skills), ..Settings::default() });
    write(&host, "alpha", "Text.", &[("scripts/run.xyz", ""), ("scripts/run.sh", "touch beside-me\n")]);
    write(&host, "beta", "Text.", &[]);
    let (runtime, session, _) = open(&host, spec()).await;
    let run = |input: Value| call("skills_run_script", input);
    let check = async |call: Value, expected: &str| {
        let result = make(&session, &[call]).await;
        assert!(result.contains(expected), "{result}");
    };
    check(load(&["alpah"]), "there is no skill `alpah`; did you mean `alpha`?").await;
    check(run(json!({"path": "scripts/run.sh"})), "no skill is loaded").await;
    check(load(&["alpha", "beta", "greeting"]), "3 skills would be loaded, and the maximum is 2").await;
    check(load(&["alpha"]), "\"active_skills\"").await;
    check(
        call("skills_read", json!({"path": "SKILL.md", "skill": "beta"})),
        "the skill `beta` is not loaded",
    )
    .await;
    check(run(json!({"path": "../beta/SKILL.md"})), "leads out of the skill's directory").await;
    check(run(json!({"path": "/bin/sh"})), "is absolute").await;
    check(run(json!({"path": "scripts/run.xyz"})), "needs `no-such-interpreter`, and the sandbox has none")
        .await;
    check(run(json!({"path": 3})), "field `path` must be a string, not a number").await;
    check(run(json!({"path": "scripts/run.sh", "args": [1]})), "item 0 of field `args` must be a string")
        .await;
    let many: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
    check(
        run(json!({"path": "scripts/run.sh", "args": many})),
        "field `args` has 5000 items, and the maximum is 1000",
    )
    .await;
    check(run(json!({"path": "scripts/run.sh"})), "cannot be written: let the script write to the workspace")
        .await;
    check(call("skills_run", json!({})), "there is no tool `skills_run`").await;
    let standing = session.snapshot().await.unwrap();
    let names: Vec<&str> = standing.active_skills.iter().map(|skill| skill.name.as_str()).collect();
    assert_eq!(names, ["alpha"]);
    runtime.shutdown(soon()).await.unwrap();
}

/// The directories of several public authors' skills: code in packages, references under another name, themes, files in the root.
#[tokio::test]
async fn skills_of_many_layouts_load_and_run() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let host = Fixture::new(ExecutorKind::Jail);
    let modules = [
        ("core/__init__.py", ""),
        ("core/frames.py", "def frames():\n    return 12\n"),
        ("scripts/__init__.py", ""),
        (
            "scripts/build.py",
            "from core.frames import frames\nfrom scripts.names import NAME\nprint(NAME, frames())\n",
        ),
        ("scripts/names.py", "NAME = 'gif'\n"),
        ("requirements.txt", "pillow\n"),
    ];
    write(&host, "gif-maker", "Run `python -m scripts.build`.", &modules);
    let office = [
        (
            "ooxml/scripts/unpack.py",
            "import sys\nfrom pathlib import Path\nprint(Path(sys.argv[0]).parent.name)\n",
        ),
        ("ooxml/schemas/a.xsd", "<xsd/>\n"),
        ("reference/forms.md", "# Forms\n"),
        ("forms.md", "# In the root\n"),
    ];
    write(&host, "documents", "See forms.md.", &office);
    let themes = [
        ("themes/ocean.md", "blue\n"),
        ("theme-showcase.pdf", "%PDF-1.7\n\0"),
        ("apply", "#!/bin/sh\necho applied $1\n"),
    ];
    write(&host, "theme-factory", "Choose a theme.", &themes);
    fs::set_permissions(host.skill("theme-factory").join("apply"), fs::Permissions::from_mode(0o755))
        .unwrap();
    let (runtime, session, _) = open(&host, spec()).await;
    let check = async |skill: &str, call: Value, expected: &str| {
        make(&session, &[load(&[skill])]).await;
        let result = make(&session, &[call]).await;
        assert!(result.contains(expected), "{skill}: {result}");
    };
    let run = |path: &str| call("skills_run_script", json!({"path": path, "args": ["x"]}));
    let read = |path: &str| call("skills_read", json!({"path": path}));
    check("gif-maker", run("scripts/build.py"), r#""stdout":"gif 12\n""#).await;
    let module =
        json!({"command": "cd /mnt/skills/gif-maker && python3 -m scripts.build", "description": "x"});
    check("gif-maker", call("bash_tool", module), "gif 12").await;
    check("documents", run("ooxml/scripts/unpack.py"), r#""stdout":"scripts\n""#).await;
    check("documents", read("reference/forms.md"), "# Forms").await;
    check("documents", read("forms.md"), "# In the root").await;
    check("theme-factory", read("themes/ocean.md"), "blue").await;
    check("theme-factory", read("theme-showcase.pdf"), "is binary, 10 bytes, application/pdf").await;
    check("theme-factory", run("apply"), r#""stdout":"applied x\n""#).await;
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn loaded_skills_survive_a_restart_and_are_not_replaced_by_edits() {
    let host = host(ExecutorKind::Jail);
    let (runtime, session, sent) = open(&host, spec()).await;
    let (id, _) = (session.id(), make(&session, &[load(&["beta", "alpha"])]).await);
    let before = active(sent.take().last().unwrap()).unwrap().to_owned();
    write(&host, "alpha", "Instructions of another alpha.", &[("references/note.md", "Another note.\n")]);
    make(&session, &[call("skills_unload", json!({"names": ["beta"]}))]).await;
    drop(session);
    runtime.shutdown(soon()).await.unwrap();

    let runtime = Runtime::spawn(options(&host, &sent)).await.unwrap();
    let session = runtime.session(&tenant("acme"), id).await.unwrap();
    let note = make(&session, &[call("skills_read", json!({"path": "references/note.md"}))]).await;
    assert_eq!(note, "The note.\n");
    let active_skills = make(&session, &[call("skills_run_script", json!({"path": "scripts/run.py"}))]).await;
    assert!(active_skills.contains("alpha []"), "{active_skills}");
    let requests = sent.take();
    assert_append_only(&requests);
    let active_skills = active(requests.last().unwrap()).unwrap();
    assert!(
        active_skills.contains("Instructions of alpha.")
            && !active_skills.contains("beta")
            && !active_skills.contains("another"),
        "{active_skills}"
    );
    // Loaded again, it is the one that the session was opened with.
    make(&session, &[load(&["beta", "alpha"])]).await;
    assert_eq!(active(sent.take().last().unwrap()), Some(&*before));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn an_approval_applies_to_its_session_only() {
    let host = host(ExecutorKind::Jail);
    let sent = SentRequests::default();
    let approver = approver_fn(|call: ToolCall| async move {
        match call.name.as_str() {
            "bash_tool" => Authorization::Ask { reason: "may it?".to_owned() },
            _ => Authorization::Allow,
        }
    });
    let runtime = Runtime::spawn(options(&host, &sent).approver(approver)).await.unwrap();
    let session = runtime.open(spec()).await.unwrap();
    let bash = |command: &str| {
        let calls = [call("bash_tool", json!({"command": command, "description": "x"}))];
        Value::from(&calls[..]).to_string()
    };
    let mut turn = session.send(bash("echo one")).await.unwrap();
    let waiting = loop {
        match turn.next().await.unwrap().unwrap() {
            TurnEvent::Update(Update::Recorded(event)) => {
                if let SessionEventKind::SessionStatusIdle {
                    stop_reason: SessionStopReason::RequiresAction { actions, .. },
                    ..
                } = event.kind
                {
                    break actions[0].call_id.clone();
                }
            }
            TurnEvent::Ended { .. } => panic!("no request was sent"),
            _ => {}
        }
    };
    let grant = Grant { rule: "bash_tool(echo:*)".to_owned(), scope: GrantScope::Session };
    session.decide(waiting, Decision::Grant { grant }).await.unwrap();
    assert_eq!(follow(&mut turn).await.1, "one\n");
    // The same words, without a question.
    assert_eq!(ask_once(&session, &bash("echo two")).await.as_deref(), Some("two\n"));
    // Similar commands need approval.
    for other in ["ls", "echo three; ls", "echo $(ls)"] {
        assert_eq!(ask_once(&session, &bash(other)).await, None, "{other}");
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// The result of a call; `None` if it needed approval, which is then denied.
async fn ask_once(session: &Session, message: &str) -> Option<String> {
    let mut turn = session.send(message).await.unwrap();
    let mut text = String::new();
    let mut was_asked = false;
    loop {
        match turn.next().await.unwrap().unwrap() {
            TurnEvent::Ended { .. } => return (!was_asked).then_some(text),
            TurnEvent::Update(Update::Recorded(event)) => match event.kind {
                SessionEventKind::SessionStatusIdle {
                    stop_reason: SessionStopReason::RequiresAction { event_ids, .. },
                    ..
                } => {
                    was_asked = true;
                    session
                        .decide_event(&event_ids[0], Decision::Deny { reason: "no".to_owned() })
                        .await
                        .unwrap();
                }
                SessionEventKind::AgentMessage { content } => text = Message::assistant(content).text(),
                _ => {}
            },
            _ => {}
        }
    }
}
