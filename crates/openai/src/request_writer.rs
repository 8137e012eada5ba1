//! [`RequestWriter`]: writes the JSON of a request body directly, so that the order of its members and its bytes are fixed.

use conjure_conversation::Request;
use conjure_model_http::{RequestSize, quoted};
use serde_json::Value;

/// A request body under construction. It also measures the size from which the request's tokens are estimated.
#[derive(Debug)]
pub(crate) struct RequestWriter {
    body: Vec<u8>,
    image_bytes: u64,
    images: u64,
}

impl RequestWriter {
    pub(crate) fn with_capacity(size: usize) -> Self {
        Self { body: Vec::with_capacity(size), image_bytes: 0, images: 0 }
    }

    /// Writes JSON text unchanged.
    pub(crate) fn raw(&mut self, json: &str) {
        self.body.extend_from_slice(json.as_bytes());
    }

    /// Writes a JSON string.
    pub(crate) fn string(&mut self, text: &str) {
        self.raw(&quoted(text));
    }

    /// Writes a JSON string that is the data of an image or a file.
    pub(crate) fn data(&mut self, data: &str) {
        self.images += 1;
        self.image_bytes = self.image_bytes.saturating_add(data.len() as u64);
        self.string(data);
    }

    /// Writes a comma, except before the first item.
    pub(crate) fn separate(&mut self, place: usize) {
        if place > 0 {
            self.raw(",");
        }
    }

    /// Writes a further member: a comma, its name, its value.
    pub(crate) fn member(&mut self, name: &str, value: &Value) {
        self.raw(",");
        self.string(name);
        self.raw(":");
        self.raw(&value.to_string());
    }

    /// Returns the body and its size.
    pub(crate) fn finish(self) -> (Vec<u8>, RequestSize) {
        let text_bytes = (self.body.len() as u64).saturating_sub(self.image_bytes);
        (self.body, RequestSize { text_bytes, images: self.images })
    }
}

/// Estimates the size of a body in bytes, to reserve memory.
pub(crate) fn estimated_size(request: &Request) -> usize {
    let messages = request.messages.iter().flat_map(|message| &message.content);
    let messages: usize = messages.map(|block| block.json().len() + 80).sum();
    let instructions: usize = request.instructions.iter().map(String::len).sum();
    messages + instructions + request.tools.len() * 1024 + 1024
}

/// The instructions of a request in one text, without blank ones; `None` if there are none.
pub(crate) fn joined_instructions(request: &Request) -> Option<String> {
    let texts = request.instructions.iter().map(String::as_str).filter(|text| !text.trim().is_empty());
    let joined = texts.collect::<Vec<_>>().join("\n\n");
    (!joined.is_empty()).then_some(joined)
}
