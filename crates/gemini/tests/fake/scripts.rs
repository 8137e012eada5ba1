//! Scripts, as a real session plays them.

use conjure_conversation::{ApiErrorKind, ModelErrorKind, StopReason};
use conjure_gemini::fake::FakeGemini;

use crate::support::{answer, ask, client, converse, results, script, start, user};

#[tokio::test]
async fn a_script_is_played_by_the_history() {
    let text = r#"
version: 1
turns:
  - content:
      - thinking: Let me look.
      - tool_use: {name: view, input: {path_name: /a}}
  - expect:
      system: {contains: Be brief}
      tools: [view]
      results: [{id: toolu_script_1, is_error: false}]
    content: "It said {{result:toolu_script_1}}"
"#;
    let fake = start(FakeGemini::builder().script(script(text))).await;
    let model = client(&fake);
    let history = converse(&model, "Look.").await;
    assert_eq!(history[3].text(), "It said done 0");
    // Whoever asks again gets the same turn.
    let again = ask(&model, &history[..3]).await.unwrap();
    assert_eq!(answer(&again).text(), "It said done 0");
    // And so does a fake that has never seen the history.
    let fresh = start(FakeGemini::builder().script(script(text))).await;
    let response = ask(&client(&fresh), &[user("Look.")]).await.unwrap();
    assert_eq!(response.stop_reason, StopReason::ToolUse);
    let response =
        ask(&client(&fresh), &[user("Look."), answer(&response), results(&response)]).await.unwrap();
    assert_eq!(answer(&response).text(), "It said done 0");
}

#[tokio::test]
async fn errors_of_a_script_are_errors_of_the_service() {
    let text = r#"
version: 1
turns:
  - error: {type: overloaded_error, message: Overloaded}
  - content: "Four."
  - content: "Five."
"#;
    let fake = start(FakeGemini::builder().script(script(text))).await;
    let model = client(&fake);
    // The client tries again.
    let response = ask(&model, &[user("Hi")]).await.unwrap();
    assert_eq!(answer(&response).text(), "Four.");
    let response = ask(&model, &[user("Hi"), answer(&response), user("And?")]).await.unwrap();
    assert_eq!(answer(&response).text(), "Five.");
    let history = [user("Hi"), answer(&response), user("And?"), answer(&response), user("More?")];
    let error = ask(&model, &history).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Api(ApiErrorKind::InvalidRequest));
}
