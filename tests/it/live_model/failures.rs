//! Invalid keys, addresses and services: each run ends in time, with a helpful message and its exit code.

use std::net::TcpListener;

use conjure_anthropic::fake::{FakeMessages, Refusal, Reply};
use conjure_conversation::ApiErrorKind;

use super::{KEY, MODEL, Service, says};
use crate::support::{Conjure, Finished};

/// A run that must not get as far as the service.
fn configured(key: Option<&str>, base_url: &str) -> Finished {
    let mut run = Conjure::new(["run", "--sandbox", "local", "--model", MODEL, "Go"]);
    if let Some(key) = key {
        run = run.env("ANTHROPIC_API_KEY", key);
    }
    run.env("ANTHROPIC_BASE_URL", base_url).finish()
}

/// A run against a service that always answers so. The retries come at once.
fn against(reply: Reply) -> Finished {
    let service = Service::always(&reply.with_header("retry-after-ms", "1"));
    service.run().arg("Go").finish().does_not_say(KEY).does_not_say("panicked")
}

#[test]
fn a_model_or_a_script_is_required() {
    let run = || Conjure::new(["run", "--sandbox", "local", "Go"]);
    run().finish().code(2).says("--model NAME").says("--script FILE");
    run()
        .args(["--model", MODEL, "--script", "x.yaml"])
        .finish()
        .code(2)
        .says("exclude each other")
        .says("hint: ");
    run().args(["--model", " "]).finish().code(2).says("the name of the model is empty");
}

#[test]
fn a_missing_or_invalid_key_is_a_usage_error_without_requests() {
    let service = Service::of([says("Hi.")]);
    let url = service.fake.base_url();
    configured(None, &url).code(2).says("`ANTHROPIC_API_KEY` is not set").says("hint: ");
    configured(Some(""), &url).code(2).says("`ANTHROPIC_API_KEY` is not set");
    configured(Some("sk-two words"), &url).code(2).says("the API key holds a space").does_not_say("sk-two");
    assert_eq!(service.fake.received(), 0);
}

#[test]
fn an_address_that_cannot_be_used_is_a_usage_error() {
    configured(Some(KEY), "nonsense").code(2).says("base URL").says("ANTHROPIC_BASE_URL").does_not_say(KEY);
    configured(Some(KEY), "http://example.com").code(2).says("plain text").says("https://");
    configured(Some(KEY), "https://me:secret@example.com").code(2).does_not_say("secret");
}

#[test]
fn settings_of_the_service_that_cannot_be_used_are_usage_errors() {
    let run =
        || Conjure::new(["run", "--sandbox", "local", "--model", MODEL, "Go"]).env("ANTHROPIC_API_KEY", KEY);
    run().env("CONJURE_PROFILE", "gamma").finish().code(2).says("CONJURE_PROFILE").says("`current`");
    run().env("CONJURE_MAX_TOKENS", "0").finish().code(2).says("max_tokens");
    run().env("CONJURE_MODEL_TIMEOUT", "soon").finish().code(2).says("CONJURE_MODEL_TIMEOUT");
}

#[test]
fn a_wrong_key_and_an_unknown_model_are_user_errors() {
    let service = Service::start(FakeMessages::builder().key("another").turns([says("Hi.")]));
    let done = service.run().arg("Go").finish().code(2);
    done.says("authentication_error")
        .says("request id: req_fake_000001")
        .says("check the key")
        .does_not_say(KEY);
    let service = Service::start(FakeMessages::builder().model("another").turns([says("Hi.")]));
    service
        .run()
        .arg("Go")
        .finish()
        .code(2)
        .says("not_found_error")
        .says("model's name")
        .says("request id: ");
}

#[test]
fn each_error_of_the_service_is_reported_with_its_type_and_its_request() {
    use ApiErrorKind::{Api, Billing, InvalidRequest, Overloaded, Permission, RateLimit, Timeout};
    for (kind, name) in [
        (InvalidRequest, "invalid_request_error"),
        (Billing, "billing_error"),
        (Permission, "permission_error"),
        (RateLimit, "rate_limit_error"),
        (Timeout, "timeout_error"),
        (Api, "api_error"),
        (Overloaded, "overloaded_error"),
        (ApiErrorKind::Unknown("of_next_year".to_owned()), "of_next_year"),
    ] {
        let done = against(Reply::error(Refusal::new(kind, "no today"))).code(1);
        done.says(name).says("no today").says("request id: req_fake_");
    }
    against(Reply::error(Refusal::new(InvalidRequest, "teapot").with_status(418))).code(1).says("418");
}

#[test]
fn a_service_with_another_protocol_is_reported_with_an_excerpt() {
    against(Reply::html(200)).code(1).says("is the base URL that of the Messages API?");
    against(Reply::html(502)).code(1).says("502");
    against(Reply::html(404)).code(2).says("404").says("base URL");
    against(Reply::empty()).code(1).says("error: ");
    against(Reply::raw(200, "application/json", "{}")).code(1).says("error: ");
    against(Reply::raw(200, "text/event-stream", "data: {\n\n")).code(1).says("error: ");
}

#[test]
fn an_unreachable_or_disconnecting_service_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    configured(Some(KEY), &url).code(1).says("no connection to the service; check the base URL");
    against(Reply::hang_up()).code(1).says("the connection to the service broke");
    against(says("A text of some length.").cut_after_pieces(2)).code(1).says("error: ");
    against(says("A text of some length.").cut_after_bytes(100)).code(1).says("error: ");
}

#[test]
fn a_silent_service_times_out() {
    let service = Service::always(&Reply::silence());
    let run = service.run().env("CONJURE_MODEL_TIMEOUT", "0.5").arg("Go");
    run.finish().code(1).says("error: ").says("hint: ");
    service.run().args(["--timeout", "0.5", "Go"]).finish().code(3).says("deadline");
}

#[test]
fn an_interrupted_call_is_over_at_once() {
    let service = Service::always(&Reply::silence());
    let run = service.run().arg("Go").start();
    service.until_received(1);
    run.signal(rustix::process::Signal::INT);
    run.wait().code(130).does_not_say(KEY);
    assert_eq!(service.fake.received(), 1);
}
