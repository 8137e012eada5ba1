//! What the manifests of a session's skills ask for: given, checked, shown to the model, given to commands; and what of it is
//! sensitive is seen by commands alone.

use std::path::Path;
use std::sync::{Arc, Mutex};

use conjure::{
    ExecutorKind, Given, InputFault, Model, Request, Runtime, RuntimeError, RuntimeOptions, Session, Update,
    model_fn,
};
use serde_json::json;

use crate::runtime_bed::{Host, answer, ask, soon, spec, tenant};

const MANIFEST: &str = r#"
manifest_version: "1.0"
inputs:
  required:
    - name: day
      schema: {type: string, pattern: '^\d{4}$'}
    - name: api_key
      sensitive: true
      schema: {type: object}
  optional:
    - name: out-dir
      schema: {type: string, default: <reports>}
    - name: count
      schema: {type: integer}
env:
  optional: [{name: HOUSE, sensitive: true}]
"#;

const NESTED: &str = "canary-of-an-input";
const VARIABLE: &str = "canary-of-a-variable";

fn host() -> Host {
    let host = Host::new(ExecutorKind::Jail);
    std::fs::write(host.skill("greeting").join("skill.manifest.yaml"), MANIFEST).unwrap();
    host
}

/// A model that runs what it is told to; all that it was sent.
fn listening() -> (impl Model, Arc<Mutex<String>>) {
    let sent = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&sent);
    let model = model_fn(move |request: Request| {
        let text = format!("{:?} {:?} {:?}", request.instructions, request.tools, request.messages);
        heard.lock().unwrap().push_str(&text);
        let answer = answer(&request);
        async move { Ok(answer) }
    });
    (model, sent)
}

/// All events of a session, as they are told.
async fn told(session: &Session) -> String {
    let events = session.snapshot().await.unwrap().events;
    let mut subscription = session.subscribe(0).await.unwrap();
    let mut lines = String::new();
    loop {
        if let Update::Recorded(event) = subscription.next().await.unwrap() {
            lines.push_str(&event.to_line());
            if event.seq + 1 >= events {
                return lines;
            }
        }
    }
}

/// The files of a folder in which there is one of the canaries.
fn seen_in(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            seen.extend(seen_in(&path));
        } else if let Ok(bytes) = std::fs::read(&path) {
            let text = String::from_utf8_lossy(&bytes);
            if text.contains(NESTED) || text.contains(VARIABLE) {
                seen.push(path);
            }
        }
    }
    seen
}

#[tokio::test]
async fn a_sensitive_value_is_seen_by_commands_and_nowhere_else() {
    let host = host();
    let (model, sent) = listening();
    let runtime = Runtime::spawn(RuntimeOptions::from(host.config()).model("echo", model)).await.unwrap();
    let spec = spec()
        .skills(["greeting"])
        .input("day", "2025")
        .input("api_key", json!({"nested": [NESTED]}))
        .environment("HOUSE", VARIABLE);
    assert!(!format!("{spec:?}").contains("canary"));
    let session = runtime.open(spec).await.unwrap();
    let id = session.id();
    // The script did receive them: it tells how long they are, and tries to print them.
    let said = ask(
        &session,
        "$ echo \"${#CONJURE_INPUT_API_KEY} ${#HOUSE} $CONJURE_INPUT_DAY $CONJURE_INPUT_OUT_DIR\"; env; \
         echo \"$CONJURE_INPUT_API_KEY\" | tr ',' '\\n'",
    )
    .await;
    let length = json!({"nested": [NESTED]}).to_string().len();
    assert!(said.contains(&format!("{length} {} 2025 <reports>", VARIABLE.len())), "{said}");
    let events = told(&session).await;
    let exported = format!("{:?}", runtime.events(&tenant("acme"), id, 0).await.unwrap());
    let profile = runtime.profile(&tenant("acme"), id).await.unwrap();
    assert_eq!(
        profile.inputs,
        [("day".to_owned(), json!("2025")), ("out-dir".to_owned(), json!("<reports>"))].into()
    );
    assert!(profile.withheld.inputs.contains("api_key") && profile.withheld.environment.contains("HOUSE"));
    runtime.shutdown(soon()).await.unwrap();
    let sent = sent.lock().unwrap().clone();
    for (place, text) in [
        ("what the model was sent", &sent),
        ("what it said", &said),
        ("events", &events),
        ("an export", &exported),
        ("the profile", &format!("{profile:?}")),
    ] {
        assert!(!text.contains(NESTED) && !text.contains(VARIABLE), "{place}: {text}");
    }
    assert_eq!(seen_in(host.folder()), [""; 0].map(std::path::PathBuf::from), "the journal and all else");
    // The model was told of them, and of what is not sensitive by its value.
    for told in
        ["CONJURE_INPUT_API_KEY", "value-withheld", "<value>2025</value>", "<value>&lt;reports&gt;</value>"]
    {
        assert!(sent.contains(told), "{told}: {sent}");
    }
}

#[tokio::test]
async fn whoever_revives_a_session_gives_what_was_not_recorded_again() {
    let host = host();
    let runtime = host.start().await;
    let spec =
        spec().inputs([("day", json!("2025")), ("api_key", json!({"k": NESTED})), ("count", json!(3))]);
    let session = runtime.open(spec).await.unwrap();
    let id = session.id();
    ask(&session, "$ echo $CONJURE_INPUT_COUNT").await;
    runtime.shutdown(soon()).await.unwrap();

    let runtime = host.start().await;
    let error = runtime.session(&tenant("acme"), id).await.unwrap_err();
    let RuntimeError::Missing { missing, .. } = &error else { panic!("{error}") };
    assert!(missing.inputs.contains("api_key") && error.to_string().contains("api_key"), "{error}");
    let given = Given::new().input("api_key", json!({"k": NESTED}));
    assert!(!format!("{given:?}").contains(NESTED));
    let session = runtime.session_with(&tenant("acme"), id, given).await.unwrap();
    let said =
        ask(&session, "$ echo $CONJURE_INPUT_COUNT ${#CONJURE_INPUT_API_KEY} $CONJURE_INPUT_API_KEY").await;
    let length = json!({"k": NESTED}).to_string().len();
    assert!(said.contains(&format!("3 {length}")) && !said.contains(NESTED), "{said}");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn inputs_that_do_not_fit_are_told_before_anything_is_recorded() {
    let host = host();
    let runtime = host.start().await;
    let refused = async |spec| match runtime.open(spec).await {
        Err(RuntimeError::Inputs { faults }) => faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let named = || spec().skills(["greeting"]);
    let wrong = named().input("out_dir", "x").input("api_key", NESTED).input("count", "many");
    assert_eq!(
        refused(wrong).await,
        [
            "the skill `greeting`: the input `day` is required and was not given",
            "the skill `greeting`: the input `api_key` is not as the skill asks: expected an object, found a string",
            "the skill `greeting`: the input `count` is not as the skill asks: expected an integer, found \"many\"",
            "no skill of the session has an input `out_dir`; did you mean `out-dir`?",
        ]
    );
    let twice =
        named().input("day", "2025").input("api_key", json!({})).environment("CONJURE_INPUT_DAY", "2024");
    assert_eq!(
        refused(twice).await,
        ["`variable CONJURE_INPUT_DAY` and `input day` would both be the variable `CONJURE_INPUT_DAY`"]
    );
    let nothing = spec().without_skills().input("day", "2025");
    assert_eq!(refused(nothing).await, ["no skill of the session has an input `day`"]);
    // Of a whole catalog, the session may use what needs nothing.
    runtime.open(spec()).await.unwrap();
    let faults = runtime.open(named()).await.unwrap_err();
    let RuntimeError::Inputs { faults } = faults else { panic!("{faults}") };
    assert!(faults.iter().all(|fault| matches!(fault, InputFault::Skill { .. })));
    assert_eq!(runtime.session_ids(&tenant("acme")).await.unwrap().len(), 1);
    runtime.shutdown(soon()).await.unwrap();
}
