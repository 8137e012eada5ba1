//! Finalizes a tool result: redacts, cleans and truncates it, once. It never changes afterwards, so the history stays a byte prefix of
//! the next request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use conjure_base::{CallId, Redactor};
use conjure_conversation::{InputForm, InputRequest, ResultContent, ToolResult};
use serde_json::Value;

use super::Toolbox;
use crate::limits::OutputLimits;
use crate::text::{clean, is_clean, quote, truncate};
use crate::tool::{ToolOutput, ToolStatus};

/// The image types that the model's service accepts.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The type of documents that the model's service accepts as bytes.
const DOCUMENT_TYPE: &str = "application/pdf";

/// The maximum number of content blocks of one result.
const MAX_PARTS: usize = 100;

/// Bytes of a truncated text that are reserved for the notice.
const NOTICE_BYTES: usize = 128;

impl Toolbox {
    /// Finalizes the result of a call.
    pub(super) fn finalize_result(&self, call: &CallId, outcome: ToolOutput) -> ToolResult {
        let is_error = outcome.status != ToolStatus::Succeeded;
        let mut budget = OutputBudget::of(&self.limits);
        let count = outcome.content.len();
        let mut content: Vec<ResultContent> = outcome
            .content
            .into_iter()
            .take(MAX_PARTS)
            .filter_map(|part| match part {
                // For the model, a text of only white space is empty.
                ResultContent::Text { text } if text.trim().is_empty() => None,
                ResultContent::Text { text } => Some(budget.text(&self.redactor.redact(&text))),
                ResultContent::Image { media_type, data } => Some(budget.image(media_type, data)),
                ResultContent::Document { media_type, data } => Some(budget.document(media_type, data)),
            })
            .collect();
        if count > MAX_PARTS {
            content.push(text(format!("[{} more parts of the result are left out]", count - MAX_PARTS)));
        }
        if content.is_empty() {
            let placeholder = if is_error { "[the call failed without a reason]" } else { "[no output]" };
            content.push(text(placeholder.to_owned()));
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

    /// Redacts the questions of a tool. The request's state stays unchanged, because only the tool itself reads it.
    pub(super) fn finalize_request(&self, mut request: InputRequest) -> InputRequest {
        for question in request.questions.values_mut() {
            question.message = self.redactor.redact(&question.message).into_owned();
            match &mut question.form {
                InputForm::Form { requested_schema } => redact_value(&self.redactor, requested_schema),
                InputForm::Url { url } => *url = self.redactor.redact(url).into_owned(),
                _ => {}
            }
        }
        request
    }
}

/// Redacts all texts in a value.
fn redact_value(redactor: &Redactor, value: &mut Value) {
    match value {
        Value::String(text) => *text = redactor.redact(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| redact_value(redactor, item)),
        Value::Object(fields) => fields.values_mut().for_each(|field| redact_value(redactor, field)),
        _ => {}
    }
}

/// Checks that content reaches the model without truncation; else returns its bytes of text and the limit.
pub(crate) fn fits_limits(
    content: &[ResultContent],
    limits: &OutputLimits,
    redactor: &Redactor,
) -> Result<(), (usize, usize)> {
    let bytes = content.iter().map(|part| match part {
        ResultContent::Text { text } => clean(redactor.redact(text).as_bytes()).len(),
        ResultContent::Image { .. } | ResultContent::Document { .. } => 0,
    });
    let (bytes, most) = (bytes.sum(), limits.text.saturating_sub(NOTICE_BYTES));
    if bytes <= most && content.len() <= MAX_PARTS { Ok(()) } else { Err((bytes, most)) }
}

/// The bytes left for a result.
struct OutputBudget {
    text: usize,
    image: usize,
    images: usize,
    documents: usize,
}

impl OutputBudget {
    const fn of(limits: &OutputLimits) -> Self {
        Self {
            text: limits.text,
            image: limits.image,
            images: limits.image.saturating_mul(4),
            documents: limits.document(),
        }
    }

    fn text(&mut self, redacted: &str) -> ResultContent {
        let bounded_text = if redacted.len() <= self.text && is_clean(redacted) {
            redacted.to_owned()
        } else {
            let total = redacted.len() as u64;
            let cut = truncate(redacted.as_bytes(), b"", total, self.text.saturating_sub(NOTICE_BYTES));
            match cut.omitted {
                0 => cut.head,
                left_out => {
                    format!("{}\n[{left_out} of {total} bytes are left out here]\n{}", cut.head, cut.tail)
                }
            }
        };
        self.text = self.text.saturating_sub(bounded_text.len());
        text(bounded_text)
    }

    /// The image, or a notice why it is omitted. An image that the service refuses would block the whole conversation.
    fn image(&mut self, media_type: String, data: String) -> ResultContent {
        let problem = if !IMAGE_TYPES.contains(&media_type.as_str()) {
            Some(format!("its type `{}` cannot be shown", quote(&media_type)))
        } else if data.len() > self.image {
            Some(format!("it has {} bytes in base64, and the maximum is {}", data.len(), self.image))
        } else if data.len() > self.images {
            Some("the result has too many images".to_owned())
        } else if data.is_empty() || BASE64.decode(&data).is_err() {
            Some("its data is not base64".to_owned())
        } else {
            None
        };
        match problem {
            Some(reason) => text(format!("[an image is left out: {reason}]")),
            None => {
                self.images -= data.len();
                ResultContent::Image { media_type, data }
            }
        }
    }

    /// The document, or a notice why it is omitted.
    fn document(&mut self, media_type: String, data: String) -> ResultContent {
        let problem = if media_type != DOCUMENT_TYPE {
            Some(format!("its type `{}` cannot be shown", quote(&media_type)))
        } else if data.len() > self.documents {
            Some(format!("it has {} bytes in base64, and the maximum is {}", data.len(), self.documents))
        } else if data.is_empty() || BASE64.decode(&data).is_err() {
            Some("its data is not base64".to_owned())
        } else {
            None
        };
        match problem {
            Some(reason) => text(format!("[a document is left out: {reason}]")),
            None => {
                self.documents -= data.len();
                ResultContent::Document { media_type, data }
            }
        }
    }
}

fn text(text: String) -> ResultContent {
    ResultContent::Text { text }
}
