//! Writes the canonical blocks of an answer, and finishes the arguments of its calls.

use conjure_conversation::Block;
use conjure_model_http::{InputCompletion, finish_input, is_object, quoted};

/// A `thinking` block. Its signature is not needed, because these services sign their reasoning in the native form, if at all.
pub(crate) fn thinking_block(text: &str) -> Result<Block, String> {
    block(format!(r#"{{"type":"thinking","thinking":{},"signature":""}}"#, quoted(text)))
}

/// A `tool_use` block with finished arguments.
pub(crate) fn call_block(id: &str, name: &str, arguments: &str) -> Result<Block, String> {
    block(format!(
        r#"{{"type":"tool_use","id":{},"name":{},"input":{}}}"#,
        quoted(id),
        quoted(name),
        arguments.trim()
    ))
}

fn block(json: String) -> Result<Block, String> {
    Block::from_json(json).map_err(|error| error.to_string())
}

/// Returns the arguments of a call as a JSON object.
///
/// - An object is kept as the model wrote it.
/// - Missing arguments become an empty object.
/// - Anything else becomes an object that holds the text and marks it as invalid. The service's own form of the call gets the same
///   object, because servers refuse a history with arguments that are not JSON.
pub(crate) fn finish_arguments(written: &str, end: InputCompletion) -> String {
    if is_object(written) {
        return written.to_owned();
    }
    match written.trim() {
        "" | "null" => "{}".to_owned(),
        _ => finish_input(written, end),
    }
}

/// Whether the arguments of a call are a JSON object or are missing.
pub(crate) fn are_complete_arguments(written: &str) -> bool {
    matches!(written.trim(), "" | "null") || is_object(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_always_an_object() {
        let check = |written: &str, end, expected: &str| {
            assert_eq!(finish_arguments(written, end), expected, "{written}");
        };
        use InputCompletion::{Complete, Cut};
        check(" {\"a\": 1.50}\n", Complete, " {\"a\": 1.50}\n");
        check("", Complete, "{}");
        check(" ", Cut, "{}");
        check("null", Complete, "{}");
        check("{\"a\": 1, \"b", Cut, "{\"a\": 1}");
        check("{\"a\": 1, \"b", Complete, r#"{"INVALID_JSON":"{\"a\": 1, \"b"}"#);
        check("[1]", Complete, r#"{"INVALID_JSON":"[1]"}"#);
        assert!(call_block("a", "b", " {}\n").is_ok());
    }
}
