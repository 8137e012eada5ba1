//! Making a result final: redacted once, then cleaned and cut once. Nothing changes it after that, so the history
//! stays a byte prefix of what is sent next.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use conjure_base::{CallId, Redactor};
use conjure_conversation::{ResultContent, ToolResult};

use super::Toolbox;
use crate::limits::OutputLimits;
use crate::text::{clean, cut, is_clean, quote};
use crate::tool::{ToolOutcome, ToolStatus};

/// The media types that the service takes.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The most parts of one result.
const MOST_PARTS: usize = 100;

/// Bytes of a cut text that are set apart for the notice.
const NOTICE: usize = 128;

impl Toolbox {
    /// The final result of a call.
    pub(super) fn finish(&self, call: &CallId, outcome: ToolOutcome) -> ToolResult {
        let is_error = outcome.status != ToolStatus::Succeeded;
        let mut room = Room::of(&self.limits);
        let count = outcome.content.len();
        let mut content: Vec<ResultContent> = outcome
            .content
            .into_iter()
            .take(MOST_PARTS)
            .filter_map(|part| match part {
                // Of white space alone the model would see nothing.
                ResultContent::Text { text } if text.trim().is_empty() => None,
                ResultContent::Text { text } => Some(room.text(&self.redactor.redact(&text))),
                ResultContent::Image { media_type, data } => Some(room.image(media_type, data)),
            })
            .collect();
        if count > MOST_PARTS {
            content.push(text(format!("[{} more parts of the result are left out]", count - MOST_PARTS)));
        }
        if content.is_empty() {
            let said = if is_error { "[the call failed and gave no reason]" } else { "[no output]" };
            content.push(text(said.to_owned()));
        }
        ToolResult {
            tool_use_id: call.clone(),
            content,
            is_error,
            ending: outcome.status.ending(),
            active_skills: None,
            fetched: Vec::new(),
        }
    }
}

/// Whether all of this reaches the model, nothing of it cut or left out; else how many bytes of text it has, and the most.
pub(crate) fn fits(
    content: &[ResultContent],
    limits: &OutputLimits,
    redactor: &Redactor,
) -> Result<(), (usize, usize)> {
    let bytes = content.iter().map(|part| match part {
        ResultContent::Text { text } => clean(redactor.redact(text).as_bytes()).len(),
        ResultContent::Image { .. } => 0,
    });
    let (bytes, most) = (bytes.sum(), limits.text.saturating_sub(NOTICE));
    if bytes <= most && content.len() <= MOST_PARTS { Ok(()) } else { Err((bytes, most)) }
}

/// What may still be taken into a result.
struct Room {
    text: usize,
    image: usize,
    images: usize,
}

impl Room {
    const fn of(limits: &OutputLimits) -> Self {
        Self { text: limits.text, image: limits.image, images: limits.image.saturating_mul(4) }
    }

    fn text(&mut self, redacted: &str) -> ResultContent {
        let kept = if redacted.len() <= self.text && is_clean(redacted) {
            redacted.to_owned()
        } else {
            let total = redacted.len() as u64;
            let cut = cut(redacted.as_bytes(), b"", total, self.text.saturating_sub(NOTICE));
            match cut.omitted {
                0 => cut.head,
                left_out => {
                    format!("{}\n[{left_out} of {total} bytes are left out here]\n{}", cut.head, cut.tail)
                }
            }
        };
        self.text = self.text.saturating_sub(kept.len());
        text(kept)
    }

    /// The image, or why there is none. One that the service refuses would block the whole conversation.
    fn image(&mut self, media_type: String, data: String) -> ResultContent {
        let wrong = if !IMAGES.contains(&media_type.as_str()) {
            Some(format!("its type `{}` cannot be shown", quote(&media_type)))
        } else if data.len() > self.image {
            Some(format!("it has {} bytes in base64, and the most is {}", data.len(), self.image))
        } else if data.len() > self.images {
            Some("the result has too many images".to_owned())
        } else if data.is_empty() || BASE64.decode(&data).is_err() {
            Some("its data is not base64".to_owned())
        } else {
            None
        };
        match wrong {
            Some(reason) => text(format!("[an image is left out: {reason}]")),
            None => {
                self.images -= data.len();
                ResultContent::Image { media_type, data }
            }
        }
    }
}

fn text(text: String) -> ResultContent {
    ResultContent::Text { text }
}
