//! Finishes a tool call's input, so that it is always a JSON object.
//!
//! The next request must contain an object, or most services refuse the whole history:
//!
//! - An object is kept to the byte.
//! - Without deltas, the input of the block's start is used, usually `{}`.
//! - A partial object in a cut response, whose tools never run, is closed after its last complete member, as the official SDK does.
//! - Anything else becomes `{"INVALID_JSON": "the text"}`, the form that the Messages API documents. Such a call must not run.
//!   [`ToolCall::invalid_input`](conjure_conversation::ToolCall::invalid_input) detects it, in a stored block too.

use conjure_conversation::INVALID_JSON;
use serde_json::{Map, Value};

use crate::stream::raw_object::quoted;

/// How a call's input ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputCompletion {
    /// The block was closed, and the response is complete.
    Complete,
    /// The response was cut; its tools do not run.
    Cut,
    /// The block was not closed, although the response is complete.
    Unclosed,
}

/// Returns the input object for the text that the model wrote.
#[must_use]
pub fn finish_input(written: &str, end: InputCompletion) -> String {
    let trimmed = written.trim();
    let object = match end {
        InputCompletion::Complete => is_object(trimmed).then(|| trimmed.to_owned()),
        InputCompletion::Cut if is_object(trimmed) => Some(trimmed.to_owned()),
        InputCompletion::Cut => close_partial_object(trimmed),
        InputCompletion::Unclosed => None,
    };
    object.unwrap_or_else(|| format!(r#"{{"{INVALID_JSON}":{}}}"#, quoted(written)))
}

/// Whether it is a JSON object within the parser's nesting limit.
#[must_use]
pub fn is_object(json: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(json).is_ok()
}

/// Closes a partial object after its last complete member.
fn close_partial_object(json: &str) -> Option<String> {
    let bytes = json.as_bytes();
    let mut open: Vec<u8> = Vec::new();
    // The text up to here is complete, except for the brackets in `open`.
    let mut safe = 0;
    let mut is_key = false;
    let mut position = 0;
    while let Some(byte) = bytes.get(position) {
        match byte {
            b'{' | b'[' => {
                open.push(if *byte == b'{' { b'}' } else { b']' });
                is_key = *byte == b'{';
                position += 1;
                safe = position;
            }
            b'}' | b']' => {
                if open.pop() != Some(*byte) {
                    return None;
                }
                is_key = false;
                position += 1;
                safe = position;
            }
            b':' => {
                is_key = false;
                position += 1;
            }
            b',' => {
                is_key = open.last() == Some(&b'}');
                position += 1;
            }
            b' ' | b'\t' | b'\n' | b'\r' => position += 1,
            _ => {
                let end = position + token_len(&bytes[position..]);
                let is_value =
                    json.get(position..end).is_some_and(|token| serde_json::from_str::<Value>(token).is_ok());
                position = end;
                if is_value && !is_key {
                    safe = end;
                }
            }
        }
    }
    let mut text = json.get(..safe)?.to_owned();
    text.extend(open.iter().rev().map(|bracket| char::from(*bracket)));
    is_object(&text).then_some(text)
}

/// The length of the first string, number or word; at least 1.
fn token_len(bytes: &[u8]) -> usize {
    if bytes.first() == Some(&b'"') {
        let mut escaped = false;
        for (position, byte) in bytes.iter().enumerate().skip(1) {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => return position + 1,
                _ => {}
            }
        }
        return bytes.len();
    }
    let is_end = |byte: &u8| {
        matches!(byte, b'{' | b'}' | b'[' | b']' | b':' | b',' | b'"') || byte.is_ascii_whitespace()
    };
    bytes.iter().position(is_end).unwrap_or(bytes.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(written: &str, end: InputCompletion, expected: &str) {
        assert_eq!(finish_input(written, end), expected, "of {written:?} with {end:?}");
    }

    #[test]
    fn a_complete_object_keeps_its_bytes() {
        let input = r#"{"b": 1.50, "a":"\u00e9",  "b2":[ 1 ]}"#;
        check(input, InputCompletion::Complete, input);
        check(input, InputCompletion::Cut, input);
    }

    #[test]
    fn invalid_input_is_wrapped() {
        check(r#"{"a": "#, InputCompletion::Complete, r#"{"INVALID_JSON":"{\"a\": "}"#);
        check("[1]", InputCompletion::Complete, r#"{"INVALID_JSON":"[1]"}"#);
        check("[1", InputCompletion::Cut, r#"{"INVALID_JSON":"[1"}"#);
        check("{\"a\":1}}", InputCompletion::Cut, r#"{"INVALID_JSON":"{\"a\":1}}"}"#);
        check("{}", InputCompletion::Unclosed, r#"{"INVALID_JSON":"{}"}"#);
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
        check(&deep, InputCompletion::Complete, &format!(r#"{{"INVALID_JSON":{}}}"#, quoted(&deep)));
    }

    /// The expected values are what the SDK's parser (`jiter`, partial mode) makes of the same texts.
    #[test]
    fn a_cut_object_is_closed_after_its_last_complete_member() {
        for (written, expected) in [
            ("{", "{}"),
            (r#"{"a"#, "{}"),
            (r#"{"a":"#, "{}"),
            (r#"{"a":1"#, r#"{"a":1}"#),
            (r#"{"a":12,"b":"x"#, r#"{"a":12}"#),
            (r#"{"a":"x""#, r#"{"a":"x"}"#),
            (r#"{"a":"b" , "c" : "#, r#"{"a":"b"}"#),
            (r#"{"a":[1,2."#, r#"{"a":[1]}"#),
            (r#"{"a":[true,fals"#, r#"{"a":[true]}"#),
            (r#"{"a":{"b":[{"c":1},{"d":"e"#, r#"{"a":{"b":[{"c":1},{}]}}"#),
            (r#"{"a":"\u12"#, "{}"),
            (r#"{"a":"\"#, "{}"),
            (r#"{"a":nul"#, "{}"),
            (r#"{"a":null"#, r#"{"a":null}"#),
        ] {
            check(written, InputCompletion::Cut, expected);
        }
    }

    proptest! {
        #[test]
        fn every_prefix_of_an_object_gives_an_object(
            words in proptest::collection::vec(("[a-z\"\\\\é]{0,6}", any::<i32>()), 0..6),
            cut in 1usize..200,
        ) {
            let value = Value::from_iter(words.into_iter().map(|(k, v)| (k.clone(), serde_json::json!([v, k, {"x": v}]))));
            let value = if value.is_object() { value } else { serde_json::json!({}) };
            let json = value.to_string();
            let mut cut = cut.min(json.len());
            while !json.is_char_boundary(cut) { cut -= 1; }
            prop_assert!(close_partial_object(&json[..cut]).is_some(), "{}", &json[..cut]);
        }

        #[test]
        fn any_text_gives_an_object(written in "[{}\\[\\]:,\"a1e.\\\\ tn-]{0,40}|\\PC{0,20}") {
            for end in [InputCompletion::Complete, InputCompletion::Cut, InputCompletion::Unclosed] {
                prop_assert!(is_object(&finish_input(&written, end)));
            }
        }
    }
}
