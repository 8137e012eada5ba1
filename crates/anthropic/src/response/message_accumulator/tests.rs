use super::*;
use conjure_conversation::{ApiErrorKind, Block, BlockKind, Usage};
use conjure_model_http::{ServiceError, SseParser};
use proptest::prelude::*;
use serde_json::{Value, json};

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "model": "m", "role": "assistant", "content": [],
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 7, "output_tokens": 1}}})
}

fn block(index: usize, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: usize, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: usize) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> Vec<Value> {
    vec![
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 20}}),
        json!({"type": "message_stop"}),
    ]
}

/// What these events come to, and what they showed.
fn run(events: &[Value]) -> (Vec<ModelEvent>, Result<Option<Response>, StreamError>) {
    let texts: Vec<String> = events.iter().map(Value::to_string).collect();
    run_texts(&texts)
}

fn run_texts(events: &[String]) -> (Vec<ModelEvent>, Result<Option<Response>, StreamError>) {
    let mut accumulator = MessageAccumulator::new();
    let mut shown = Vec::new();
    for data in events {
        if let Err(error) = accumulator.push(SseEvent { name: "", data }, |event| shown.push(event)) {
            return (shown, Err(error));
        }
    }
    (shown, accumulator.finish())
}

/// The content blocks that these events, within a message, come to.
fn content(events: Vec<Value>, reason: &str) -> Vec<Block> {
    let all: Vec<Value> = [start()].into_iter().chain(events).chain(end(reason)).collect();
    run(&all).1.unwrap().unwrap().content
}

fn check(events: Vec<Value>, reason: &str, expected: &str) {
    let content = content(events, reason);
    let blocks: Vec<&str> = content.iter().map(Block::json).collect();
    assert_eq!(blocks.join("\n"), expected);
}

#[test]
fn text_deltas_are_joined_and_emitted() {
    let events = [
        start(),
        json!({"type": "ping"}),
        block(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "text_delta", "text": "Hel"})),
        delta(0, json!({"type": "text_delta", "text": "lo \u{1F980}"})),
        stop(0),
    ];
    let events: Vec<Value> = events.into_iter().chain(end("end_turn")).collect();
    let (shown, answer) = run(&events);
    let text = |text: &str| ModelEvent::TextDelta { index: 0, text: text.to_owned() };
    let used = ModelEvent::UsageReported(Usage {
        input_tokens: 10,
        cache_read_input_tokens: 7,
        output_tokens: 1,
        ..Usage::default()
    });
    assert_eq!(shown, [used, ModelEvent::Started, text("Hel"), text("lo \u{1F980}")]);
    let response = answer.unwrap().unwrap();
    assert_eq!(response.content[0].json(), r#"{"type":"text","text":"Hello 🦀"}"#);
    assert_eq!(response.stop_reason, StopReason::EndTurn);
    assert_eq!(response.id.as_deref(), Some("msg_1"));
    let usage = Usage { input_tokens: 10, cache_read_input_tokens: 7, output_tokens: 20, ..Usage::default() };
    assert_eq!(response.usage, usage, "the last count stands, what it does not mention stays");
}

#[test]
fn a_block_without_deltas_keeps_its_bytes() {
    let odd = r#"{ "type":"from_next_year" , "n": 1.50, "u":"\u00e9", "n2":{"b":1,"a":[ ]}}"#;
    let redacted = r#"{"type":"redacted_thinking","data":"AAA=" }"#;
    let texts = [
        start().to_string(),
        format!(r#"{{"type":"content_block_start","index":0,"content_block":{odd}}}"#),
        format!(r#"{{"type":"content_block_start","index":1,"content_block":{redacted}}}"#),
        end("end_turn")[0].to_string(),
        end("end_turn")[1].to_string(),
    ];
    let content = run_texts(&texts).1.unwrap().unwrap().content;
    assert_eq!((content[0].json(), content[1].json()), (odd, redacted));
}

#[test]
fn thinking_deltas_are_appended_and_the_signature_is_replaced() {
    check(
        vec![
            block(0, json!({"type": "thinking", "thinking": "", "signature": "", "x_unknown": 1.5})),
            delta(0, json!({"type": "thinking_delta", "thinking": "Hm"})),
            delta(0, json!({"type": "thinking_delta", "thinking": "m."})),
            delta(0, json!({"type": "signature_delta", "signature": "old"})),
            delta(0, json!({"type": "signature_delta", "signature": "sig=="})),
            stop(0),
        ],
        "end_turn",
        r#"{"type":"thinking","thinking":"Hmm.","signature":"sig==","x_unknown":1.5}"#,
    );
}

#[test]
fn citations_are_collected_with_the_fields_we_do_not_know() {
    check(
        vec![
            block(0, json!({"type": "text", "text": "", "citations": []})),
            delta(0, json!({"type": "text_delta", "text": "x"})),
            delta(0, json!({"type": "citations_delta", "citation": {"type": "new_location", "n": 1.0}})),
            delta(0, json!({"type": "citations_delta", "citation": {"type": "page_location"}})),
        ],
        "end_turn",
        r#"{"type":"text","text":"x","citations":[{"type":"new_location","n":1.0},{"type":"page_location"}]}"#,
    );
}

#[test]
fn parallel_calls_keep_their_inputs_to_the_byte() {
    let tool = |id: &str| json!({"type": "tool_use", "id": id, "name": "t", "input": {}});
    let input = |index, json: &str| delta(index, json!({"type": "input_json_delta", "partial_json": json}));
    let content = content(
        vec![
            block(0, tool("a")),
            input(0, ""),
            input(0, r#"{"x": 1.5"#),
            input(0, r#"0, "y":["é"]}"#),
            stop(0),
            block(1, tool("b")),
            input(1, ""),
            stop(1),
        ],
        "tool_use",
    );
    let inputs: Vec<&str> = content.iter().map(|block| block.tool_call().unwrap().input.get()).collect();
    assert_eq!(inputs, [r#"{"x": 1.50, "y":["é"]}"#, "{}"]);
}

#[test]
fn a_call_cut_by_the_token_limit_is_closed_and_never_runs() {
    let cut = vec![
        block(0, json!({"type": "tool_use", "id": "a", "name": "t", "input": {}})),
        delta(0, json!({"type": "input_json_delta", "partial_json": "{\"path\": \"/a\", \"text\": \"hel"})),
    ];
    let content = content(cut, "max_tokens");
    assert_eq!(content[0].tool_call().unwrap().input.get(), r#"{"path": "/a"}"#);
    assert_eq!(StopReason::MaxTokens.after_response(), AfterResponse::StopWithoutTools);
}

#[test]
fn a_call_with_invalid_input_is_marked() {
    for (written, is_closed) in [("{\"a\": ", true), ("nonsense", true), ("[1]", true), ("{\"a\":1}", false)]
    {
        let mut events = vec![
            block(0, json!({"type": "tool_use", "id": "a", "name": "t", "input": {}})),
            delta(0, json!({"type": "input_json_delta", "partial_json": written})),
        ];
        events.extend(is_closed.then(|| stop(0)));
        let content = content(events, "tool_use");
        let call = content[0].tool_call().unwrap();
        assert_eq!(call.invalid_input().as_deref(), Some(written));
        assert_eq!(call.input_value(), json!({"INVALID_JSON": written}));
    }
    let empty = content(
        vec![block(0, json!({"type": "tool_use", "id": "a", "name": "t", "input": null}))],
        "max_tokens",
    );
    assert_eq!(empty[0].tool_call().unwrap().input.get(), "{}");
}

#[test]
fn unknown_deltas_are_merged_like_known_ones() {
    check(
        vec![
            block(0, json!({"type": "poem", "verse": "Roses", "n": 1, "list": [[0]]})),
            delta(0, json!({"type": "poem_delta", "verse": " are", "n": 2.50, "list": [[1]]})),
            delta(0, json!({"type": "poem_delta", "verse": " red", "text": 5, "list": []})),
            block(1, json!({"type": "compaction", "content": null})),
            delta(1, json!({"type": "compaction_delta", "content": "sum", "encrypted_content": "AA"})),
        ],
        "end_turn",
        "{\"type\":\"poem\",\"verse\":\"Roses are red\",\"n\":2.5,\"list\":[[0],[1]],\"text\":5}\n\
         {\"type\":\"compaction\",\"content\":\"sum\",\"encrypted_content\":\"AA\"}",
    );
}

#[test]
fn deltas_that_do_not_belong_to_their_block_are_dropped() {
    check(
        vec![
            block(0, json!({"type": "tool_use", "id": "a", "name": "t", "input": {}})),
            delta(0, json!({"type": "text_delta", "text": "no"})),
            delta(0, json!({"type": "thinking_delta", "thinking": "no"})),
            stop(0),
            block(1, json!({"type": "text", "text": "a"})),
            delta(1, json!({"type": "input_json_delta", "partial_json": "{"})),
            delta(1, json!({"type": "signature_delta", "signature": "no"})),
        ],
        "tool_use",
        "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"t\",\"input\":{}}\n{\"type\":\"text\",\"text\":\"a\"}",
    );
}

#[test]
fn the_container_comes_with_the_message_delta() {
    let mut last = end("stop_sequence");
    last[0]["delta"]["container"] = json!({"id": "c_1", "expires_at": "2026-01-01"});
    let events: Vec<Value> = [start()].into_iter().chain(last).collect();
    let answer = run(&events).1.unwrap().unwrap();
    assert_eq!(answer.container.unwrap().as_str(), "c_1");
}

#[test]
fn only_visible_or_executed_output_counts_as_shown() {
    // Behind what the message's start says that was used.
    let shown_after = |event: Value| run(&[start(), json!({"type": "ping"}), event]).0.get(1).cloned();
    for quiet in [
        json!({"type": "ping"}),
        json!({"type": "from_next_year", "index": "x"}),
        block(0, json!({"type": "text", "text": ""})),
        block(0, json!({"type": "thinking", "thinking": ""})),
    ] {
        assert_eq!(shown_after(quiet.clone()), None, "{quiet}");
    }
    for loud in [
        block(0, json!({"type": "text", "text": "a"})),
        block(0, json!({"type": "tool_use", "id": "a", "name": "t", "input": {}})),
        block(0, json!({"type": "server_tool_use", "id": "a", "name": "t", "input": {}})),
        block(0, json!({"type": "from_next_year"})),
    ] {
        assert_eq!(shown_after(loud.clone()), Some(ModelEvent::Started), "{loud}");
    }
}

#[test]
fn a_stream_that_breaks_the_protocol_is_an_error() {
    let text = block(0, json!({"type": "text", "text": ""}));
    for events in [
        vec![text.clone()],
        vec![json!({"type": "message_stop"})],
        vec![start(), start()],
        vec![start(), block(1, json!({"type": "text", "text": ""}))],
        vec![start(), block(0, json!({"text": ""}))],
        vec![start(), block(0, json!("text"))],
        vec![start(), delta(0, json!({"type": "text_delta", "text": "a"}))],
        vec![start(), text.clone(), delta(0, json!({"type": "text_delta", "text": 5}))],
        vec![start(), text.clone(), stop(7)],
        vec![start(), json!({"type": "content_block_start", "index": 99999999999999999u64})],
        vec![json!({"type": "message_start"})],
        vec![json!({"no": "type"})],
        vec![json!([])],
    ] {
        let ended = run(&events).1;
        assert!(matches!(ended, Err(StreamError::Protocol(_))), "{events:?}: {ended:?}");
    }
}

#[test]
fn an_error_in_mid_stream_has_its_type() {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    for events in [vec![error.clone()], vec![start(), error]] {
        let expected = ServiceError::new(ApiErrorKind::Overloaded, "Overloaded");
        assert_eq!(run(&events).1.unwrap_err(), expected.into());
    }
    for (odd, message) in [
        (json!({"type": "error"}), "the error has no message"),
        (json!({"type": "error", "error": "busy"}), "busy"),
        (json!({"type": "error", "error": 7}), r#"{"type":"error","error":7}"#),
    ] {
        let expected = ServiceError::new(ApiErrorKind::Api, message);
        assert_eq!(run(&[odd]).1.unwrap_err(), expected.into());
    }
}

/// The words of servers that speak this API and tell errors in another form.
#[test]
fn an_error_in_mid_stream_is_read_in_the_forms_of_other_servers() {
    let failed = |name: &str, data: Value| {
        let mut accumulator = MessageAccumulator::new();
        accumulator.push(SseEvent { name: "", data: &start().to_string() }, |_| {}).unwrap();
        match accumulator.push(SseEvent { name, data: &data.to_string() }, |_| {}) {
            Err(StreamError::Service(error)) => (error.kind, error.message),
            other => panic!("{data}: {other:?}"),
        }
    };
    for name in ["error", ""] {
        let llamacpp =
            json!({"code": 500, "message": "Unexpected empty grammar stack", "type": "server_error"});
        let words = "Unexpected empty grammar stack".to_owned();
        assert_eq!(failed(name, llamacpp), (ApiErrorKind::Api, words));
        let openai = json!({"error": {"message": "too long", "type": "x", "param": null, "code": "400"}});
        assert_eq!(failed(name, openai), (ApiErrorKind::InvalidRequest, "too long".to_owned()));
    }
    let busy = json!({"code": 503, "message": "Loading model", "type": "unavailable_error"});
    assert_eq!(failed("error", busy), (ApiErrorKind::Api, "Loading model".to_owned()));
    assert_eq!(failed("error", json!("stop")), (ApiErrorKind::Api, "\"stop\"".to_owned()));
}

/// What llama.cpp streamed: each block starts before the one before has stopped, calls start without `input`, thinking without
/// `signature`.
#[test]
fn blocks_that_overlap_are_kept_apart() {
    let recorded = include_bytes!("../../../tests/recorded/llamacpp-parallel-calls.sse");
    let (mut parser, mut accumulator) = (SseParser::new(1 << 20), MessageAccumulator::new());
    parser.push::<StreamError>(recorded, |event| accumulator.push(event, |_| {})).unwrap();
    let response = accumulator.finish().unwrap().unwrap();
    let blocks: Vec<&str> = response.content.iter().map(Block::json).collect();
    assert_eq!(
        blocks,
        [
            r#"{"type":"thinking","thinking":"Let me look.","signature":""}"#,
            r#"{"type":"text","text":"I will run it.\n"}"#,
            r#"{"type":"tool_use","id":"cl0bqiZTyJJa8ktN2L6iZGwcdmPE0luZ","name":"bash","input":{"command": "echo hello"}}"#,
            r#"{"type":"tool_use","id":"JofzI7QArSrijEObju20HvHqUmI5gJDh","name":"bash","input":{"command": "date"}}"#,
        ]
    );
    assert_eq!((response.usage.input_tokens, response.usage.output_tokens), (1, 22));
}

#[test]
fn a_stream_needs_message_stop_and_later_events_are_ignored() {
    assert!(run(&[start()]).1.unwrap().is_none());
    assert!(run(&[]).1.unwrap().is_none());
    let mut events = vec![start()];
    events.extend(end("end_turn"));
    events.push(json!({"type": "error", "error": {"type": "api_error", "message": "late"}}));
    assert!(run(&events).1.unwrap().is_some());
}

#[test]
fn whitespace_and_unusual_pings_are_accepted() {
    let mut texts = vec![format!("  {}   ", start())];
    texts.push(r#"{"type":"ping","index":"what"}"#.to_owned());
    texts.extend(end("end_turn").iter().map(|event| format!("{event} \t ")));
    assert!(run_texts(&texts).1.unwrap().is_some());
}

/// Events of every kind, many of them broken.
fn any_event() -> impl Strategy<Value = String> {
    let index =
        prop_oneof![4 => Just(json!(0)), 3 => Just(json!(1)), 1 => Just(json!(-1)), 1 => Just(json!("0"))];
    let piece = prop_oneof!["[{}\\[\\]:,\"a1 ]{0,6}", Just("{\"a\":".to_owned()), Just("1}".to_owned())];
    let kind = proptest::sample::select(vec![
        "text",
        "thinking",
        "tool_use",
        "server_tool_use",
        "redacted_thinking",
        "poem",
        "compaction",
        "tool_result",
    ]);
    let delta_kind = proptest::sample::select(vec![
        "text_delta",
        "input_json_delta",
        "thinking_delta",
        "signature_delta",
        "citations_delta",
        "compaction_delta",
        "poem_delta",
    ]);
    prop_oneof![
        2 => Just(start().to_string()),
        4 => (index.clone(), kind, piece.clone()).prop_map(|(index, kind, text)| {
            json!({"type": "content_block_start", "index": index, "content_block": {
                "type": kind, "text": text, "thinking": "", "id": "a", "name": "t", "input": {}, "tool_use_id": "a"}})
                .to_string()
        }),
        8 => (index.clone(), delta_kind, piece).prop_map(|(index, kind, text)| {
            json!({"type": "content_block_delta", "index": index, "delta": {
                "type": kind, "text": text, "thinking": text, "partial_json": text, "signature": text,
                "citation": {"x": text}, "content": text}})
                .to_string()
        }),
        3 => index.prop_map(|index| json!({"type": "content_block_stop", "index": index}).to_string()),
        1 => proptest::sample::select(vec!["tool_use", "max_tokens", "end_turn", "soon"])
            .prop_map(|reason| end(reason)[0].to_string()),
        1 => Just(end("x")[1].to_string()),
        1 => Just("{\"type\":\"ping\"}".to_owned()),
        1 => "\\PC{0,20}",
    ]
}

/// The events of `begin`, then `event(n)` until it is refused; how many were taken.
fn fill(begin: &[Value], event: impl Fn(usize) -> Value) -> (usize, StreamError) {
    let mut accumulator = MessageAccumulator::new();
    let mut push = |event: &Value| {
        let data = event.to_string();
        accumulator.push(SseEvent { name: "", data: &data }, |_| {})
    };
    begin.iter().try_for_each(&mut push).unwrap();
    (0..1_000_000).find_map(|n| Some((n, push(&event(n)).err()?))).expect("it is refused")
}

#[test]
fn small_blocks_are_limited() {
    let (taken, error) = fill(&[start()], |n| block(n, json!({"type": "text", "text": ""})));
    assert_eq!((taken, &error), (10_000, &StreamError::TooMany { what: "content blocks", limit: 10_000 }));
}

/// The number of these deltas that a block takes.
fn accepted_deltas(body: &Value) -> usize {
    let empty = block(0, json!({"type": "text", "text": ""}));
    let (accepted, error) = fill(&[start(), empty], |_| delta(0, body.clone()));
    assert_eq!(error.to_string(), "the answer has more than 100000 citations and unknown deltas");
    accepted
}

#[test]
fn citations_are_limited() {
    assert_eq!(accepted_deltas(&json!({"type": "citations_delta", "citation": 1})), 100_000);
}

#[test]
fn unknown_deltas_are_limited() {
    assert_eq!(accepted_deltas(&json!({"type": "of_next_year"})), 100_000);
    let fields: serde_json::Map<String, Value> = (0..999).map(|n| (n.to_string(), json!(1))).collect();
    assert_eq!(accepted_deltas(&Value::Object(fields)), 100);
}

#[test]
fn a_block_list_is_parsed_up_to_the_block_limit() {
    let begin = |blocks: String| format!(r#"{{"type":"message_start","message":{{"content":[{blocks}]}}}}"#);
    let text = r#"{"type":"text","text":""}"#;
    let many = vec![text; 10_000].join(",");
    let (_, whole) = run_texts(&[begin(many.clone()), end("end_turn")[1].to_string()]);
    assert_eq!(whole.unwrap().unwrap().content.len(), 10_000);
    // What stands behind the limit is not even looked at.
    let event = format!(r#"{}{text}{text}"#, begin(many + ",").trim_end_matches("]}}"));
    let mut accumulator = MessageAccumulator::new();
    let error = accumulator.push(SseEvent { name: "message_start", data: &event }, |_| {}).unwrap_err();
    assert!(error.to_string().contains("more than 10000 content blocks"), "{error}");
}

proptest! {
    #[test]
    fn any_response_can_be_sent_back(events in proptest::collection::vec(any_event(), 0..30), begins in any::<bool>()) {
        let mut all = if begins { vec![start().to_string()] } else { vec![] };
        all.extend(events);
        all.extend(end("tool_use").iter().map(Value::to_string));
        if let (_, Ok(Some(answer))) = run_texts(&all) {
            for block in &answer.content {
                prop_assert!(Block::from_json(block.json()).is_ok());
                if let BlockKind::ToolUse(call) = block.kind() {
                    prop_assert!(call.input_value().is_object());
                }
            }
        }
    }

    #[test]
    fn any_byte_split_gives_the_same_response(
        events in proptest::collection::vec(any_event(), 0..12),
        size in 1usize..50,
    ) {
        let bytes: String = [start().to_string()].into_iter().chain(events)
            .chain(end("tool_use").iter().map(Value::to_string))
            .map(|data| format!("data: {data}\n\n")).collect();
        let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let (mut parser, mut accumulator, mut shown) = (SseParser::new(1 << 20), MessageAccumulator::new(), Vec::new());
            for piece in pieces {
                if let Err(error) = parser.push(piece, |event| accumulator.push(event, |event| shown.push(event))) {
                    let error: StreamError = error;
                    return (shown, Err(error));
                }
            }
            (shown, accumulator.finish())
        };
        prop_assert_eq!(
            read(&mut std::iter::once(bytes.as_bytes())),
            read(&mut bytes.as_bytes().chunks(size))
        );
    }
}
