use std::time::Duration;

use futures_util::StreamExt as _;
use proptest::prelude::*;

use super::model;
use super::{answer, events, first_message, request, script_error};
use crate::scripted::model::stream_deltas;
use crate::scripted::{Script, ScriptFormat, ScriptedModel};
use crate::{ApiErrorKind, Block, BlockKind, Model as _, ModelErrorKind, ModelEvent, StopReason, Usage};

#[tokio::test]
async fn every_kind_of_block_is_played_as_written() {
    let raw = r#"{ "type":"server_tool_use", "id":"s1", "n": 1.0 , "input":{} }"#;
    let model = model(&format!(
        "version: 1\nname: n\nturns:\n- id: msg_1\n  model: m\n  request_id: req_1\n  usage: {{input_tokens: 5, output_tokens: 7}}\n  \
         content:\n  - plain\n  - text: words\n  - thinking: hm\n    signature: sig\n  - tool_use: {{name: view, input: {{path: /x}}}}\n  \
         - tool_use: {{name: t, id: own}}\n  - raw: '{raw}'\n"
    ));
    let response = answer(&model, request(vec![first_message()])).await;
    let json: Vec<&str> = response.content.iter().map(Block::json).collect();
    assert_eq!(
        json,
        [
            r#"{"type":"text","text":"plain"}"#,
            r#"{"type":"text","text":"words"}"#,
            r#"{"type":"thinking","thinking":"hm","signature":"sig"}"#,
            r#"{"type":"tool_use","id":"toolu_script_1","name":"view","input":{"path":"/x"}}"#,
            r#"{"type":"tool_use","id":"own","name":"t","input":{}}"#,
            raw,
        ]
    );
    assert_eq!(response.stop_reason, StopReason::ToolUse);
    assert_eq!(response.usage, Usage { input_tokens: 5, output_tokens: 7, ..Usage::default() });
    assert_eq!(response.id.as_deref(), Some("msg_1"));
    assert_eq!(response.model.as_deref(), Some("m"));
    assert_eq!(response.request_id.as_deref(), Some("req_1"));
    assert_eq!((model.script().name(), model.script().len()), (Some("n"), 1));
}

#[tokio::test]
async fn the_stop_reason_follows_from_the_content_unless_set() {
    for (turn, expected) in [
        ("content: a", StopReason::EndTurn),
        ("content: []", StopReason::EndTurn),
        ("content: [{tool_use: {name: t}}]", StopReason::ToolUse),
        (r#"content: [{raw: '{"type":"tool_use","id":"i","name":"t","input":{}}'}]"#, StopReason::ToolUse),
        ("content: [{tool_use: {name: t}}]\n  stop_reason: max_tokens", StopReason::MaxTokens),
        ("content: a\n  stop_reason: null", StopReason::Missing),
        ("content: a\n  stop_reason: tired", StopReason::Unknown("tired".to_owned())),
    ] {
        let model = model(&format!("version: 1\nturns:\n- {turn}\n"));
        assert_eq!(answer(&model, request(vec![first_message()])).await.stop_reason, expected, "{turn}");
    }
}

#[tokio::test]
async fn a_response_arrives_in_chunks() {
    let model =
        model("version: 1\nturns: [{content: [abcdef, {tool_use: {name: t, input: {a: 1}}}], pieces: 2}]");
    let events: Vec<_> =
        events(&model, request(vec![first_message()])).await.into_iter().map(Result::unwrap).collect();
    let text = |text: &str| ModelEvent::TextDelta { index: 0, text: text.to_owned() };
    let input = |json: &str| ModelEvent::ToolInputDelta { index: 1, partial_json: json.to_owned() };
    assert_eq!(
        events[..6],
        [
            ModelEvent::Started,
            text("abc"),
            text("def"),
            ModelEvent::ToolUseStarted { index: 1, name: "t".to_owned() },
            input(r#"{"a""#),
            input(":1}"),
        ]
    );
    assert!(matches!(events[6], ModelEvent::Finished(_)) && events.len() == 7);
}

#[tokio::test]
async fn turns_play_in_order_and_a_call_after_the_last_fails() {
    let model = model("version: 1\nturns: [{content: one}, {content: two}]");
    let texts = [
        answer(&model, request(vec![first_message()])).await,
        answer(&model, request(vec![first_message()])).await,
    ];
    assert_eq!(texts.map(|response| response.content[0].clone()), [Block::text("one"), Block::text("two")]);
    let message = script_error(&model, request(vec![first_message()])).await;
    assert!(
        message.contains("test.yaml") && message.contains("2 turns") && message.contains("number 3"),
        "{message}"
    );
    assert_eq!(model.position(), 3);
}

#[tokio::test]
async fn a_revived_session_continues_with_the_same_ids() {
    let yaml = "version: 1\nturns: [{content: [{tool_use: {name: a}}]}, {content: [{tool_use: {name: b}}]}]";
    let model = model(yaml).starting_at(1);
    let response = answer(&model, request(vec![first_message()])).await;
    assert_eq!(response.content[0].tool_call().unwrap().id.as_str(), "toolu_script_2");
}

#[tokio::test]
async fn an_unpolled_call_consumes_no_turn_and_an_abandoned_one_does() {
    let model = model("version: 1\nturns: [{content: one}, {content: two}]");
    drop(model.stream(request(vec![first_message()])));
    assert_eq!(model.position(), 0);
    assert_eq!(model.stream(request(vec![first_message()])).next().await, Some(Ok(ModelEvent::Started)));
    assert_eq!(model.position(), 1);
    assert_eq!(answer(&model, request(vec![first_message()])).await.content[0], Block::text("two"));
}

#[tokio::test]
async fn a_call_fails_before_it_begins_or_in_mid_stream() {
    let model = model(
        "version: 1\nturns:\n- error: {type: overloaded_error, message: busy, retry_after_ms: 1500, request_id: r}\n\
         - content: abcd\n  error: {type: connection, after_pieces: 2}\n- error: {type: 'unknown:new_error'}\n",
    );
    let first = events(&model, request(vec![first_message()])).await;
    let [Err(error)] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!(error.kind, ModelErrorKind::Api(ApiErrorKind::Overloaded));
    assert_eq!((error.message.as_str(), error.request_id.as_deref()), ("busy", Some("r")));
    assert_eq!(error.retry_after, Some(Duration::from_millis(1500)));

    let second = events(&model, request(vec![first_message()])).await;
    let text = |text: &str| Ok(ModelEvent::TextDelta { index: 0, text: text.to_owned() });
    assert_eq!(second[..3], [Ok(ModelEvent::Started), text("a"), text("b")]);
    assert!(matches!(&second[3..], [Err(error)] if error.kind == ModelErrorKind::Connection), "{second:?}");

    let third = events(&model, request(vec![first_message()])).await;
    let unknown = ModelErrorKind::Api(ApiErrorKind::Unknown("new_error".to_owned()));
    assert!(matches!(&third[..], [Err(error)] if error.kind == unknown), "{third:?}");
}

#[tokio::test]
async fn a_cut_stream_ends_without_an_answer() {
    let model = model(
        "version: 1\nturns: [{content: abcd, cut_after: 3}, {content: abcd, cut_after: 0}, {cut_after: 9}]",
    );
    for expected in [4, 1, 1] {
        let events = events(&model, request(vec![first_message()])).await;
        assert_eq!(events.len(), expected, "{events:?}");
        assert!(events.iter().all(|event| !matches!(event, Ok(ModelEvent::Finished(_)) | Err(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_passes_on_the_clock_before_the_first_event() {
    let model = model("version: 1\nturns: [{content: a, delay_ms: 60000}]");
    let mut stream = model.stream(request(vec![first_message()]));
    let early = tokio::time::timeout(Duration::from_millis(59_999), stream.next()).await;
    assert!(early.is_err(), "it began too early: {early:?}");
    let result = tokio::time::timeout(Duration::from_millis(2), stream.next()).await;
    assert_eq!(result.ok().flatten(), Some(Ok(ModelEvent::Started)));
}

#[tokio::test]
async fn json_scripts_equal_yaml_scripts() {
    let json = r#"{"version": 1, "turns": [{"content": ["a", {"tool_use": {"name": "t", "input": {"z": 1, "a": "{{user}}"}}}], "stop_reason": null}]}"#;
    let of = |format| ScriptedModel::new(Script::from_text(json, format, "x").unwrap());
    let from_json = answer(&of(ScriptFormat::Json), request(vec![first_message()])).await;
    let from_yaml = answer(&of(ScriptFormat::Yaml), request(vec![first_message()])).await;
    assert_eq!(from_json, from_yaml);
    assert_eq!(from_json.stop_reason, StopReason::Missing);
}

proptest! {
    #[test]
    fn the_joined_chunks_equal_the_response(texts in prop::collection::vec(("[a-c]", any::<String>()), 0..6), pieces in 1_usize..50) {
        let blocks: Vec<Block> = texts
            .iter()
            .map(|(kind, text)| match kind.as_str() {
                "a" => Block::text(text.as_str()),
                "b" => Block::from_json(serde_json::json!({"type": "thinking", "thinking": text}).to_string()).unwrap(),
                _ => Block::from_json(
                    serde_json::json!({"type": "tool_use", "id": "i", "name": "t", "input": {"k": text}}).to_string(),
                )
                .unwrap(),
            })
            .collect();
        let mut joined = vec![String::new(); blocks.len()];
        let mut counts = vec![0; blocks.len()];
        for event in stream_deltas(&blocks, pieces) {
            let (index, piece) = match event {
                ModelEvent::TextDelta { index, text } | ModelEvent::ThinkingDelta { index, text } => (index, text),
                ModelEvent::ToolInputDelta { index, partial_json } => (index, partial_json),
                ModelEvent::ToolUseStarted { .. } => continue,
                other => panic!("{other:?}"),
            };
            prop_assert!(!piece.is_empty());
            joined[index].push_str(&piece);
            counts[index] += 1;
        }
        for (index, block) in blocks.iter().enumerate() {
            let whole = match block.kind() {
                BlockKind::Text(text) | BlockKind::Thinking(text) => text.as_str(),
                BlockKind::ToolUse(call) => call.input.get(),
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(&joined[index], whole);
            prop_assert!(counts[index] <= pieces);
        }
    }
}
