//! Converts content blocks between the API and the library.

use conjure_api::{ContentBlock, DocumentSource, ImageSource};
use conjure_conversation::{Block, BlockKind, ResultContent};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::ApiError;

/// Converts the blocks of a user's message for the library.
///
/// # Errors
/// 400 for a block that cannot be sent to any model.
pub(crate) fn message_blocks(place: &str, content: Vec<ContentBlock>) -> Result<Vec<Block>, ApiError> {
    content.into_iter().map(|block| message_block(place, block)).collect()
}

fn message_block(place: &str, block: ContentBlock) -> Result<Block, ApiError> {
    let json = match block {
        ContentBlock::Text { text } => return Ok(Block::text(text)),
        ContentBlock::Image { source } => json!({"type": "image", "source": image_source(place, source)?}),
        ContentBlock::Document { source, context, title } => {
            let mut document = json!({"type": "document", "source": document_source(place, source)?});
            for (name, text) in [("context", context), ("title", title)] {
                if let (Some(text), Some(document)) = (text, document.as_object_mut()) {
                    document.insert(name.to_owned(), Value::from(text));
                }
            }
            document
        }
        ContentBlock::Redacted => {
            return Err(ApiError::invalid(format!(
                "{place}: a `redacted` block has no content that a model could be sent; leave it out"
            )));
        }
        ContentBlock::SearchResult { .. } => {
            return Err(ApiError::invalid(format!(
                "{place}: a `search_result` block belongs in a tool's result"
            )));
        }
    };
    Block::from_json(json.to_string()).map_err(|error| ApiError::invalid(format!("{place}: {error}")))
}

fn image_source(place: &str, source: ImageSource) -> Result<Value, ApiError> {
    match source {
        ImageSource::File { .. } => Err(file_source(place)),
        source => serde_json::to_value(source).map_err(|error| ApiError::internal(error.to_string())),
    }
}

fn document_source(place: &str, source: DocumentSource) -> Result<Value, ApiError> {
    match source {
        DocumentSource::File { .. } => Err(file_source(place)),
        source => serde_json::to_value(source).map_err(|error| ApiError::internal(error.to_string())),
    }
}

fn file_source(place: &str) -> ApiError {
    ApiError::invalid(format!(
        "{place}: this server does not send files by their id; send the content as `base64`, or give the file to the session as a resource"
    ))
}

/// Converts the content of a tool's result for the library.
///
/// # Errors
/// 400 for a block that a result cannot contain here.
pub(crate) fn result_contents(
    place: &str,
    content: Vec<ContentBlock>,
) -> Result<Vec<ResultContent>, ApiError> {
    content.into_iter().map(|block| result_content(place, block)).collect()
}

fn result_content(place: &str, block: ContentBlock) -> Result<ResultContent, ApiError> {
    match block {
        ContentBlock::Text { text } => Ok(ResultContent::Text { text }),
        ContentBlock::Image { source: ImageSource::Base64 { data, media_type } } => {
            Ok(ResultContent::Image { media_type, data })
        }
        ContentBlock::Document { source: DocumentSource::Text { data, .. }, .. } => {
            Ok(ResultContent::Text { text: data })
        }
        ContentBlock::SearchResult { content, source, title, .. } => {
            let texts: Vec<String> = content.into_iter().map(|part| part.text).collect();
            Ok(ResultContent::Text { text: format!("{title} ({source})\n{}", texts.join("\n")) })
        }
        _ => Err(ApiError::invalid(format!(
            "{place}: a result has texts, images in `base64` and search results; write the content as one of them"
        ))),
    }
}

/// Converts the blocks of a message for the API. Blocks of server tools and of later API versions are left out.
pub(super) fn api_blocks(content: &[Block]) -> Vec<ContentBlock> {
    content.iter().filter_map(|block| serde_json::from_str(block.json()).ok()).collect()
}

/// The texts of an agent's message.
pub(super) fn api_texts(content: &[Block]) -> Vec<ContentBlock> {
    let texts = content.iter().filter_map(|block| match block.kind() {
        BlockKind::Text(text) => Some(ContentBlock::text(text.as_str())),
        _ => None,
    });
    texts.collect()
}

/// The content of a `tool_result` block.
pub(super) fn api_result(block: &Block) -> Vec<ContentBlock> {
    #[derive(Deserialize)]
    struct ResultBlock {
        #[serde(default)]
        content: Value,
    }
    let content = serde_json::from_str::<ResultBlock>(block.json()).map(|block| block.content);
    match content {
        Ok(Value::String(text)) => vec![ContentBlock::text(text)],
        Ok(Value::Array(blocks)) => {
            blocks.into_iter().filter_map(|block| serde_json::from_value(block).ok()).collect()
        }
        _ => Vec::new(),
    }
}
