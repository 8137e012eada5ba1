use conjure_conversation::{ApiErrorKind, BlockKind, ModelApi, ModelEvent, Origin, Response, StopReason};
use conjure_model_http::{Decoder as _, DecoderContext, OutputShown, RetryAdvice, SseParser, StreamError};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::ChatDecoder;

const LLAMA: &str = include_str!("../../../tests/fixtures/llamacpp-chat-parallel.sse");

fn decoder() -> ChatDecoder {
    let origin = Origin { api: ModelApi::Chat, service: "s".to_owned(), model: "m".to_owned() };
    ChatDecoder::new(DecoderContext::new(origin))
}

type Outcome = (Vec<ModelEvent>, Result<Option<Response>, StreamError>);

fn read_pieces<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Outcome {
    let (mut parser, mut decoder, mut shown) = (SseParser::new(1 << 20), decoder(), Vec::new());
    for piece in pieces {
        let pushed =
            parser.push(piece, |event| decoder.push(event, &mut |event: ModelEvent| shown.push(event)));
        if let Err(error) = pushed {
            return (shown, Err(error));
        }
    }
    (shown, decoder.finish())
}

fn read(stream: &str) -> Outcome {
    read_pieces([stream.as_bytes()])
}

fn stream(chunks: &[Value]) -> String {
    let events: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    format!("{events}data: [DONE]\n\n")
}

/// The answer of these deltas, which end for this reason.
fn answer(deltas: &[Value], reason: &str) -> Response {
    let mut chunks: Vec<Value> =
        deltas.iter().map(|delta| json!({"choices": [{"index": 0, "delta": delta}]})).collect();
    chunks.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}));
    read(&stream(&chunks)).1.unwrap().unwrap()
}

fn native(response: &Response) -> &str {
    response.native.as_ref().unwrap().items[0].json()
}

fn blocks(response: &Response) -> Vec<Value> {
    response.content.iter().map(|block| serde_json::from_str(block.json()).unwrap()).collect()
}

fn failed(chunk: &str) -> conjure_model_http::ServiceError {
    match read(&format!("{chunk}\n\ndata: [DONE]\n\n")).1 {
        Err(StreamError::Service(error)) => *error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn llama_cpp_with_reasoning_and_two_calls() {
    let (shown, answer) = read(LLAMA);
    let answer = answer.unwrap().unwrap();
    assert_eq!(answer.stop_reason, StopReason::ToolUse);
    assert_eq!(
        blocks(&answer),
        [
            json!({"type": "thinking", "thinking": "Let me look.", "signature": ""}),
            json!({"type": "text", "text": "I will run it.\n"}),
            json!({"type": "tool_use", "id": "0HrSUHgiHr9DakUkgC5XK8Y9kKghw5vR", "name": "bash", "input": {"command": "echo hello"}}),
            json!({"type": "tool_use", "id": "hEFGNyGUsqjX2DEhIorjyGVylaL1K5Kv", "name": "bash", "input": {"command": "date"}}),
        ]
    );
    let kept: Value = serde_json::from_str(native(&answer)).unwrap();
    assert_eq!(
        kept,
        json!({
            "role": "assistant", "content": "I will run it.\n", "reasoning_content": "Let me look.",
            "tool_calls": [
                {"id": "0HrSUHgiHr9DakUkgC5XK8Y9kKghw5vR", "type": "function",
                 "function": {"name": "bash", "arguments": "{\"command\": \"echo hello\"}"}},
                {"id": "hEFGNyGUsqjX2DEhIorjyGVylaL1K5Kv", "type": "function",
                 "function": {"name": "bash", "arguments": "{\"command\": \"date\"}"}},
            ],
        })
    );
    assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (395, 22));
    assert_eq!(answer.model.as_deref(), Some("par.gguf"));
    let last_index = |event: &ModelEvent| match event {
        ModelEvent::ToolInputDelta { index, .. } => Some(*index),
        _ => None,
    };
    assert_eq!(shown[0], ModelEvent::Started);
    assert_eq!(shown[1], ModelEvent::ThinkingDelta { index: 0, text: "Let me".to_owned() });
    assert_eq!(shown.iter().filter_map(last_index).max(), Some(3));
    assert!(matches!(shown.last(), Some(ModelEvent::UsageReported(usage)) if usage.input_tokens == 395));
}

#[test]
fn a_member_that_any_delta_had_goes_back_also_when_it_is_empty() {
    let call =
        json!([{"index": 0, "id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}]);
    let deepseek = answer(
        &[
            json!({"role": "assistant", "content": null, "reasoning_content": ""}),
            json!({"content": "", "reasoning_content": null}),
            json!({"tool_calls": call}),
        ],
        "tool_calls",
    );
    assert_eq!(
        native(&deepseek),
        r#"{"role":"assistant","content":"","reasoning_content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"t","arguments":"{}"}}]}"#
    );
    assert_eq!(blocks(&deepseek).len(), 1, "no empty texts among the blocks");
    // `role` in every chunk, as Ollama writes it.
    let ollama = answer(
        &[
            json!({"role": "assistant", "content": "", "reasoning": "Hm"}),
            json!({"role": "assistant", "content": "a"}),
            json!({"role": "assistant", "content": "b", "x": 1}),
            json!({"role": "assistant", "content": "", "x": 2, "y": null}),
        ],
        "stop",
    );
    assert_eq!(native(&ollama), r#"{"role":"assistant","content":"ab","reasoning":"Hm","x":2}"#);
    assert_eq!(ollama.stop_reason, StopReason::EndTurn);
}

#[test]
fn openrouters_details_are_joined_and_kept_in_order() {
    let detail = |text: &str| json!({"type": "reasoning.text", "text": text, "format": "f", "index": 0});
    let response = answer(
        &[
            json!({"reasoning": "a", "reasoning_details": [detail("a")]}),
            json!({"reasoning": "b", "reasoning_details": [detail("b")]}),
            json!({"reasoning_details": [{"type": "reasoning.text", "signature": "s", "text": "", "index": 0}]}),
            json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "E", "index": 1}]}),
            json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "F", "index": 1}]}),
            json!({"content": "x"}),
        ],
        "stop",
    );
    let kept: Value = serde_json::from_str(native(&response)).unwrap();
    assert_eq!(
        kept["reasoning_details"],
        json!([
            {"type": "reasoning.text", "text": "ab", "format": "f", "index": 0, "signature": "s"},
            {"type": "reasoning.encrypted", "data": "E", "index": 1},
            {"type": "reasoning.encrypted", "data": "F", "index": 1},
        ])
    );
    assert_eq!(blocks(&response)[0]["thinking"], "ab");
}

#[test]
fn reasoning_that_a_server_names_twice_is_shown_once() {
    let both =
        answer(&[json!({"reasoning": "a", "reasoning_content": "a"}), json!({"content": "x"})], "stop");
    assert_eq!(blocks(&both)[0]["thinking"], "a");
    assert!(
        native(&both).contains(r#""reasoning":"a""#) && native(&both).contains(r#""reasoning_content":"a""#)
    );
}

#[test]
fn typed_parts_of_content_are_read_and_go_back_as_parts() {
    let mistral = answer(
        &[
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]}),
            json!({"content": "x"}),
            json!({"content": [{"type": "text", "text": "y"}]}),
        ],
        "stop",
    );
    assert_eq!(
        blocks(&mistral),
        [
            json!({"type": "thinking", "thinking": "Hm", "signature": ""}),
            json!({"type": "text", "text": "xy"})
        ]
    );
    let kept: Value = serde_json::from_str(native(&mistral)).unwrap();
    assert_eq!(
        kept["content"],
        json!([
            {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
            {"type": "text", "text": "x"},
            {"type": "text", "text": "y"},
        ])
    );
}

#[test]
fn unknown_members_of_a_call_go_back_with_it() {
    let gemini = answer(
        &[
            json!({"tool_calls": [{"index": 0, "id": "c", "type": "function", "extra_content": {"google": {"thought_signature": "S"}},
            "function": {"name": "t", "arguments": "{\"a\": 1.50}", "more": 1}}]}),
        ],
        "tool_calls",
    );
    assert_eq!(
        native(&gemini),
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"t","arguments":"{\"a\": 1.50}","more":1},"extra_content":{"google":{"thought_signature":"S"}}}]}"#
    );
}

/// The name and the input of each call.
fn calls(deltas: &[Value]) -> Vec<(String, String, String)> {
    let response = answer(deltas, "tool_calls");
    let calls = response.content.iter().filter_map(|block| match block.kind() {
        BlockKind::ToolUse(call) => {
            Some((call.id.to_string(), call.name.clone(), call.input.get().to_owned()))
        }
        _ => None,
    });
    calls.collect()
}

fn owned(calls: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    calls
        .iter()
        .map(|(id, name, input)| ((*id).to_owned(), (*name).to_owned(), (*input).to_owned()))
        .collect()
}

#[test]
fn calls_are_joined_by_their_index() {
    let delta = |index: u64, id: Value, name: Value, arguments: &str| json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]});
    // Interleaved, several deltas in a chunk, an id in every delta, the indexes not in order.
    let interleaved = [
        json!({"tool_calls": [
            {"index": 1, "id": "b", "type": "function", "function": {"name": "u", "arguments": "{\"x\""}},
            {"index": 0, "id": "a", "type": "function", "function": {"name": "t", "arguments": "{"}},
        ]}),
        delta(1, Value::Null, Value::Null, ":1}"),
        delta(0, json!(""), json!(""), "}"),
    ];
    assert_eq!(calls(&interleaved), owned(&[("b", "u", r#"{"x":1}"#), ("a", "t", "{}")]));
    let new_ids = [delta(0, json!("a"), json!("t"), "{"), delta(0, json!("z"), Value::Null, "}")];
    assert_eq!(calls(&new_ids), owned(&[("a", "t", "{}")]));
    // One index for all calls, each whole.
    let same_index = [delta(0, json!("a"), json!("t"), "{}"), delta(0, json!("b"), json!("t"), "{\"x\":1}")];
    assert_eq!(calls(&same_index), owned(&[("a", "t", "{}"), ("b", "t", r#"{"x":1}"#)]));
}

#[test]
fn calls_without_index_or_id_are_distinguished() {
    let whole = |name: &str| json!({"tool_calls": [{"function": {"name": name, "arguments": "{}"}}]});
    assert_eq!(calls(&[whole("t"), whole("t")]), owned(&[("call_0", "t", "{}"), ("call_1", "t", "{}")]));
    let pieces = [
        json!({"tool_calls": [{"id": "a", "function": {"name": "t", "arguments": "{\"x\""}}]}),
        json!({"tool_calls": [{"function": {"arguments": ":"}}]}),
        json!({"tool_calls": [{"id": "a", "function": {"name": "t", "arguments": "1}"}}]}),
        json!({"tool_calls": [{"id": "b", "function": {"name": "u", "arguments": null}}]}),
    ];
    assert_eq!(calls(&pieces), owned(&[("a", "t", r#"{"x":1}"#), ("b", "u", "{}")]));
    let twins = json!({"tool_calls": [
        {"index": 0, "id": "a", "function": {"name": "t", "arguments": ""}},
        {"index": 1, "id": "a", "function": {"name": "t", "arguments": {"x": 1}}},
        {"index": 2, "id": "c", "function": {"arguments": "{}"}},
    ]});
    assert_eq!(
        calls(&[twins]),
        owned(&[("a", "t", "{}"), ("call_1", "t", r#"{"x":1}"#), ("c", "unnamed_tool", "{}")])
    );
}

#[test]
fn invalid_arguments_are_marked_in_both_forms_and_are_no_error() {
    let response = answer(
        &[
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{\"x\": "}}]}),
        ],
        "tool_calls",
    );
    let call = response.content[0].tool_call().unwrap();
    assert_eq!(call.invalid_input().as_deref(), Some("{\"x\": "));
    let kept: Value = serde_json::from_str(native(&response)).unwrap();
    let arguments = kept["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    assert_eq!(arguments, r#"{"INVALID_JSON":"{\"x\": "}"#);
    // In a cut answer they are closed, and the call never runs.
    let cut = answer(
        &[
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{\"x\": 1, \"y"}}]}),
        ],
        "length",
    );
    assert_eq!(
        (cut.stop_reason, cut.content[0].tool_call().unwrap().input.get()),
        (StopReason::MaxTokens, r#"{"x": 1}"#)
    );
}

#[test]
fn the_stop_reason_follows_from_the_calls_before_the_reason() {
    let text = || json!({"content": "x"});
    let call =
        || json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{}"}}]});
    let cut_call = || json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{\"n\":"}}]});
    for (delta, reason, expected) in [
        (text(), "stop", StopReason::EndTurn),
        (text(), "tool_calls", StopReason::EndTurn),
        (text(), "length", StopReason::MaxTokens),
        (text(), "content_filter", StopReason::Refusal),
        (text(), "model_length", StopReason::ContextWindowExceeded),
        (text(), "soon", StopReason::Unknown("soon".to_owned())),
        (call(), "stop", StopReason::ToolUse),
        (call(), "tool_calls", StopReason::ToolUse),
        (call(), "function_call", StopReason::ToolUse),
        (call(), "length", StopReason::MaxTokens),
        (call(), "content_filter", StopReason::Refusal),
        (call(), "model_length", StopReason::ContextWindowExceeded),
        (call(), "end_turn", StopReason::ToolUse),
        (cut_call(), "tool_calls", StopReason::ToolUse),
        (cut_call(), "soon", StopReason::Unknown("soon".to_owned())),
        (json!({"refusal": "I will not."}), "stop", StopReason::Refusal),
    ] {
        assert_eq!(answer(std::slice::from_ref(&delta), reason).stop_reason, expected, "{delta} {reason}");
    }
    let refused =
        answer(&[json!({"content": null, "refusal": "I will"}), json!({"refusal": " not."})], "stop");
    assert_eq!(blocks(&refused), [json!({"type": "text", "text": "I will not."})]);
    assert_eq!(native(&refused), r#"{"role":"assistant","content":"","refusal":"I will not."}"#);
}

#[test]
fn an_answer_needs_a_finish_reason_or_done() {
    let text = r#"data: {"choices":[{"delta":{"content":"x"}}]}"#;
    let finish = r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let reason = |stream: String| read(&stream).1.unwrap().map(|answer| answer.stop_reason);
    assert_eq!(reason(format!("{text}\n\n")), None);
    assert_eq!(reason(format!("{text}\n\n{finish}\n\n")), Some(StopReason::EndTurn));
    assert_eq!(reason(format!("{text}\n\ndata: [DONE]\n\n")), Some(StopReason::EndTurn));
    assert_eq!(reason("data: [DONE]\n\n".to_owned()), Some(StopReason::Missing));
    assert_eq!(reason(String::new()), None);
}

#[test]
fn an_empty_finish_reason_is_none() {
    let chunk = |reason: &str| json!({"choices": [{"delta": {"content": "x"}, "finish_reason": reason}]});
    let (_, ended) = read(&stream(&[chunk(""), chunk("stop"), chunk("")]));
    assert_eq!(ended.unwrap().unwrap().stop_reason, StopReason::EndTurn);
    assert_eq!(read(&format!("data: {}\n\n", chunk(""))).1, Ok(None));
}

#[test]
fn comments_keep_alives_and_unknown_chunks_are_passed_over() {
    let quiet = ": OPENROUTER PROCESSING\n\nevent: keepalive\ndata: {}\n\ndata: {\"new\":[1]}\n\ndata:\n\n\
                 data: {\"choices\":null,\"error\":null}\n\ndata: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"other\"}}]}\n\n";
    let rest = stream(&[json!({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]})]);
    let (_, response) = read(&format!("{quiet}{rest}"));
    assert_eq!(blocks(&response.unwrap().unwrap()), [json!({"type": "text", "text": "x"})]);
    let after_done = format!("{rest}data: not JSON\n\n");
    assert!(read(&after_done).1.is_ok());
    for broken in ["data: not JSON\n\n", "data: [1]\n\n", "data: {\"choices\":[7]}\n\n"] {
        assert!(matches!(read(broken).1, Err(StreamError::Protocol(_))), "{broken}");
    }
}

#[test]
fn errors_of_the_service_in_the_stream_keep_its_words() {
    let vllm = failed(
        r#"data: {"error":{"message":"out of memory","type":"InternalServerError","param":null,"code":500}}"#,
    );
    assert_eq!((vllm.kind, vllm.message.as_str()), (ApiErrorKind::Api, "out of memory"));
    let openrouter = failed(
        r#"data: {"id":"x","error":{"code":429,"message":"slow"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#,
    );
    assert_eq!((openrouter.kind, openrouter.message.as_str()), (ApiErrorKind::RateLimit, "slow"));
    let in_choice =
        failed(r#"data: {"choices":[{"error":{"code":502,"message":"gone"},"finish_reason":"error"}]}"#);
    assert_eq!(in_choice.message, "gone");
    let unnamed = failed(r#"data: {"choices":[{"delta":{},"finish_reason":"error"}]}"#);
    assert!(unnamed.message.contains("`error`"), "{}", unnamed.message);
    let llama = failed(
        "event: error\ndata: {\"code\":500,\"message\":\"Unexpected empty grammar stack\",\"type\":\"server_error\"}",
    );
    assert_eq!(llama.message, "Unexpected empty grammar stack");
    let bare = failed(r#"data: {"code":500,"message":"Unexpected","type":"server_error"}"#);
    assert_eq!(bare.message, "Unexpected");
    let plain = failed("event: error\ndata: it broke");
    assert_eq!(plain.message, "it broke");
    let groq = failed(
        r#"data: {"error":{"message":"Failed to call a function.","type":"invalid_request_error","code":"tool_use_failed"}}"#,
    );
    assert_eq!(groq.retry, RetryAdvice::Retry);
}

#[test]
fn blank_text_before_a_call_is_no_block_but_goes_back() {
    let response = answer(
        &[
            json!({"content": "\n"}),
            json!({"content": "\n"}),
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{}"}}]}),
        ],
        "tool_calls",
    );
    assert_eq!(blocks(&response).len(), 1);
    assert!(native(&response).contains(r#""content":"\n\n""#));
}

#[test]
fn a_server_that_reports_no_usage_gets_an_estimate() {
    let response = answer(&[json!({"content": "12345678"})], "stop");
    assert_eq!((response.usage.output_tokens, response.usage.input_tokens), (2, 0));
    let zero = read(&stream(&[
        json!({"choices": [{"delta": {"content": "1234"}, "finish_reason": "stop"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}),
    ]));
    assert_eq!(zero.1.unwrap().unwrap().usage.output_tokens, 1);
}

#[test]
fn too_many_parts_are_refused() {
    let many: Vec<Value> = (0..10_001).map(|_| json!({"function": {"name": "t"}})).collect();
    let flood = stream(&[json!({"choices": [{"delta": {"tool_calls": many}}]})]);
    assert!(matches!(read(&flood).1, Err(StreamError::TooMany { limit: 10_000, .. })));
    let wide: serde_json::Map<String, Value> = (0..1_001).map(|n| (format!("m{n}"), json!(1))).collect();
    let flood = stream(&[json!({"choices": [{"delta": wide}]})]);
    assert!(matches!(read(&flood).1, Err(StreamError::TooMany { limit: 1_000, .. })));
}

#[test]
fn output_counts_as_shown_from_the_first_delta() {
    let mut decoder = decoder();
    let mut shown = Vec::new();
    let mut push = |decoder: &mut ChatDecoder, data: &str| {
        let event = conjure_model_http::SseEvent { name: "", data };
        decoder.push(event, &mut |event: ModelEvent| shown.push(event)).unwrap();
    };
    push(&mut decoder, r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#);
    assert_eq!(decoder.shown(), OutputShown::Nothing);
    push(&mut decoder, r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a"}]}}]}"#);
    assert_eq!(decoder.shown(), OutputShown::Something);
    push(&mut decoder, r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"t"}}]}}]}"#);
    assert!(!decoder.is_complete());
    push(&mut decoder, "[DONE]");
    assert!(decoder.is_complete());
    assert_eq!(shown, [ModelEvent::Started, ModelEvent::ToolUseStarted { index: 0, name: "t".to_owned() }]);
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
        let (expected_shown, expected) = read(LLAMA);
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
