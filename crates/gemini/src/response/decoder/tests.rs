use super::*;
use conjure_base::TurnId;
use conjure_conversation::{ApiErrorKind, Block, BlockKind, ModelApi, Origin, ToolDefinition, Usage};
use conjure_model_http::{RequestSize, SseParser, ToolNames};
use proptest::prelude::*;
use serde_json::{Value, json};

fn origin() -> Origin {
    Origin { api: ModelApi::Gemini, service: "gemini.example".to_owned(), model: "m".to_owned() }
}

fn sse(pieces: &[Value]) -> String {
    pieces.iter().map(|piece| format!("data: {piece}\r\n\r\n")).collect()
}

/// A piece with these parts.
fn parts(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}],
        "usageMetadata": {"promptTokenCount": 8, "candidatesTokenCount": 2, "totalTokenCount": 10},
        "modelVersion": "m-001", "responseId": "r1"})
}

/// The last piece, with this reason.
fn end(reason: &str) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": reason, "index": 0}]})
}

fn decoder() -> GeminiDecoder {
    GeminiDecoder::new(DecoderContext::new(origin()))
}

type Outcome = (Vec<ModelEvent>, Result<Option<Response>, StreamError>);

fn read_with(mut decoder: GeminiDecoder, chunks: &mut dyn Iterator<Item = &[u8]>) -> Outcome {
    let (mut parser, mut shown) = (SseParser::new(1 << 20), Vec::new());
    for chunk in chunks {
        let pushed = parser.push(chunk, |event| decoder.push(event, &mut |event| shown.push(event)));
        if let Err(error) = pushed {
            return (shown, Err(error));
        }
    }
    (shown, decoder.finish())
}

fn read(stream: &str) -> Outcome {
    read_with(decoder(), &mut std::iter::once(stream.as_bytes()))
}

fn answer(pieces: &[Value]) -> Response {
    read(&sse(pieces)).1.unwrap().unwrap()
}

fn items(response: &Response) -> Vec<&str> {
    let native = response.native.as_ref().unwrap();
    assert_eq!(native.origin, origin());
    native.items.iter().map(|item| item.json()).collect()
}

fn blocks(response: &Response) -> Vec<Value> {
    response.content.iter().map(|block| serde_json::from_str(block.json()).unwrap()).collect()
}

fn text(index: usize, text: &str) -> ModelEvent {
    ModelEvent::TextDelta { index, text: text.to_owned() }
}

#[test]
fn pieces_of_text_are_joined() {
    let stream = sse(&[
        parts(json!([{"text": "Let me ", "thought": true}])),
        parts(json!([{"thought": true, "text": "look."}])),
        parts(json!([{"text": "Fo"}, {"text": "ur\u{1F980}"}])),
        parts(json!([{"text": "."}])),
        end("STOP"),
    ]);
    let (shown, response) = read(&stream);
    let response = response.unwrap().unwrap();
    assert_eq!(
        blocks(&response),
        [
            json!({"type": "thinking", "thinking": "Let me look.", "signature": ""}),
            json!({"type": "text", "text": "Four\u{1F980}."}),
        ]
    );
    assert_eq!(
        items(&response),
        [r#"{"text":"Let me look.","thought":true}"#, "{\"text\":\"Four\u{1F980}.\"}"]
    );
    assert_eq!(response.stop_reason, StopReason::EndTurn);
    assert_eq!((response.id.as_deref(), response.model.as_deref()), (Some("r1"), Some("m-001")));
    let usage = Usage { input_tokens: 8, output_tokens: 2, ..Usage::default() };
    assert_eq!(response.usage, usage);
    let thinking = |text: &str| ModelEvent::ThinkingDelta { index: 0, text: text.to_owned() };
    let expected = [
        ModelEvent::UsageReported(usage),
        ModelEvent::Started,
        thinking("Let me "),
        thinking("look."),
        text(1, "Fo"),
        text(1, "ur\u{1F980}"),
        text(1, "."),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_part_with_a_signature_is_not_joined_and_an_empty_one_is_kept() {
    let response = answer(&[
        parts(json!([{"text": "One"}])),
        parts(json!([{"text": ", two", "thoughtSignature": "AAA="}])),
        parts(json!([{"text": ", three"}])),
        parts(json!([{"text": "."}])),
        json!({"candidates": [{"content": {"parts": [{"text": "", "thoughtSignature": "BBB="}]}, "finishReason": "STOP"}]}),
    ]);
    assert_eq!(
        items(&response),
        [
            r#"{"text":"One"}"#,
            r#"{"text":", two","thoughtSignature":"AAA="}"#,
            r#"{"text":", three."}"#,
            r#"{"text":"","thoughtSignature":"BBB="}"#,
        ]
    );
    // The text itself is one.
    assert_eq!(blocks(&response), [json!({"type": "text", "text": "One, two, three."})]);
}

#[test]
fn a_single_piece_keeps_its_bytes() {
    let stream = "data: {\"candidates\":[{\"content\":{\"parts\":[{ \"text\" : \"\\u00e9\" }]},\"finishReason\":\"STOP\"}]}\n\n";
    let response = read(stream).1.unwrap().unwrap();
    assert_eq!(items(&response), [r#"{ "text" : "\u00e9" }"#]);
    assert_eq!(blocks(&response), [json!({"type": "text", "text": "\u{e9}"})]);
}

#[test]
fn parallel_calls_in_several_pieces_are_one_answer() {
    let call = |name: &str, args: Value| json!({"functionCall": {"name": name, "args": args}});
    let mut first = call("weather", json!({"city": "Paris", "n": 1.50}));
    first["thoughtSignature"] = "c2ln".into();
    let stream = sse(&[
        parts(json!([first])),
        parts(json!([call("weather", json!({"city": "Rome"}))])),
        parts(
            json!([{"functionCall": {"name": "now"}}, {"functionCall": {"id": "f4", "name": "now", "args": null}}]),
        ),
        end("STOP"),
    ]);
    let (shown, response) = read(&stream);
    let response = response.unwrap().unwrap();
    assert_eq!(response.stop_reason, StopReason::ToolUse);
    let calls: Vec<_> = response.content.iter().map(|block| block.tool_call().unwrap().clone()).collect();
    assert_eq!(
        calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(),
        ["weather", "weather", "now", "now"]
    );
    assert_eq!(calls[0].input.get(), r#"{"city":"Paris","n":1.5}"#);
    assert_eq!(calls[2].input.get(), "{}");
    // The ids of the service, else ids that are always the same.
    assert_eq!(calls[3].id.as_str(), "f4");
    let ids = CallIds::new(TurnId::FIRST, 1);
    for (place, call) in calls[..3].iter().enumerate() {
        assert_eq!(call.id.as_str(), ids.id(Some("r1"), place));
    }
    assert_eq!(items(&response).len(), 4);
    assert!(
        items(&response)[0].contains("c2ln") && items(&response)[2] == r#"{"functionCall":{"name":"now"}}"#
    );
    assert_eq!(
        shown[2..4],
        [
            ModelEvent::ToolUseStarted { index: 0, name: "weather".to_owned() },
            ModelEvent::ToolInputDelta { index: 0, partial_json: r#"{"city":"Paris","n":1.5}"#.to_owned() },
        ]
    );
}

#[test]
fn names_of_tools_that_were_mapped_are_read_back() {
    let tool = ToolDefinition {
        name: "9lives".to_owned(),
        description: String::new(),
        input_schema: json!({"type": "object"}),
    };
    let wire = crate::tool_names::wire_name("9lives").into_owned();
    let stream = sse(&[parts(json!([{"functionCall": {"name": wire, "args": {}}}])), end("STOP")]);
    let decoder = GeminiDecoder::new(DecoderContext {
        tool_names: ToolNames::new(&[tool], crate::tool_names::wire_name),
        ..DecoderContext::new(origin())
    });
    let (shown, response) = read_with(decoder, &mut std::iter::once(stream.as_bytes()));
    let response = response.unwrap().unwrap();
    assert_eq!(response.content[0].tool_call().unwrap().name, "9lives");
    assert!(items(&response)[0].contains(&wire));
    assert!(shown.contains(&ModelEvent::ToolUseStarted { index: 0, name: "9lives".to_owned() }));
}

#[test]
fn arguments_that_are_no_object_do_not_go_back_as_they_are() {
    let response = answer(&[parts(json!([{"functionCall": {"name": "a", "args": "x"}}])), end("STOP")]);
    assert_eq!(response.content[0].tool_call().unwrap().invalid_input().as_deref(), Some("\"x\""));
    assert_eq!(response.native, None);
}

#[test]
fn a_call_that_cannot_be_run_is_an_error() {
    for call in [
        json!({"args": {}}),
        json!({"name": ""}),
        json!({"name": "a", "partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}], "willContinue": true}),
        json!({"name": 3}),
        json!("a"),
    ] {
        let (_, response) = read(&sse(&[parts(json!([{"functionCall": call}])), end("STOP")]));
        assert!(matches!(response, Err(StreamError::Protocol(_))), "{call}: {response:?}");
    }
}

#[test]
fn parts_that_only_the_service_reads_go_back_and_parts_without_data_do_not() {
    let code = json!({"executableCode": {"language": "PYTHON", "code": "1+1"}});
    let done = json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}});
    let (shown, response) = read(&sse(&[
        parts(
            json!([{"text": "So: "}, code, done, {"text": "Two."}, {}, {"thought": true}, null, {"text": ""}]),
        ),
        end("STOP"),
    ]));
    let response = response.unwrap().unwrap();
    assert_eq!(
        items(&response),
        [r#"{"text":"So: "}"#, code.to_string().as_str(), done.to_string().as_str(), r#"{"text":"Two."}"#]
    );
    // Two passages.
    let text_block = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(blocks(&response), [text_block("So: "), text_block("Two.")]);
    assert_eq!(shown[2..], [text(0, "So: "), text(1, "Two.")]);
}

#[test]
fn what_the_services_tools_did_counts_as_output() {
    let mut decoder = decoder();
    let mut shown = Vec::new();
    let piece = parts(json!([{"toolCall": {"toolType": "GOOGLE_SEARCH"}}])).to_string();
    decoder.push(SseEvent { name: "", data: &piece }, &mut |event| shown.push(event)).unwrap();
    assert_eq!(decoder.shown(), OutputShown::Something);
    assert_eq!(shown.last(), Some(&ModelEvent::Started));
}

#[test]
fn blank_text_creates_no_block() {
    let (shown, response) = read(&sse(&[
        parts(json!([{"text": "\n"}])),
        parts(json!([{"text": " "}])),
        parts(json!([{"functionCall": {"name": "a"}, "thoughtSignature": "AA=="}])),
        parts(json!([{"text": "\n"}])),
        parts(json!([{"text": "Hi"}])),
        parts(json!([{"text": " ", "thought": true}])),
        end("STOP"),
    ]));
    let response = response.unwrap().unwrap();
    let kinds: Vec<_> = response.content.iter().map(Block::kind).collect();
    assert!(matches!(kinds[..], [BlockKind::ToolUse(_), BlockKind::Text(_)]), "{kinds:?}");
    assert_eq!(shown[4], text(1, "\nHi"));
    assert_eq!(shown.len(), 5);
    assert_eq!(items(&response).len(), 4);
}

#[test]
fn filter_finish_reasons_are_refusals_with_the_reason() {
    for (reason, message, said) in [
        ("SAFETY", None, "[The service ended this answer: SAFETY]"),
        (
            "PROHIBITED_CONTENT",
            Some("Not this."),
            "[The service ended this answer: PROHIBITED_CONTENT: Not this.]",
        ),
    ] {
        let mut last = end(reason);
        last["candidates"][0]["finishMessage"] = message.into();
        // The service leaves the content out.
        last["candidates"][0].as_object_mut().unwrap().remove("content");
        let response = answer(&[parts(json!([{"text": "I "}])), last]);
        assert_eq!(response.stop_reason, StopReason::Refusal);
        assert_eq!(blocks(&response)[1], json!({"type": "text", "text": said}));
    }
}

#[test]
fn unknown_finish_reasons_are_kept() {
    let mut last = end("MALFORMED_FUNCTION_CALL");
    last["candidates"][0]["finishMessage"] = "Malformed function call: print(".into();
    let response = answer(&[last]);
    assert_eq!(response.stop_reason, StopReason::Unknown("MALFORMED_FUNCTION_CALL".to_owned()));
    let said = "[The service ended this answer: MALFORMED_FUNCTION_CALL: Malformed function call: print(]";
    assert_eq!(blocks(&response), [json!({"type": "text", "text": said})]);
    let cut = answer(&[parts(json!([{"text": "I "}])), end("MAX_TOKENS")]);
    assert_eq!(cut.stop_reason, StopReason::MaxTokens);
    assert_eq!(cut.content.len(), 1);
}

#[test]
fn a_blocked_prompt_is_a_refusal() {
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "safetyRatings": []},
        "usageMetadata": {"promptTokenCount": 7}, "modelVersion": "m-001"});
    let response = answer(&[blocked]);
    assert_eq!(response.stop_reason, StopReason::Refusal);
    let said = "[The service refused to answer: PROHIBITED_CONTENT]";
    assert_eq!(blocks(&response), [json!({"type": "text", "text": said})]);
    assert_eq!((response.usage.input_tokens, response.native), (7, None));
    // Feedback without a reason says nothing.
    let fine = json!({"promptFeedback": {"safetyRatings": []}});
    assert_eq!(
        answer(&[fine.clone(), parts(json!([{"text": "Hi"}])), end("STOP")]).stop_reason,
        StopReason::EndTurn
    );
    assert_eq!(read(&sse(&[fine])).1, Ok(None));
}

#[test]
fn an_answer_without_a_reason_is_cut() {
    assert_eq!(read("").1, Ok(None));
    assert_eq!(read(&sse(&[parts(json!([{"text": "Hi"}]))])).1, Ok(None));
    // As a gateway writes it while the answer runs.
    let mut piece = parts(json!([{"text": "Hi"}]));
    piece["candidates"][0]["finishReason"] = Value::Null;
    assert_eq!(read(&sse(&[piece.clone()])).1, Ok(None));
    assert!(read(&sse(&[piece, end("STOP")])).1.unwrap().is_some());
}

#[test]
fn data_after_the_finish_reason_still_counts() {
    let usage = json!({"usageMetadata": {"promptTokenCount": 9, "thoughtsTokenCount": 5}});
    let response = answer(&[
        parts(json!([{"text": "Hi"}])),
        end("STOP"),
        parts(json!([{"text": "", "thoughtSignature": "AA=="}])),
        usage,
    ]);
    assert_eq!((response.usage.input_tokens, response.usage.output_tokens), (9, 5));
    assert_eq!(items(&response).len(), 2);
    assert_eq!(response.stop_reason, StopReason::EndTurn);
}

#[test]
fn usage_is_estimated_where_the_service_reports_none() {
    let piece = json!({"candidates": [{"content": {"parts": [{"text": "12345678"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0}});
    let size = RequestSize { text_bytes: 400, images: 0 };
    let context = DecoderContext { size, ..DecoderContext::new(origin()) };
    let decoder = || GeminiDecoder::new(context.clone());
    let stream = sse(&[piece]);
    let (shown, response) = read_with(decoder(), &mut std::iter::once(stream.as_bytes()));
    let usage = response.unwrap().unwrap().usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (100, 2));
    assert_eq!(shown, [ModelEvent::Started, text(0, "12345678")]);
    // A reported usage corrects the next estimate.
    let mut reported = end("STOP");
    reported["usageMetadata"] = json!({"promptTokenCount": 200, "candidatesTokenCount": 1});
    let reported = sse(&[reported]);
    let _ = read_with(decoder(), &mut std::iter::once(reported.as_bytes()));
    let (_, response) = read_with(decoder(), &mut std::iter::once(stream.as_bytes()));
    let usage = response.unwrap().unwrap().usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (200, 4));
}

#[test]
fn an_answer_that_is_to_be_continued_keeps_its_token() {
    let mut last = end("CONTINUATION");
    last["candidates"][0]["continuationToken"] = "dG9r".into();
    let response = answer(&[parts(json!([{"text": "One, "}])), last.clone()]);
    assert_eq!(response.stop_reason, StopReason::PauseTurn);
    assert_eq!(items(&response), [r#"{"text":"One, "}"#, r#"{"continuationToken":"dG9r"}"#]);
    // Without a token, or with nothing to send back with it, it cannot be continued.
    let unknown = StopReason::Unknown("CONTINUATION".to_owned());
    let without = answer(&[parts(json!([{"text": "One, "}])), end("CONTINUATION")]);
    assert_eq!(without.stop_reason, unknown);
    assert_eq!(blocks(&without)[1]["text"], "[The service ended this answer: CONTINUATION]");
    assert_eq!(answer(&[last.clone()]).stop_reason, unknown);
    // A token in mid-answer is of no use once the answer is complete.
    last["candidates"][0]["finishReason"] = Value::Null;
    let complete = answer(&[parts(json!([{"text": "One"}])), last, end("STOP")]);
    assert_eq!(items(&complete), [r#"{"text":"One"}"#]);
}

#[test]
fn errors_in_the_stream_are_the_services() {
    let body =
        json!({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}});
    let gateway = json!({"error": {"message": "The model is overloaded.", "type": "x", "code": "503"}});
    for stream in [
        sse(&[parts(json!([{"text": "Hi"}])), body.clone()]),
        sse(&[json!([body])]),
        sse(&[gateway]),
        format!("event: error\ndata: {body}\n\n"),
        format!("event: error\ndata: {}\n\n", body["error"]),
    ] {
        let Err(StreamError::Service(error)) = read(&stream).1 else { panic!("{stream}") };
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ApiErrorKind::Overloaded, "The model is overloaded.")
        );
    }
    let Err(StreamError::Service(error)) = read("event: error\ndata: out of memory\n\n").1 else { panic!() };
    assert_eq!((error.kind, error.message.as_str()), (ApiErrorKind::Api, "out of memory"));
}

#[test]
fn invalid_answers_are_errors_and_empty_ones_are_skipped() {
    for data in
        ["{", "3", "[3]", "\"x\"", r#"{"candidates":3}"#, r#"{"candidates":[{"content":{"parts":[3]}}]}"#]
    {
        let (_, response) = read(&format!("data: {data}\n\n"));
        assert!(matches!(response, Err(StreamError::Protocol(_))), "{data}: {response:?}");
    }
    let (_, response) = read(&format!(
        ": ping\n\ndata: {{}}\n\ndata:\n\ndata: {{\"candidates\":[],\"next\":1}}\n\ndata: {{\"candidates\":null}}\n\n{}data: [DONE]\n\n",
        sse(&[parts(json!([{"text": "Hi"}])), end("STOP")])
    ));
    assert_eq!(blocks(&response.unwrap().unwrap()), [json!({"type": "text", "text": "Hi"})]);
}

#[test]
fn only_the_first_candidate_is_the_answer() {
    let second =
        json!({"candidates": [{"index": 1, "content": {"parts": [{"text": "No"}]}, "finishReason": "STOP"}]});
    let response = answer(&[parts(json!([{"text": "Yes"}])), second, end("STOP")]);
    assert_eq!(blocks(&response), [json!({"type": "text", "text": "Yes"})]);
}

#[test]
fn an_answer_has_a_limit_of_parts() {
    let signed = json!({"text": "a", "thoughtSignature": "AA=="});
    let (_, response) = read(&sse(&[parts(Value::from(vec![signed; MAX_PARTS + 1]))]));
    assert_eq!(response, Err(StreamError::TooMany { what: "parts", limit: MAX_PARTS }));
}

#[test]
fn an_unstreamed_answer_is_parsed_alike() {
    let mut piece = parts(json!([{"text": "Hi"}]));
    piece["candidates"][0]["finishReason"] = "STOP".into();
    let whole = |body: &Value| {
        let mut decoder = decoder();
        decoder.push_json(&body.to_string(), &mut |_| {}).and_then(|()| decoder.finish())
    };
    assert_eq!(whole(&piece), Ok(Some(answer(&[piece.clone()]))));
    // As it comes without `alt=sse`.
    assert_eq!(whole(&json!([parts(json!([{"text": "H"}])), piece])).unwrap().unwrap().content.len(), 1);
    assert_eq!(whole(&json!({})), Ok(None));
    assert!(whole(&json!({"error": {"message": "no"}})).unwrap_err().to_string().ends_with("no"));
}

/// What LiteLLM 1.108.7 streamed in front of a llama.cpp server: no ids, no signatures, no version, and reasons that are null on the way.
#[test]
fn the_stream_of_a_gateway_is_read() {
    let (shown, response) = read(include_str!("litellm.sse"));
    let response = response.unwrap().unwrap();
    assert_eq!(response.stop_reason, StopReason::ToolUse);
    assert_eq!((response.usage.input_tokens, response.usage.output_tokens), (402, 22));
    assert_eq!((&response.id, &response.model), (&None, &None));
    let ids = CallIds::new(TurnId::FIRST, 1);
    let call = |place: usize, command: &str| json!({"type": "tool_use", "id": ids.id(None, place), "name": "bash", "input": {"command": command}});
    let text = json!({"type": "text", "text": "I will run it.\n"});
    assert_eq!(blocks(&response), [text, call(0, "echo hello"), call(1, "date")]);
    assert_eq!(
        items(&response),
        [
            r#"{"text":"I will run it.\n"}"#,
            r#"{"functionCall": {"name": "bash", "args": {"command": "echo hello"}}}"#,
            r#"{"functionCall": {"name": "bash", "args": {"command": "date"}}}"#,
        ]
    );
    assert_eq!(shown.last(), Some(&ModelEvent::UsageReported(response.usage)));
}

fn any_part() -> impl Strategy<Value = Value> {
    let text = "[a-zé🦀 \n\"\\\\]{0,6}";
    prop_oneof![
        (text, any::<bool>()).prop_map(|(text, thought)| json!({"text": text, "thought": thought})),
        text.prop_map(|text| json!({"text": text})),
        (text, "[A-Z]{0,4}").prop_map(|(text, sign)| json!({"text": text, "thoughtSignature": sign})),
        (text, "[a-c]{1,2}")
            .prop_map(|(text, name)| json!({"functionCall": {"name": name, "args": {"x": text}}, "thoughtSignature": "AA=="})),
        Just(json!({"executableCode": {"code": "1"}})),
        Just(json!({})),
    ]
}

proptest! {
    /// Any split of any stream gives the same answer; what goes back is what came, in order.
    #[test]
    fn any_split_of_the_stream_gives_the_same_answer(
        pieces in proptest::collection::vec(proptest::collection::vec(any_part(), 0..4), 0..6),
        size in 1usize..50,
    ) {
        let mut all: Vec<Value> = pieces.iter().map(|piece| parts(Value::from(piece.clone()))).collect();
        all.push(end("STOP"));
        let stream = sse(&all);
        let whole = read(&stream);
        let split = read_with(decoder(), &mut stream.as_bytes().chunks(size));
        prop_assert_eq!(&whole, &split);
        let response = whole.1.unwrap().unwrap();
        let came: String = pieces.iter().flatten().filter_map(|part| part["text"].as_str()).collect();
        let native = response.native.iter().flat_map(|native| &native.items);
        let parsed: Vec<Value> = native.map(|item| serde_json::from_str(item.json()).unwrap()).collect();
        let back: String = parsed.iter().filter_map(|part| part["text"].as_str()).collect();
        prop_assert_eq!(back, came);
        // The deltas are the blocks.
        let mut shown: Vec<String> = Vec::new();
        for event in whole.0 {
            if let ModelEvent::TextDelta { index, text } | ModelEvent::ThinkingDelta { index, text } = event {
                shown.resize((index + 1).max(shown.len()), String::new());
                shown[index].push_str(&text);
            }
        }
        for (index, block) in response.content.iter().enumerate() {
            if let BlockKind::Text(text) | BlockKind::Thinking(text) = block.kind() {
                prop_assert_eq!(text, &shown[index]);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_with(decoder(), &mut std::iter::once(bytes.as_slice()));
    }

    #[test]
    fn arbitrary_data_never_panics(data in "[{}\\[\\]:,\"a-z0-9candidtespr.\\\\ ]{0,80}") {
        let _ = read(&format!("data: {data}\n\n"));
        let _ = read(&format!("data: {{\"candidates\":[{{\"content\":{{\"parts\":[{data}]}}}}]}}\n\n"));
    }
}
