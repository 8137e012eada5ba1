//! Content blocks of users, tools and the agent.

use serde::{Deserialize, Serialize};

use crate::RequestError;
use crate::common::input::{Input, ObjectInput};

/// The maximum number of blocks in one message or result.
const MAX_BLOCKS: usize = 1_000;

/// One content block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// The source of the image.
        source: ImageSource,
    },
    /// A document.
    Document {
        /// The source of the document.
        source: DocumentSource,
        /// Information for the model about the document.
        context: Option<String>,
        /// Its title.
        title: Option<String>,
    },
    /// A search result inside a tool result.
    SearchResult {
        /// Whether the model may cite it.
        citations: Citations,
        /// Its texts.
        content: Vec<SearchText>,
        /// Its URL.
        source: String,
        /// Its title.
        title: String,
    },
    /// A block whose content is withheld.
    Redacted,
}

/// Whether the model may cite a search result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Citations {
    /// Whether it may.
    pub enabled: bool,
}

/// A text of a search result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "text")]
pub struct SearchText {
    /// The text.
    pub text: String,
}

/// The source of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ImageSource {
    Base64 { data: String, media_type: String },
    Url { url: String },
    File { file_id: String },
}

/// The source of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum DocumentSource {
    Base64 {
        data: String,
        media_type: String,
    },
    /// Plain text.
    Text {
        data: String,
        media_type: String,
    },
    Url {
        url: String,
    },
    File {
        file_id: String,
    },
}

impl ContentBlock {
    /// Creates a text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// The block types that a content may have.
#[derive(Clone, Copy)]
pub(crate) enum Allowed {
    Message,
    ToolResult,
    System,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Image,
    Document,
    SearchResult,
    Redacted,
}

/// Reads an array of blocks.
pub(crate) fn read_blocks(input: Input<'_>, allowed: Allowed) -> Result<Vec<ContentBlock>, RequestError> {
    input.array("blocks", MAX_BLOCKS)?.into_iter().map(|block| read_block(block, allowed)).collect()
}

/// Reads an array of at least one block.
pub(crate) fn read_some_blocks(
    input: Input<'_>,
    allowed: Allowed,
) -> Result<Vec<ContentBlock>, RequestError> {
    let path = input.path().to_owned();
    let blocks = read_blocks(input, allowed)?;
    if blocks.is_empty() {
        return Err(RequestError::new(path, "the content is empty; give at least one block"));
    }
    Ok(blocks)
}

fn read_block(input: Input<'_>, allowed: Allowed) -> Result<ContentBlock, RequestError> {
    let mut object = input.object()?;
    let (text, image, document) =
        (("text", Kind::Text), ("image", Kind::Image), ("document", Kind::Document));
    let kind = match allowed {
        Allowed::System => object.kind(&[text]),
        Allowed::Message => object.kind(&[text, image, document, ("redacted", Kind::Redacted)]),
        Allowed::ToolResult => object.kind(&[text, image, document, ("search_result", Kind::SearchResult)]),
    }?;
    let block = match kind {
        Kind::Text => ContentBlock::Text { text: object.required("text")?.string()? },
        Kind::Image => ContentBlock::Image { source: read_image(object.required("source")?)? },
        Kind::Document => ContentBlock::Document {
            source: read_document(object.required("source")?)?,
            context: object.optional("context").map(|text| text.string()).transpose()?,
            title: object.optional("title").map(|text| text.string()).transpose()?,
        },
        Kind::SearchResult => read_search_result(&mut object)?,
        Kind::Redacted => ContentBlock::Redacted,
    };
    object.finish()?;
    Ok(block)
}

fn read_search_result(object: &mut ObjectInput<'_>) -> Result<ContentBlock, RequestError> {
    let enabled =
        object.required("citations")?.read_object(|citations| citations.required("enabled")?.boolean())?;
    let mut content = Vec::new();
    for text in object.required("content")?.array("texts", MAX_BLOCKS)? {
        let mut text = text.object()?;
        text.kind(&[("text", ())])?;
        content.push(SearchText { text: text.required("text")?.string()? });
        text.finish()?;
    }
    Ok(ContentBlock::SearchResult {
        citations: Citations { enabled },
        content,
        source: object.required("source")?.string()?,
        title: object.required("title")?.string()?,
    })
}

#[derive(Clone, Copy)]
enum SourceKind {
    Base64,
    Text,
    Url,
    File,
}

fn read_image(input: Input<'_>) -> Result<ImageSource, RequestError> {
    let mut object = input.object()?;
    let kinds = [("base64", SourceKind::Base64), ("url", SourceKind::Url), ("file", SourceKind::File)];
    let source = match object.kind(&kinds)? {
        SourceKind::Url => ImageSource::Url { url: object.required("url")?.string()? },
        SourceKind::File => ImageSource::File { file_id: object.required("file_id")?.string()? },
        SourceKind::Base64 | SourceKind::Text => ImageSource::Base64 {
            data: object.required("data")?.string()?,
            media_type: object.required("media_type")?.string()?,
        },
    };
    object.finish()?;
    Ok(source)
}

fn read_document(input: Input<'_>) -> Result<DocumentSource, RequestError> {
    let mut object = input.object()?;
    let kinds = [
        ("base64", SourceKind::Base64),
        ("text", SourceKind::Text),
        ("url", SourceKind::Url),
        ("file", SourceKind::File),
    ];
    let source = match object.kind(&kinds)? {
        SourceKind::Url => DocumentSource::Url { url: object.required("url")?.string()? },
        SourceKind::File => DocumentSource::File { file_id: object.required("file_id")?.string()? },
        SourceKind::Base64 => DocumentSource::Base64 {
            data: object.required("data")?.string()?,
            media_type: object.required("media_type")?.string()?,
        },
        SourceKind::Text => {
            object.required("media_type")?.one_of(&[("text/plain", ())])?;
            DocumentSource::Text {
                data: object.required("data")?.string()?,
                media_type: "text/plain".to_owned(),
            }
        }
    };
    object.finish()?;
    Ok(source)
}
