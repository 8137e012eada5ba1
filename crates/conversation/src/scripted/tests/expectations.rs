use super::model;
use super::{answer, first_message, request, script_error, with_results};
use crate::scripted::request_digest;

/// Plays a turn with this expectation against the conversation with results.
async fn fails(expect: &str) -> String {
    let model = model(&format!("version: 1\nturns: [{{content: ok, expect: {expect}}}]"));
    script_error(&model, request(with_results())).await
}

async fn assert_fulfilled(expect: &str) {
    let model = model(&format!("version: 1\nturns: [{{content: ok, expect: {expect}}}]"));
    answer(&model, request(with_results())).await;
}

#[tokio::test]
async fn fulfilled_expectations_change_nothing() {
    assert_fulfilled("{}").await;
    assert_fulfilled("{user: {contains: region, matches: '^Which .* fastest'}}").await;
    assert_fulfilled("{system: {contains: [sales-report, Be brief]}}").await;
    assert_fulfilled("{tools: [bash_tool], messages: 3}").await;
    assert_fulfilled("{tools: view}").await;
    assert_fulfilled(
        "{results: [{id: c1, contains: total, is_error: false}, {is_error: true, matches: '\"count\": 25'}]}",
    )
    .await;
    assert_fulfilled(&format!("{{request: '{}'}}", request_digest(&request(with_results())))).await;
}

#[tokio::test]
async fn a_failed_expectation_reports_turn_field_expected_and_sent() {
    for (expect, parts) in [
        ("{user: {contains: south}}", ["expect.user.contains", "\"south\"", "Which region grew fastest?"]),
        ("{user: {matches: '^x'}}", ["expect.user.matches", "`^x`", "Which region"]),
        ("{system: {contains: [brief, nonsense]}}", ["expect.system.contains", "\"nonsense\"", "You help."]),
        ("{tools: [view, browse]}", ["expect.tools", "`browse`", "[view, bash_tool]"]),
        ("{messages: 2}", ["expect.messages", "2 messages", "sent were 3"]),
        ("{results: [{id: c9}]}", ["expect.results[0]", "`c9`", "[c2, c1]"]),
        (
            "{results: [{id: c1}, {is_error: false}]}",
            ["expect.results[1].is_error", "`c2`", "must be no error"],
        ),
        (
            "{results: [{id: c1, is_error: true}]}",
            ["expect.results[0].is_error", "must be an error", "total: 42"],
        ),
        ("{results: [{id: c1, contains: '43'}]}", ["expect.results[0].contains", "\"43\"", "total: 42"]),
    ] {
        let message = fails(expect).await;
        for part in parts.iter().chain(&["test.yaml", "turn 1"]) {
            assert!(message.contains(part), "{part:?} is missing in: {message}");
        }
    }
}

#[tokio::test]
async fn an_unexpected_request_is_reported_with_its_digest() {
    let expected = request_digest(&request(vec![first_message()]));
    let sent = request_digest(&request(with_results()));
    let message = fails(&format!("{{request: '{expected}'}}")).await;
    assert!(message.contains(&expected.to_string()) && message.contains(&sent.to_string()), "{message}");
}

#[tokio::test]
async fn the_sent_text_is_truncated() {
    let mut request = request(vec![first_message()]);
    request.instructions = vec!["é".repeat(10 << 20)];
    let model = model("version: 1\nturns: [{content: ok, expect: {system: {contains: x}}}]");
    let message = script_error(&model, request).await;
    assert!(message.len() < 2000 && message.contains("(10485760 characters)"), "{message}");
}

#[test]
fn the_digest_covers_the_sent_request_only() {
    let mut other = request(with_results());
    other.call = 7;
    other.turn = other.turn.next();
    assert_eq!(request_digest(&other), request_digest(&request(with_results())));
    other.instructions.push("More.".to_owned());
    assert_ne!(request_digest(&other), request_digest(&request(with_results())));
}
