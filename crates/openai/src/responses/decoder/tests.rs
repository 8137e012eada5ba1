use conjure_conversation::{ApiErrorKind, ModelApi, ModelEvent, Origin, Response, StopReason};
use conjure_model_http::{Decoder as _, DecoderContext, OutputShown, ServiceError, SseParser, StreamError};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::ResponsesDecoder;

const LLAMA: &str = include_str!("../../../tests/fixtures/llamacpp-responses-parallel.sse");

fn context() -> DecoderContext {
    let (service, model) = ("s".to_owned(), "m".to_owned());
    DecoderContext::new(Origin { api: ModelApi::Responses, service, model })
}

type Outcome = (Vec<ModelEvent>, Result<Option<Response>, StreamError>);

fn read_pieces<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Outcome {
    let (mut parser, mut decoder, mut shown) =
        (SseParser::new(1 << 20), ResponsesDecoder::new(context()), Vec::new());
    for piece in pieces {
        let pushed =
            parser.push(piece, |event| decoder.push(event, &mut |event: ModelEvent| shown.push(event)));
        if let Err(error) = pushed {
            return (shown, Err(error));
        }
    }
    (shown, decoder.finish())
}

fn read(events: &[Value]) -> Outcome {
    let stream: String = events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()))
        .collect();
    read_pieces([stream.as_bytes()])
}

fn answer(events: &[Value]) -> Response {
    read(events).1.unwrap().unwrap()
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"id": "resp_1", "model": "m-1", "status": "completed", "output": [],
        "usage": {"input_tokens": 10, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}}}})
}

fn ended(status: &str, more: &Value) -> Value {
    let mut event = json!({"type": format!("response.{status}"), "response": {"id": "r", "status": status, "output": []}});
    for (name, value) in more.as_object().unwrap() {
        event["response"][name] = value.clone();
    }
    event
}

fn message(text: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

fn function_call(arguments: &str) -> Value {
    json!({"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "t", "arguments": arguments})
}

fn done(index: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn blocks(response: &Response) -> Vec<Value> {
    response.content.iter().map(|block| serde_json::from_str(block.json()).unwrap()).collect()
}

fn items(response: &Response) -> Vec<&str> {
    response.native.as_ref().unwrap().items.iter().map(conjure_conversation::NativeItem::json).collect()
}

#[test]
fn llama_cpp_without_indexes_and_with_all_items_at_the_end() {
    let (shown, response) = read_pieces([LLAMA.as_bytes()]);
    let response = response.unwrap().unwrap();
    assert_eq!(response.stop_reason, StopReason::ToolUse);
    assert_eq!(
        blocks(&response),
        [
            json!({"type": "thinking", "thinking": "Let me look.", "signature": ""}),
            json!({"type": "text", "text": "I will run it.\n"}),
            json!({"type": "tool_use", "id": "call_Y0oLO0UMJ0SS3KRJ0xIWqanvxAGJmZLS", "name": "bash", "input": {"command": "echo hello"}}),
            json!({"type": "tool_use", "id": "call_iH4cxrOdeaQi7gZIOXSSr9C309fhaBJe", "name": "bash", "input": {"command": "date"}}),
        ]
    );
    for item in items(&response) {
        assert!(LLAMA.contains(item), "{item} is not byte for byte what came");
    }
    assert_eq!(shown[0], ModelEvent::Started);
    assert_eq!(shown[1], ModelEvent::ThinkingDelta { index: 0, text: "Let me".to_owned() });
    let call = ModelEvent::ToolUseStarted { index: 3, name: "bash".to_owned() };
    assert!(shown.contains(&call), "{shown:?}");
    assert!(response.usage.output_tokens > 0 && response.model.as_deref() == Some("par.gguf"));
}

#[test]
fn an_answer_of_openai_is_shown_as_it_comes_and_built_from_its_finished_items() {
    let reasoning = json!({"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "E"});
    let delta = |kind: &str, index: u64, id: &str, text: &str| json!({"type": kind, "output_index": index, "item_id": id, "content_index": 0, "summary_index": 0, "delta": text});
    let (shown, response) = read(&[
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"id": "rs_1", "type": "reasoning", "summary": []}}),
        json!({"type": "response.reasoning_summary_part.added", "item_id": "rs_1", "output_index": 0, "summary_index": 0}),
        delta("response.reasoning_summary_text.delta", 0, "rs_1", "Hm."),
        done(0, &reasoning),
        json!({"type": "response.output_item.added", "output_index": 1, "item": {"id": "msg_1", "type": "message", "content": []}}),
        delta("response.output_text.delta", 1, "msg_1", "I"),
        delta("response.output_text.delta", 1, "msg_1", " look."),
        done(1, &message("I look.")),
        json!({"type": "response.output_item.added", "output_index": 2, "item": function_call("")}),
        delta("response.function_call_arguments.delta", 2, "fc_1", "{\"n\":"),
        json!({"type": "keepalive", "sequence_number": 9}),
        delta("response.function_call_arguments.delta", 2, "fc_1", "1}"),
        json!({"type": "response.function_call_arguments.done", "output_index": 2, "item_id": "fc_1", "arguments": "{\"n\":1}"}),
        done(2, &function_call("{\"n\":1}")),
        json!({"type": "response.from_next_year", "x": [1]}),
        completed(),
    ]);
    let response = response.unwrap().unwrap();
    assert_eq!(
        shown[..7],
        [
            ModelEvent::Started,
            ModelEvent::ThinkingDelta { index: 0, text: "Hm.".to_owned() },
            ModelEvent::TextDelta { index: 1, text: "I".to_owned() },
            ModelEvent::TextDelta { index: 1, text: " look.".to_owned() },
            ModelEvent::ToolUseStarted { index: 2, name: "t".to_owned() },
            ModelEvent::ToolInputDelta { index: 2, partial_json: "{\"n\":".to_owned() },
            ModelEvent::ToolInputDelta { index: 2, partial_json: "1}".to_owned() },
        ]
    );
    assert_eq!(response.content.len(), 3);
    assert_eq!(items(&response)[0], reasoning.to_string());
    assert_eq!((response.id.as_deref(), response.model.as_deref()), (Some("resp_1"), Some("m-1")));
    assert_eq!(
        (response.usage.input_tokens, response.usage.cache_read_input_tokens, response.usage.output_tokens),
        (6, 4, 3)
    );
}

#[test]
fn items_are_in_the_order_of_their_indexes() {
    let response = answer(&[done(1, &function_call("{}")), done(0, &message("x")), completed()]);
    assert_eq!(items(&response), [message("x").to_string(), function_call("{}").to_string()]);
    // Without ids and indexes, in the order in which they come.
    let bare =
        |kind: &str, item: &Value| json!({"type": format!("response.output_item.{kind}"), "item": item});
    let mut first = message("x");
    first.as_object_mut().unwrap().remove("id");
    let mut second = function_call("{}");
    second.as_object_mut().unwrap().remove("id");
    let response = answer(&[
        bare("added", &first),
        bare("added", &second),
        bare("done", &first),
        bare("done", &second),
        completed(),
    ]);
    assert_eq!(items(&response), [first.to_string(), second.to_string()]);
}

#[test]
fn missing_items_are_taken_from_the_final_event() {
    let streamed = answer(&[
        json!({"type": "response.output_item.added", "output_index": 0, "item": function_call("")}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_1", "delta": "{\"n\":1}"}),
        done(0, &function_call("")),
        completed(),
    ]);
    assert_eq!(streamed.content[0].tool_call().unwrap().input.get(), r#"{"n":1}"#);
    assert!(items(&streamed)[0].contains(r#""arguments":"{\"n\":1}""#));
    // Only the end has the items.
    let mut whole = completed();
    whole["response"]["output"] = json!([message("x"), function_call("{}")]);
    assert_eq!(answer(&[whole]).stop_reason, StopReason::ToolUse);
}

fn text_delta(id: &str, text: &str) -> Value {
    json!({"type": "response.output_text.delta", "item_id": id, "content_index": 0, "delta": text})
}

#[test]
fn an_item_that_is_never_done_is_built_from_its_deltas() {
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item":
        {"id": "msg_1", "type": "message", "status": "in_progress", "phase": "commentary", "content": []}});
    let call = json!({"type": "response.output_item.added", "output_index": 1, "item": function_call("")});
    let arguments =
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{\"n\":1}"});
    let response = answer(&[
        added.clone(),
        text_delta("msg_1", "Hel"),
        text_delta("msg_1", "lo"),
        call.clone(),
        arguments.clone(),
        completed(),
    ]);
    assert_eq!(response.stop_reason, StopReason::ToolUse);
    assert_eq!(blocks(&response)[0], json!({"type": "text", "text": "Hello"}));
    assert_eq!(response.content[1].tool_call().unwrap().input.get(), r#"{"n":1}"#);
    assert_eq!(
        serde_json::from_str::<Value>(items(&response)[0]).unwrap(),
        json!({"id": "msg_1", "type": "message", "status": "completed", "phase": "commentary", "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello", "annotations": []}]})
    );
    // Only deltas; and one item is done and the other is not.
    let bare = answer(&[text_delta("", "Hi"), completed()]);
    assert_eq!((blocks(&bare).len(), bare.stop_reason), (1, StopReason::EndTurn));
    let mixed = answer(&[added, text_delta("msg_1", "Hi"), done(1, &function_call("{}")), completed()]);
    assert_eq!(blocks(&mixed)[0], json!({"type": "text", "text": "Hi"}));
    assert_eq!(mixed.content.len(), 2);
    // The end has the item that was not done.
    let mut end = completed();
    end["response"]["output"] = json!([message("Hi, whole"), function_call("{}")]);
    let at_end = answer(&[text_delta("msg_1", "Hi"), done(1, &function_call("{}")), end]);
    assert!(blocks(&at_end).contains(&json!({"type": "text", "text": "Hi, whole"})));
    assert_eq!(at_end.content.len(), 2);
}

#[test]
fn deltas_under_another_id_than_their_item_are_no_second_item() {
    let call = json!({"type": "response.output_item.added", "item": {"id": "fc_9", "type": "function_call", "call_id": "call_1", "name": "t"}});
    let response = answer(&[
        text_delta("msg_9", "x"),
        done(0, &message("x")),
        call,
        done(1, &function_call("{}")),
        completed(),
    ]);
    assert_eq!(items(&response), [message("x").to_string(), function_call("{}").to_string()]);
}

#[test]
fn an_answer_without_the_text_that_was_shown_is_truncated() {
    let mut end = completed();
    end["response"]["output"] = json!([{"id": "msg_1", "type": "message", "content": []}]);
    assert_eq!(read(&[text_delta("msg_1", "Hi"), end]).1, Ok(None));
    assert_eq!(
        read(&[
            text_delta("msg_1", "Hi"),
            done(0, &json!({"id": "msg_1", "type": "message", "content": []})),
            completed()
        ])
        .1,
        Ok(None)
    );
}

#[test]
fn the_stop_reason_follows_from_status_and_calls() {
    let incomplete = |reason: Value| ended("incomplete", &json!({"incomplete_details": {"reason": reason}}));
    for (item, end, expected) in [
        (message("x"), completed(), StopReason::EndTurn),
        (function_call("{}"), completed(), StopReason::ToolUse),
        (function_call("{}"), incomplete(json!("max_output_tokens")), StopReason::MaxTokens),
        (message("x"), incomplete(json!("content_filter")), StopReason::Refusal),
        (message("x"), incomplete(json!("steered")), StopReason::Unknown("steered".to_owned())),
        (message("x"), incomplete(Value::Null), StopReason::Unknown("incomplete".to_owned())),
        (message("x"), ended("cancelled", &json!({})), StopReason::Unknown("cancelled".to_owned())),
        (
            json!({"id": "m", "type": "message", "content": [{"type": "refusal", "refusal": "No."}]}),
            completed(),
            StopReason::Refusal,
        ),
    ] {
        assert_eq!(answer(&[done(0, &item), end.clone()]).stop_reason, expected, "{item} {end}");
    }
    let cut = answer(&[done(0, &function_call("{\"n\": 1, \"m")), incomplete(json!("max_output_tokens"))]);
    assert_eq!(cut.content[0].tool_call().unwrap().input.get(), r#"{"n": 1}"#);
}

#[test]
fn an_answer_at_the_token_limit_counts_as_truncated() {
    let read = |max_tokens| {
        let mut decoder = ResponsesDecoder::new(DecoderContext { max_tokens, ..context() });
        for event in [done(0, &function_call("{\"n\": 1, \"m")), completed()] {
            let data = event.to_string();
            decoder.push(conjure_model_http::SseEvent { name: "", data: &data }, &mut |_| {}).unwrap();
        }
        decoder.finish().unwrap().unwrap().stop_reason
    };
    assert_eq!(read(Some(3)), StopReason::MaxTokens);
    assert_eq!(read(Some(4)), StopReason::ToolUse);
    assert_eq!(read(None), StopReason::ToolUse);
}

fn failed(event: &Value) -> ServiceError {
    match read(std::slice::from_ref(event)).1 {
        Err(StreamError::Service(error)) => *error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn failures_keep_the_services_message() {
    let limited =
        failed(&ended("failed", &json!({"error": {"code": "rate_limit_exceeded", "message": "slow"}})));
    assert_eq!((limited.kind, limited.message.as_str()), (ApiErrorKind::RateLimit, "slow"));
    let refused = failed(&ended("failed", &json!({"error": {"code": "invalid_prompt", "message": "no"}})));
    assert_eq!(refused.kind, ApiErrorKind::InvalidRequest);
    let silent = failed(&ended("failed", &json!({"error": null})));
    assert!(silent.message.contains("without a reason"), "{}", silent.message);
    let event =
        failed(&json!({"type": "error", "code": "server_error", "message": "it broke", "param": null}));
    assert_eq!((event.kind, event.message.as_str()), (ApiErrorKind::Api, "it broke"));
    let wrapped =
        failed(&json!({"type": "error", "error": {"code": "insufficient_quota", "message": "pay"}}));
    assert_eq!(wrapped.kind, ApiErrorKind::Billing);
    let llama = failed(&json!({"code": 500, "message": "Unexpected empty grammar stack"}));
    assert_eq!(llama.message, "Unexpected empty grammar stack");
    let bare =
        failed(&json!({"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error"}}));
    assert_eq!(bare.kind, ApiErrorKind::InvalidRequest);
}

#[test]
fn an_answer_without_its_end_is_truncated_and_what_is_no_event_is_refused() {
    assert_eq!(read(&[done(0, &message("x"))]).1, Ok(None));
    assert_eq!(read(&[]).1, Ok(None));
    // LiteLLM writes `[DONE]` behind the end.
    let ended = format!("data: {}\n\ndata: [DONE]\n\n", completed());
    assert!(read_pieces([ended.as_bytes()]).1.unwrap().is_some());
    for broken in [
        "data: not JSON\n\n",
        "data: [1]\n\n",
        "data: {\"type\":\"response.output_item.done\"}\n\n",
        "data: {\"type\":\"response.completed\"}\n\n",
    ] {
        let (_, read) = read_pieces([broken.as_bytes()]);
        assert!(matches!(read, Err(StreamError::Protocol(_))), "{broken}");
    }
    let quiet = "event: keepalive\ndata: {}\n\n: comment\n\ndata: {\"type\":\"codex.rate_limits\",\"message\":\"x\"}\n\n";
    assert_eq!(read_pieces([quiet.as_bytes()]).1, Ok(None));
}

#[test]
fn a_tool_of_the_service_counts_as_output() {
    let mut decoder = ResponsesDecoder::new(context());
    let mut shown = Vec::new();
    let mut push = |decoder: &mut ResponsesDecoder, data: Value| {
        let data = data.to_string();
        let event = conjure_model_http::SseEvent { name: "", data: &data };
        decoder.push(event, &mut |event: ModelEvent| shown.push(event)).unwrap();
    };
    let added = |kind: &str| json!({"type": "response.output_item.added", "output_index": 0, "item": {"id": kind, "type": kind}});
    push(&mut decoder, added("reasoning"));
    assert_eq!(decoder.shown(), OutputShown::Nothing);
    push(&mut decoder, added("web_search_call"));
    assert_eq!(decoder.shown(), OutputShown::Something);
    assert!(!decoder.is_complete());
    push(&mut decoder, completed());
    assert!(decoder.is_complete());
    assert_eq!(shown[0], ModelEvent::Started);
}

proptest! {
    #[test]
    fn any_split_of_a_recorded_stream_gives_the_same_answer(cuts in proptest::collection::vec(0..LLAMA.len(), 0..40)) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        let bytes = LLAMA.as_bytes();
        let mut pieces = Vec::new();
        let mut start = 0;
        for cut in cuts {
            pieces.push(&bytes[start..cut]);
            start = cut;
        }
        pieces.push(&bytes[start..]);
        let (shown, answer) = read_pieces(pieces);
        let (expected_shown, expected) = read_pieces([bytes]);
        prop_assert_eq!(shown, expected_shown);
        prop_assert_eq!(answer.unwrap(), expected.unwrap());
    }

    #[test]
    fn no_bytes_make_it_panic(
        damage in proptest::collection::vec((0..LLAMA.len(), any::<u8>()), 1..20),
        noise in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = LLAMA.as_bytes().to_vec();
        for (place, byte) in damage {
            bytes[place] = byte;
        }
        let _ = read_pieces([bytes.as_slice()]);
        let _ = read_pieces([noise.as_slice()]);
    }
}
