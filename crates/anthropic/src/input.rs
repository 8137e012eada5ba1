//! What becomes of a tool call's input: the JSON that the model wrote, or one that says that it is none.
//!
//! The next request must hold a JSON object there, whatever the model wrote, or the service refuses the whole
//! history. So:
//!
//! - an object is kept to the byte;
//! - nothing at all is the input that the block began with, usually `{}`;
//! - the beginning of an object in an answer that was cut, whose tools never run, is closed after its last
//!   complete member, as the official SDK does;
//! - anything else becomes `{"INVALID_JSON": "what it wrote"}`, the form that the service documents for this.
//!   Such a call must not run: [`ToolCall::invalid_input`](conjure_conversation::ToolCall::invalid_input) tells it, also
//!   after the block was stored and read again.

use conjure_conversation::INVALID_JSON;
use serde_json::{Map, Value};

use crate::fields::quoted;

/// How a call's input came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputEnd {
    /// The block was closed, and the answer is whole.
    Whole,
    /// The answer was cut: no tool of it runs.
    Cut,
    /// The block was never closed, in an answer that calls itself whole.
    Unclosed,
}

/// The input's JSON object, of what the model wrote.
pub(crate) fn settle(written: &str, end: InputEnd) -> String {
    let trimmed = written.trim();
    let kept = match end {
        InputEnd::Whole => is_object(trimmed).then(|| trimmed.to_owned()),
        InputEnd::Cut if is_object(trimmed) => Some(trimmed.to_owned()),
        InputEnd::Cut => complete(trimmed),
        InputEnd::Unclosed => None,
    };
    kept.unwrap_or_else(|| format!(r#"{{"{INVALID_JSON}":{}}}"#, quoted(written)))
}

/// Whether this is an object that every reader of the history can read: JSON, and not nested beyond measure.
pub(crate) fn is_object(json: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(json).is_ok()
}

/// The object that `json` is the beginning of, closed after its last complete member.
fn complete(json: &str) -> Option<String> {
    let bytes = json.as_bytes();
    let mut open: Vec<u8> = Vec::new();
    // Up to here the text is complete, but for the brackets in `open`.
    let mut safe = 0;
    let mut is_key = false;
    let mut place = 0;
    while let Some(byte) = bytes.get(place) {
        match byte {
            b'{' | b'[' => {
                open.push(if *byte == b'{' { b'}' } else { b']' });
                is_key = *byte == b'{';
                place += 1;
                safe = place;
            }
            b'}' | b']' => {
                if open.pop() != Some(*byte) {
                    return None;
                }
                is_key = false;
                place += 1;
                safe = place;
            }
            b':' => {
                is_key = false;
                place += 1;
            }
            b',' => {
                is_key = open.last() == Some(&b'}');
                place += 1;
            }
            b' ' | b'\t' | b'\n' | b'\r' => place += 1,
            _ => {
                let end = place + token_len(&bytes[place..]);
                let is_value =
                    json.get(place..end).is_some_and(|token| serde_json::from_str::<Value>(token).is_ok());
                place = end;
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

/// The length of the string, number or word at the beginning; at least 1.
fn token_len(bytes: &[u8]) -> usize {
    if bytes.first() == Some(&b'"') {
        let mut escaped = false;
        for (place, byte) in bytes.iter().enumerate().skip(1) {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => return place + 1,
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

    fn check(written: &str, end: InputEnd, expected: &str) {
        assert_eq!(settle(written, end), expected, "of {written:?} with {end:?}");
    }

    #[test]
    fn an_object_is_kept_to_the_byte_however_the_answer_ended() {
        let input = r#"{"b": 1.50, "a":"\u00e9",  "b2":[ 1 ]}"#;
        check(input, InputEnd::Whole, input);
        check(input, InputEnd::Cut, input);
    }

    #[test]
    fn what_is_no_object_is_wrapped() {
        check(r#"{"a": "#, InputEnd::Whole, r#"{"INVALID_JSON":"{\"a\": "}"#);
        check("[1]", InputEnd::Whole, r#"{"INVALID_JSON":"[1]"}"#);
        check("[1", InputEnd::Cut, r#"{"INVALID_JSON":"[1"}"#);
        check("{\"a\":1}}", InputEnd::Cut, r#"{"INVALID_JSON":"{\"a\":1}}"}"#);
        check("{}", InputEnd::Unclosed, r#"{"INVALID_JSON":"{}"}"#);
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
        check(&deep, InputEnd::Whole, &format!(r#"{{"INVALID_JSON":{}}}"#, quoted(&deep)));
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
            check(written, InputEnd::Cut, expected);
        }
    }

    proptest! {
        #[test]
        fn every_cut_of_an_object_gives_an_object(
            words in proptest::collection::vec(("[a-z\"\\\\é]{0,6}", any::<i32>()), 0..6),
            cut in 1usize..200,
        ) {
            let value = Value::from_iter(words.into_iter().map(|(k, v)| (k.clone(), serde_json::json!([v, k, {"x": v}]))));
            let value = if value.is_object() { value } else { serde_json::json!({}) };
            let json = value.to_string();
            let mut cut = cut.min(json.len());
            while !json.is_char_boundary(cut) { cut -= 1; }
            prop_assert!(complete(&json[..cut]).is_some(), "{}", &json[..cut]);
        }

        #[test]
        fn whatever_was_written_an_object_comes_out(written in "[{}\\[\\]:,\"a1e.\\\\ tn-]{0,40}|\\PC{0,20}") {
            for end in [InputEnd::Whole, InputEnd::Cut, InputEnd::Unclosed] {
                prop_assert!(is_object(&settle(&written, end)));
            }
        }
    }
}
