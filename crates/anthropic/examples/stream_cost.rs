//! What reading one streamed answer costs: 200 events, parsed and accumulated, without the network.
//!
//! `cargo run --release -p conjure-anthropic --example stream_cost`
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement for people, by the machine's clock"
)]

use conjure_anthropic::{MessageAccumulator, SseParser, StreamError};

fn main() {
    let mut stream = String::new();
    let mut add = |name: &str, data: &str| stream.push_str(&format!("event: {name}\ndata: {data}\n\n"));
    add(
        "message_start",
        r#"{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":2000,"cache_creation_input_tokens":0,"cache_read_input_tokens":1500,"output_tokens":1}}}"#,
    );
    add(
        "content_block_start",
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    );
    for n in 0..150 {
        let text = format!(" word{n} and some more of it");
        add(
            "content_block_delta",
            &format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}"#
            ),
        );
    }
    add("content_block_stop", r#"{"type":"content_block_stop","index":0}"#);
    add(
        "content_block_start",
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_01","name":"bash_tool","input":{}}}"#,
    );
    add(
        "content_block_delta",
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"command\": \""}}"#,
    );
    for n in 0..40 {
        add(
            "content_block_delta",
            &format!(
                r#"{{"type":"content_block_delta","index":1,"delta":{{"type":"input_json_delta","partial_json":"echo {n} && "}}}}"#
            ),
        );
    }
    add(
        "content_block_delta",
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"}"}}"#,
    );
    add("content_block_stop", r#"{"type":"content_block_stop","index":1}"#);
    add(
        "message_delta",
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":400}}"#,
    );
    add("message_stop", r#"{"type":"message_stop"}"#);
    let events = stream.matches("data: ").count();

    for size in [stream.len(), 1400, 150] {
        let rounds = 20_000u32;
        let started = std::time::Instant::now();
        for _ in 0..rounds {
            let (mut parser, mut accumulator, mut shown) =
                (SseParser::new(1 << 20), MessageAccumulator::new(), 0u32);
            for piece in stream.as_bytes().chunks(size) {
                parser
                    .push(piece, |event| -> Result<(), StreamError> {
                        accumulator.push(event, |_| shown += 1)
                    })
                    .unwrap();
            }
            assert!(accumulator.finish().unwrap().is_some() && shown > 190);
        }
        let each = started.elapsed() / rounds;
        println!("{events} events, {} bytes in pieces of {size}: {each:?} each", stream.len());
    }
}
