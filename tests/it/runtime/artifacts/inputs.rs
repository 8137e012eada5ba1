//! Inputs of a session's skill manifests: provided, validated, shown to the model, and passed to commands. Only commands see
//! sensitive
//! values.

use std::path::Path;
use std::sync::{Arc, Mutex};

use conjure::config::ExecutorKind;
use conjure::session::{InputError, SessionSecrets, SkillActivation};
use conjure::{Model, Request, Runtime, RuntimeError, RuntimeOptions, Session, Update, model_fn};
use serde_json::json;

use crate::runtime::fixture::{Fixture, answer, ask, soon, spec, tenant};

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

fn fixture() -> Fixture {
    let fixture = Fixture::new(ExecutorKind::Jail);
    std::fs::write(fixture.skill("greeting").join("skill.manifest.yaml"), MANIFEST).unwrap();
    fixture
}

/// A model that runs the commands of the user, and the text of all its requests.
fn listening() -> (impl Model, Arc<Mutex<String>>) {
    let sent = Arc::new(Mutex::new(String::new()));
    let recorder = Arc::clone(&sent);
    let model = model_fn(move |request: Request| {
        let text = format!("{:?} {:?} {:?}", request.instructions, request.tools, request.messages);
        recorder.lock().unwrap().push_str(&text);
        let answer = answer(&request);
        async move { Ok(answer) }
    });
    (model, sent)
}

/// All events of a session, as JSON lines.
async fn recorded_events(session: &Session) -> String {
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

/// The files of a directory in which there is one of the canaries.
fn seen_in(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut received = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            received.extend(seen_in(&path));
        } else if let Ok(bytes) = std::fs::read(&path) {
            let text = String::from_utf8_lossy(&bytes);
            if text.contains(NESTED) || text.contains(VARIABLE) {
                received.push(path);
            }
        }
    }
    received
}

#[tokio::test]
async fn a_sensitive_value_is_visible_to_commands_only() {
    let fixture = fixture();
    let (model, sent) = listening();
    let runtime = Runtime::spawn(RuntimeOptions::from(fixture.config()).model("echo", model)).await.unwrap();
    let spec = spec()
        .skills(["greeting"])
        .input("day", "2025")
        .input("api_key", json!({"nested": [NESTED]}))
        .environment("HOUSE", VARIABLE);
    assert!(!format!("{spec:?}").contains("canary"));
    let session = runtime.open(spec).await.unwrap();
    let id = session.id();
    // The script did receive them: it tells how long they are, and tries to print them.
    let answer = ask(
        &session,
        "$ echo \"${#CONJURE_INPUT_API_KEY} ${#HOUSE} $CONJURE_INPUT_DAY\"; env; \
         echo \"$CONJURE_INPUT_API_KEY\" | tr ',' '\\n'",
    )
    .await;
    let length = json!({"nested": [NESTED]}).to_string().len();
    assert!(answer.contains(&format!("{length} {} 2025", VARIABLE.len())), "{answer}");
    let events = recorded_events(&session).await;
    let exported = format!("{:?}", runtime.events(&tenant("acme"), id, 0).await.unwrap());
    let profile = runtime.profile(&tenant("acme"), id).await.unwrap();
    assert_eq!(profile.inputs, [("day".to_owned(), json!("2025"))].into());
    assert!(
        profile.secret_names.inputs.contains("api_key") && profile.secret_names.environment.contains("HOUSE")
    );
    runtime.shutdown(soon()).await.unwrap();
    let sent = sent.lock().unwrap().clone();
    for (place, text) in [
        ("what the model was sent", &sent),
        ("what it said", &answer),
        ("events", &events),
        ("an export", &exported),
        ("the profile", &format!("{profile:?}")),
    ] {
        assert!(!text.contains(NESTED) && !text.contains(VARIABLE), "{place}: {text}");
    }
    assert_eq!(seen_in(fixture.dir()), [""; 0].map(std::path::PathBuf::from), "the journal and all else");
    // The model was told of them, and of what is not sensitive by its value.
    for expected in ["CONJURE_INPUT_API_KEY", "value-withheld", "<value>2025</value>"] {
        assert!(sent.contains(expected), "{expected}: {sent}");
    }
}

#[tokio::test]
async fn unrecorded_inputs_are_provided_again_at_revival() {
    let fixture = fixture();
    let runtime = fixture.start().await;
    let spec =
        spec().inputs([("day", json!("2025")), ("api_key", json!({"k": NESTED})), ("count", json!(3))]);
    let session = runtime.open(spec).await.unwrap();
    let id = session.id();
    ask(&session, "$ echo $CONJURE_INPUT_COUNT").await;
    runtime.shutdown(soon()).await.unwrap();

    let runtime = fixture.start().await;
    let error = runtime.session(&tenant("acme"), id).await.unwrap_err();
    let RuntimeError::MissingSecrets { missing, .. } = &error else { panic!("{error}") };
    assert!(missing.inputs.contains("api_key") && error.to_string().contains("api_key"), "{error}");
    let secrets = SessionSecrets::new().input("api_key", json!({"k": NESTED}));
    assert!(!format!("{secrets:?}").contains(NESTED));
    let session = runtime.session_with(&tenant("acme"), id, secrets).await.unwrap();
    let message =
        ask(&session, "$ echo $CONJURE_INPUT_COUNT ${#CONJURE_INPUT_API_KEY} $CONJURE_INPUT_API_KEY").await;
    let length = json!({"k": NESTED}).to_string().len();
    assert!(message.contains(&format!("3 {length}")) && !message.contains(NESTED), "{message}");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn inputs_that_do_not_fit_are_reported_before_anything_is_recorded() {
    let fixture = fixture();
    let runtime = fixture.start().await;
    let refused = async |spec| match runtime.open(spec).await {
        Err(RuntimeError::Inputs { errors }) => errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
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
    let without_skills = spec().without_skills().input("day", "2025");
    assert_eq!(refused(without_skills).await, ["no skill of the session has an input `day`"]);
    // Of a whole catalog, the session may use what needs nothing.
    runtime.open(spec()).await.unwrap();
    let error = runtime.open(named()).await.unwrap_err();
    let RuntimeError::Inputs { errors } = error else { panic!("{error}") };
    assert!(errors.iter().all(|error| matches!(error, InputError::Skill { .. })));
    assert_eq!(runtime.session_ids(&tenant("acme")).await.unwrap().len(), 1);
    runtime.shutdown(soon()).await.unwrap();
}

/// A host with skills of these names and manifests, beside one that asks for nothing.
fn host_of(skills: &[(&str, &str)]) -> Fixture {
    let fixture = Fixture::new(ExecutorKind::Jail);
    for (name, inputs) in skills {
        fixture.write_skill(name, "Does something.", "echo topic=$CONJURE_INPUT_TOPIC");
        let manifest = format!("manifest_version: \"1.0\"\ninputs: {inputs}\n");
        std::fs::write(fixture.skill(name).join("skill.manifest.yaml"), manifest).unwrap();
    }
    fixture
}

#[tokio::test]
async fn defaults_of_one_skill_do_not_affect_others() {
    let fixture = host_of(&[
        (
            "first",
            "{optional: [{name: out-dir, schema: {default: one}}, {name: topic, schema: {default: session}}]}",
        ),
        (
            "second",
            "{optional: [{name: out_dir, schema: {default: two}}, {name: topic, schema: {type: integer, default: 5}}, \
             {name: nul, schema: {default: \"\\0\"}}, {name: own, schema: {default: mine}}]}",
        ),
    ]);
    let runtime = fixture.start().await;
    for (activation, expected) in
        [(SkillActivation::Load, "<>"), (SkillActivation::View, "<CONJURE_INPUT_OWN=mine>")]
    {
        let session = runtime.open(spec().activation(activation)).await.unwrap();
        let answer = ask(&session, "$ echo \"<$(env | grep CONJURE_INPUT)>\"").await;
        assert!(answer.contains(expected), "{answer}");
        assert_eq!(runtime.profile(&tenant("acme"), session.id()).await.unwrap().inputs, [].into());
    }
    // An input is shared by all skills, so it must fit all of them.
    let error = runtime.open(spec().input("out-dir", "x").input("out_dir", "y")).await.unwrap_err();
    let RuntimeError::Inputs { errors } = error else { panic!("{error}") };
    assert!(matches!(&errors[..], [InputError::SameVariable { .. }]), "{errors:?}");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_default_is_not_secret_and_an_unredactable_value_is_rejected() {
    let fixture = host_of(&[(
        "first",
        "{optional: [{name: flag, sensitive: true, schema: {default: \"true\"}}, {name: pin, sensitive: true}]}",
    )]);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    let answer = ask(&session, "$ echo true").await;
    assert!(answer.contains("true") && !answer.contains("REDACTED"), "{answer}");
    for short in [json!("123"), json!(7), json!(["long enough", "abc"])] {
        let error = runtime.open(spec().input("pin", short)).await.unwrap_err();
        assert!(error.to_string().contains("`pin` is sensitive") && error.to_string().contains("too short"));
        let RuntimeError::Inputs { errors } = error else { panic!("{error}") };
        assert_eq!(errors, [InputError::TooShort { name: "pin".to_owned() }]);
    }
    runtime.open(spec().input("pin", "1234")).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn inputs_at_revival_are_validated_as_at_opening() {
    let fixture = host_of(&[(
        "first",
        "{required: [{name: keys, sensitive: true, schema: {type: array}}, {name: count, schema: {type: integer}}]}",
    )]);
    let runtime = fixture.start().await;
    let session = runtime.open(spec().input("keys", json!([NESTED])).input("count", 3)).await.unwrap();
    let id = session.id();
    runtime.shutdown(soon()).await.unwrap();
    let runtime = fixture.start().await;
    let keys = || SessionSecrets::new().input_text("keys", format!("[\"{NESTED}\", \"other\"]"));
    for (secrets, expected) in [
        (keys().input_text("count", "many"), "expected an integer"),
        (keys().input_text("cuont", "3"), "did you mean `count`?"),
        (keys().environment("CONJURE_INPUT_COUNT", "4").input_text("count", "4"), "the variable"),
        (SessionSecrets::new().input("keys", json!(["\0long enough", "abc"])), "too short"),
        (SessionSecrets::new().input("keys", "a text"), "expected an array"),
    ] {
        let error = runtime.session_with(&tenant("acme"), id, secrets).await.unwrap_err();
        assert!(
            matches!(error, RuntimeError::Inputs { .. }) && error.to_string().contains(expected),
            "{error}"
        );
    }
    // The invalid value is discarded, and each text in the list is redacted.
    let session = runtime.session_with(&tenant("acme"), id, keys().input_text("count", "4")).await.unwrap();
    let answer =
        ask(&session, "$ echo $CONJURE_INPUT_COUNT; echo $CONJURE_INPUT_KEYS | tr -d '[]\"' | tr , '\\n'")
            .await;
    assert!(answer.contains('4') && answer.contains("REDACTED") && !answer.contains(NESTED), "{answer}");
    assert!(!answer.contains("other"), "{answer}");
    runtime.shutdown(soon()).await.unwrap();
}
