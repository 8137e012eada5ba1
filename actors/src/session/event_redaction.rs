//! Redacts secrets in the events that leave a session.
//!
//! Content is raw JSON, in which a secret can be written in several ways. So each string in it is decoded, redacted,
//! and written again only if it contained a secret. All other bytes stay as they were.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard};

use conjure_base::{Redactor, lock};
use conjure_conversation::{
    ApiErrorKind, Event, InputAnswer, InputAnswers, ModelErrorKind, ResultContent, StopReason, TurnStop,
};

/// The redacted event. Returns `None` if the redacted JSON cannot be parsed, which is impossible for valid JSON.
#[must_use]
pub fn redact_event(redactor: &Redactor, event: &Event) -> Option<Event> {
    let json = serde_json::to_string(event).ok()?;
    match redact_json(redactor, &json) {
        Cow::Borrowed(_) => Some(event.clone()),
        Cow::Owned(json) => serde_json::from_str(&json).ok(),
    }
}

/// The redacted reason of a turn's end. An error text of a service may quote what was sent to it.
#[must_use]
pub fn redact_stop(redactor: &Redactor, stop: &TurnStop) -> TurnStop {
    let redact = |text: &mut String| {
        if let Cow::Owned(redacted) = redactor.redact(text) {
            *text = redacted;
        }
    };
    let mut stop = stop.clone();
    match &mut stop {
        TurnStop::ModelFailed(error) => {
            redact(&mut error.message);
            error.request_id.iter_mut().for_each(redact);
            if let ModelErrorKind::Api(ApiErrorKind::Unknown(kind)) = &mut error.kind {
                redact(kind);
            }
        }
        TurnStop::Answered(StopReason::Unknown(reason))
        | TurnStop::Truncated(StopReason::Unknown(reason)) => {
            redact(reason);
        }
        _ => {}
    }
    stop
}

/// Redacts the texts of a tool's result.
pub(crate) fn redact_content(redactor: &Redactor, content: &mut [ResultContent]) {
    for part in content {
        if let ResultContent::Text { text } = part
            && let Cow::Owned(redacted) = redactor.redact(text)
        {
            *text = redacted;
        }
    }
}

/// Redacts the fields that a person has filled in.
pub(crate) fn redact_answers(redactor: &Redactor, answers: &mut InputAnswers) {
    for answer in answers.values_mut() {
        if let InputAnswer::Accept { content: Some(content) } = answer
            && let Cow::Owned(redacted) = redact_json(redactor, &content.to_string())
            && let Ok(value) = serde_json::from_str(&redacted)
        {
            *content = value;
        }
    }
}

/// The JSON text with each string redacted.
pub(crate) fn redact_json<'j>(redactor: &Redactor, json: &'j str) -> Cow<'j, str> {
    let mut result = String::new();
    let mut copied = 0;
    let mut at = 0;
    let bytes = json.as_bytes();
    while let Some(start) = bytes[at..].iter().position(|byte| *byte == b'"').map(|found| at + found) {
        let mut end = start + 1;
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let end = (end + 1).min(bytes.len());
        let literal = &json[start..end];
        if let Ok(text) = serde_json::from_str::<String>(literal)
            && let Cow::Owned(redacted) = redactor.redact(&text)
        {
            result.push_str(&json[copied..start]);
            result.push_str(&serde_json::Value::String(redacted).to_string());
            copied = end;
        }
        at = end;
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    result.push_str(&json[copied..]);
    Cow::Owned(result)
}

/// The secrets of one session, across restarts of its actor.
#[derive(Debug, Default)]
pub(crate) struct SessionRedactors {
    state: Mutex<RedactorsState>,
}

#[derive(Debug, Default)]
struct RedactorsState {
    /// The redactor of the running incarnation, or of the last one. The incarnation's tools share it.
    current: Redactor,
    /// Secrets that callers added while the session was known in this process.
    added: Redactor,
}

impl SessionRedactors {
    fn lock(&self) -> MutexGuard<'_, RedactorsState> {
        lock(&self.state)
    }

    /// The redactor of the running incarnation, or of the last one.
    pub(crate) fn current(&self) -> Redactor {
        self.lock().current.clone()
    }

    /// Replaces the current redactor by that of a new incarnation, and extends the new one by the added secrets.
    pub(crate) fn set_current(&self, redactor: &Redactor) {
        let mut state = self.lock();
        redactor.extend(&state.added);
        state.current = redactor.clone();
    }

    /// Adds secrets to the current redactor and to those of later incarnations.
    pub(crate) fn add(&self, secrets: &Redactor) {
        let state = self.lock();
        state.added.extend(secrets);
        state.current.extend(secrets);
    }
}

/// Redacts a text that arrives in pieces. It holds back the end of the text while that may be the beginning of a
/// secret.
#[derive(Debug, Default)]
pub(crate) struct StreamingRedactor {
    pending: String,
}

/// The maximum length of the text that is held back.
const LONGEST_HELD: usize = 64 << 10;

impl StreamingRedactor {
    /// Adds a piece. Returns the text that can be shown now, if there is any.
    pub(crate) fn push(&mut self, redactor: &Redactor, piece: &str) -> Option<String> {
        self.pending.push_str(piece);
        let redacted = redactor.redact(&self.pending);
        let held = redactor.partial_secret_len(&redacted);
        let (shown, rest) = redacted.split_at(redacted.len() - held.min(LONGEST_HELD));
        let (shown, rest) = (shown.to_owned(), rest.to_owned());
        self.pending = rest;
        (!shown.is_empty()).then_some(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_however_json_writes_it_and_the_rest_stays_to_the_byte() {
        let redactor = Redactor::new([("KEY", "s3\"cr\\et/ü")]);
        for written in [r#""s3\"cr\\et/ü""#, r#""s3\u0022cr\u005cet\/\u00fc""#] {
            let json = format!(r#"{{ "n" : 1.50, "a":[{written}, "x s3"],"b":"\u0041" }}"#);
            let redacted = redact_json(&redactor, &json);
            assert_eq!(redacted, r#"{ "n" : 1.50, "a":["[REDACTED:KEY]", "x s3"],"b":"\u0041" }"#);
            serde_json::from_str::<serde_json::Value>(&redacted).unwrap();
        }
        assert!(matches!(redact_json(&redactor, r#"{"a":"b"}"#), Cow::Borrowed(_)));
        // A text that is not JSON must do no harm.
        for json in ["\"", "\"\\", "\"a", ""] {
            assert_eq!(redact_json(&redactor, json), json);
        }
    }

    #[test]
    fn a_secret_in_pieces_is_never_shown() {
        let redactor = Redactor::new([("KEY", "s3cr3t-välue")]);
        let text = "a s3cr3t-välue b s3cr3x s3cr3t-välue";
        for width in 1..8 {
            let mut redactors = StreamingRedactor::default();
            let mut shown = String::new();
            let characters: Vec<char> = text.chars().collect();
            for piece in characters.chunks(width) {
                let piece: String = piece.iter().collect();
                shown.extend(redactors.push(&redactor, &piece));
            }
            assert_eq!(shown, "a [REDACTED:KEY] b s3cr3x [REDACTED:KEY]", "{width}");
        }
    }
}
