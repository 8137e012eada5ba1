//! Complete conversations: answers, requests on the wire, and output.

use conjure_anthropic::ApiProfile;
use conjure_anthropic::fake::{FakeMessages, RecordedRequest, Refusal, Reply};
use conjure_conversation::scripted::Script;
use conjure_conversation::{ApiErrorKind, Response, StopReason, Usage};

use super::{KEY, MODEL, Service, bash, json, raw, says};
use crate::commands::run::basics::growth;
use crate::support::{Conjure, fixture};

/// The mark of the cache, which moves from request to request.
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

fn script(name: &str) -> Script {
    Script::from_file(fixture(&format!("scripts/{name}.yaml"))).unwrap()
}

/// Over the bytes on the wire: but for the marks of the cache, each body begins with the one before. Where a skill was loaded
/// in the meantime, its instructions stand between what was told before and the messages, and these begin with those of before.
#[track_caller]
fn assert_prefixes(requests: &[RecordedRequest]) {
    let bare = |request: &RecordedRequest| {
        let body = std::str::from_utf8(request.body()).unwrap();
        assert!(body.contains(MARK), "nothing is cached: {body}");
        body.replace(MARK, "")
    };
    for pair in requests.windows(2) {
        let (before, after) = (bare(&pair[0]), bare(&pair[1]));
        let before = before.strip_suffix("]}").unwrap();
        const MESSAGES: &str = "],\"messages\":[";
        const ARTIFACTS: &str = r#",{"type":"text","text":"<artifacts>"#;
        let [(instructions, messages), (later_instructions, later_messages)] =
            [before, &*after].map(|body| body.split_once(MESSAGES).unwrap());
        if instructions != later_instructions {
            // The artifacts follow the active skills.
            let [(instructions, artifacts), (later_instructions, artifacts_then)] =
                [instructions, later_instructions]
                    .map(|instructions| instructions.split_once(ARTIFACTS).unwrap_or((instructions, "")));
            assert_eq!(artifacts, artifacts_then);
            let loaded = later_instructions.strip_prefix(instructions).unwrap();
            assert!(loaded.starts_with(r#",{"type":"text","text":"<active_skills>"#), "{loaded}");
            assert!(
                later_messages.starts_with(messages) && later_messages.contains("skills_load"),
                "{messages}\nand then\n{later_messages}"
            );
            continue;
        }
        assert!(after.starts_with(before) && after.len() > before.len(), "{before}\nand then\n{after}");
    }
}

fn stopping(content: Vec<conjure_conversation::Block>, stop_reason: StopReason) -> Reply {
    let usage = Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() };
    Reply::answer(Response { usage, ..Response::new(content, stop_reason) })
}

#[test]
fn the_answer_has_the_real_figures() {
    let service =
        Service::start(FakeMessages::builder().key(KEY).model(MODEL).script(script("sales-report")));
    let data = fixture("data/sales.csv");
    let (region, percent) = growth(&std::fs::read_to_string(&data).unwrap()).swap_remove(0);
    let run = service.run().args(["--skills", "fixtures/skills", "--file"]).arg(&data);
    let done = run.arg("Which region grew fastest?").finish().code(0);
    assert!(
        done.stdout.starts_with(&format!("{region} grew fastest: {percent:+.1} %")),
        "{region} {percent}: {}",
        done.stdout
    );
    done.says(&format!("the model is {MODEL} at {}", service.fake.base_url()))
        .does_not_say("the script ")
        .says("isolates nothing")
        .says("skills_run_script")
        .does_not_say(KEY);
    let requests = service.requests();
    assert_eq!(requests.iter().map(RecordedRequest::status).collect::<Vec<_>>(), [Some(200); 4]);
    assert_prefixes(&requests);
}

#[test]
fn every_script_of_the_fixtures_plays_over_the_wire_and_each_request_begins_with_the_one_before() {
    for (name, file) in [
        ("log-analyzer", Some("data/app.log")),
        ("minimal-skill", None),
        ("sales-report", Some("data/sales.csv")),
        ("test-skill", None),
    ] {
        let service = Service::start(FakeMessages::builder().script(script(name)));
        let mut run = service.run().args(["--skills", "fixtures/skills"]);
        if let Some(file) = file {
            run = run.arg("--file").arg(fixture(file));
        }
        let done = run.arg("Do what the skill is for.").finish().code(0);
        assert!(!done.stdout.trim().is_empty(), "{name}: {}", done.stderr);
        assert_prefixes(&service.requests());
    }
}

#[test]
fn a_live_run_is_recorded_as_a_script_that_says_the_same() {
    let service = Service::start(FakeMessages::builder().script(script("sales-report")));
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("recording.yaml");
    let workspace = dir.path().join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let with_inputs = |run: Conjure| {
        run.args(["--skills", "fixtures/skills", "--file"])
            .arg(fixture("data/sales.csv"))
            .arg("--workspace")
            .arg(&workspace)
            .arg("Which region grew fastest?")
    };
    let live = with_inputs(service.run().arg("--record").arg(&recording)).finish().code(0);
    assert!(!std::fs::read_to_string(&recording).unwrap().contains(KEY));
    for entry in std::fs::read_dir(&workspace).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let replay = Conjure::new(["run", "--sandbox", "local", "--script"]).arg(&recording);
    let replayed = with_inputs(replay).finish().code(0).says("the model's words come from the script");
    assert_eq!(replayed.stdout, live.stdout);
    assert_eq!(service.requests().len(), 4, "a replay calls nobody");
}

#[test]
fn a_recording_contains_no_key_even_if_the_model_repeats_it() {
    let service = Service::of([says(&format!("Your key is {KEY}."))]);
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("recording.yaml");
    service.run().arg("--record").arg(&recording).arg("Go").finish().code(0);
    let written = std::fs::read_to_string(&recording).unwrap();
    assert!(
        written.contains("Your key is [REDACTED:ANTHROPIC_API_KEY].") && !written.contains(KEY),
        "{written}"
    );
}

/// The paused response is sent back unchanged as the last message, without a user message.
#[test]
fn a_paused_turn_is_resumed_unchanged() {
    let search = r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"x"},"new":[1.50]}"#;
    let found = r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}"#;
    let service =
        Service::of([stopping(vec![raw(search), raw(found)], StopReason::PauseTurn), says("Found.")]);
    assert_eq!(service.run().arg("Search.").finish().code(0).stdout, "Found.\n");
    let requests = service.requests();
    assert_prefixes(&requests);
    let (first, second) = (json(&requests[0]), json(&requests[1]));
    assert_eq!((&first["tools"], &first["system"]), (&second["tools"], &second["system"]));
    assert_eq!(second["messages"].as_array().unwrap().len(), 2);
    assert_eq!(second["messages"][1]["role"], "assistant");
    let body = std::str::from_utf8(requests[1].body()).unwrap().replace(MARK, "");
    assert!(body.contains(&format!(r#"{{"role":"assistant","content":[{search},{found}]}}"#)), "{body}");
}

#[test]
fn a_service_that_pauses_for_ever_reaches_a_limit() {
    let pause = stopping(vec![raw(r#"{"type":"text","text":"Wait."}"#)], StopReason::PauseTurn);
    let service = Service::of(vec![pause; 40]);
    service.run().arg("Go").finish().code(3).says("pauses");
    assert_eq!(service.requests().len(), 11);
}

#[test]
fn overload_is_retried_only_before_output() {
    let overloaded = || Refusal::new(ApiErrorKind::Overloaded, "busy");
    let soon = |reply: Reply| reply.with_header("retry-after-ms", "1");
    let service = Service::start(
        FakeMessages::builder()
            .faults([soon(Reply::error(overloaded())), soon(says("x").error_after_pieces(0, overloaded()))])
            .turns([says("Here.")]),
    );
    assert_eq!(service.run().arg("Go").finish().code(0).stdout, "Here.\n");
    assert_eq!(service.requests().len(), 3);

    let service = Service::of([says("A longer text.").error_after_pieces(2, overloaded()), says("Again.")]);
    let failed = service.run().arg("Go").finish().code(1).says("overloaded_error").says("req_fake_000001");
    assert_eq!(failed.stdout, "");
    assert_eq!(service.requests().len(), 1, "shown output is not repeated");
}

#[test]
fn a_call_with_invalid_json_is_reported_to_the_model_and_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let command = format!("touch {}/ran", dir.path().display());
    let service = Service::of([
        Reply::blocks(vec![bash("toolu_1", &command)]).with_unfinished_input(2),
        says("Sorry."),
    ]);
    let done = service.run().arg("Go").finish().code(0).says("is not a JSON object");
    assert_eq!(done.stdout, "Sorry.\n");
    assert!(!dir.path().join("ran").exists());
    let second = json(&service.requests()[1]);
    assert!(second["messages"][1]["content"][0]["input"]["INVALID_JSON"].is_string(), "{second}");
    assert_eq!(second["messages"][2]["content"][0]["is_error"], true);
}

#[test]
fn a_key_in_tool_output_is_redacted_before_the_model_sees_it() {
    let (head, tail) = KEY.split_at(10);
    let service = Service::of([
        Reply::blocks(vec![bash("toolu_1", &format!("printf '%s%s' {head} {tail}"))]),
        says("Done."),
    ]);
    service.run().arg("Go").finish().code(0);
    let requests = service.requests();
    let body = String::from_utf8_lossy(requests[1].body());
    assert!(body.contains("[REDACTED:ANTHROPIC_API_KEY]") && !body.contains(KEY), "{body}");
    assert_eq!(requests[0].header("x-api-key"), Some(KEY));
}

#[test]
fn the_profile_and_the_tokens_of_an_answer_are_configured() {
    let service =
        Service::start(FakeMessages::builder().profile(ApiProfile::Current).key(KEY).turns([says("Hi.")]));
    let run = service.run().env("CONJURE_PROFILE", "current").env("CONJURE_MAX_TOKENS", "77");
    run.arg("Go").finish().code(0);
    let request = &service.requests()[0];
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!(json(request)["max_tokens"], 77);
}

#[test]
fn usage_and_cost_are_reported() {
    // Ten tokens in and ten out each; 3 and 15 dollars a million make 180 millionths of a dollar.
    let service = Service::of([Reply::blocks(vec![bash("toolu_1", "true")]), says("Hi.")]);
    let done = service.run().arg("Go").finish().code(0).says("used 20 tokens in, 20 out; $0.0004");
    assert_eq!(done.stdout, "Hi.\n");
    let script = crate::support::script("- {content: Hi., usage: {input_tokens: 5}}\n");
    let run = Conjure::new(["run", "--sandbox", "local", "--script"]).arg(script.path()).arg("Go");
    run.finish().code(0).does_not_say("used ");
}

#[test]
fn a_model_without_a_known_price_says_so() {
    let service = Service::of([says("Hi.")]);
    let run = Conjure::new(["run", "--sandbox", "local", "--model", "claude-of-next-year", "Go"])
        .env("ANTHROPIC_API_KEY", KEY)
        .env("ANTHROPIC_BASE_URL", service.fake.base_url());
    run.finish().code(0).says("used 10 tokens in, 10 out; the price of claude-of-next-year is not known");

    // Another model responds than was requested: its price applies, or is unknown.
    let answer = |model: &str, content| {
        let usage = Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() };
        Reply::answer(Response {
            model: Some(model.to_owned()),
            usage,
            ..Response::new(content, StopReason::Missing)
        })
    };
    let service =
        Service::of([answer("claude-of-next-year\u{1b}[2J", vec![raw(r#"{"type":"text","text":"Hi."}"#)])]);
    let done = service.run().arg("Go").finish();
    done.says("used 10 tokens in, 10 out; the price of claude-of-next-year[2J is not known")
        .does_not_say("\u{1b}[2J");
}

#[test]
fn a_session_continues_with_its_model() {
    let data = tempfile::tempdir().unwrap();
    let service = Service::of([says("One."), says("Two.")]);
    let first = service.run().env("CONJURE_DATA", data.path()).arg("Count.").finish().code(0);
    assert_eq!(first.stdout, "One.\n");
    let (_, remainder) = first.stderr.split_once("conjure sessions resume ").unwrap();
    let resume =
        || Conjure::new(["sessions", "resume", &remainder[..37], "Go on."]).env("CONJURE_DATA", data.path());
    resume().finish().code(2).says("`ANTHROPIC_API_KEY` is not set");
    let second = resume()
        .env("ANTHROPIC_API_KEY", KEY)
        .env("ANTHROPIC_BASE_URL", service.fake.base_url())
        .finish()
        .code(0);
    assert_eq!(second.stdout, "Two.\n");
    second.says(&format!("the model is {MODEL}")).says("used ").does_not_say(KEY);
    // The request contains the earlier messages.
    assert_prefixes(&service.requests());
}
