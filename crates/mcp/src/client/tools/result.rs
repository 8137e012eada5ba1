//! Converts the result of a call to content for the model. Binary data and large text are written to files in the sandbox.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use conjure_conversation::ResultContent;
use conjure_sandbox::{CallOptions, Executor};
use conjure_toolbox::{ToolOutput, ToolStatus};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use super::output_schema::mismatch;
use crate::client::transport::process_transport::printable;

/// The maximum size of a result's text, in bytes: about 25,000 tokens.
const MAX_TEXT_BYTES: usize = 100_000;

/// How many bytes of a larger text are shown.
const PREVIEW_BYTES: usize = 4_000;

/// The workspace directory for large results.
const DIR: &str = "mcp-results";

/// Where the files of a result are written.
pub(in crate::client) struct ResultFiles<'f> {
    /// The sandbox of the session's tools.
    pub(in crate::client) executor: &'f dyn Executor,
    /// The prefix of the file names.
    pub(in crate::client) stem: String,
    pub(in crate::client) options: CallOptions,
}

/// Converts a result for the model.
///
/// Structured content is shown only if there is no text, because servers repeat it as text for older clients. If it does not match the
/// tool's `schema`, the result becomes an error, since the model should not rely on it.
pub(in crate::client) async fn to_output(
    result: CallToolResult,
    schema: Option<&Value>,
    files: Option<ResultFiles<'_>>,
) -> ToolOutput {
    let mut status = if result.is_error == Some(true) { ToolStatus::Failed } else { ToolStatus::Succeeded };
    let mut output = Output { files, texts: String::new(), content: Vec::new(), count: 0 };
    if let Some(schema) = schema.filter(|_| status == ToolStatus::Succeeded) {
        let reason = match &result.structured_content {
            Some(structured) => mismatch(schema, structured),
            None => Some("there is no structured content".to_owned()),
        };
        if let Some(reason) = reason {
            status = ToolStatus::Failed;
            output.text(&format!(
                "[the call was done, but the server's result does not fit the schema that the tool declares for it: {}; it is shown unchanged]",
                printable(&reason)
            ));
        }
    }
    let has_text = result.content.iter().any(|block| matches!(block, ContentBlock::Text(_)));
    for block in result.content {
        output.block(block).await;
    }
    if let Some(structured) = result.structured_content.filter(|_| !has_text) {
        output.text(&structured.to_string());
    }
    output.flush().await;
    ToolOutput { content: output.content, status, input_request: None }
}

struct Output<'f> {
    files: Option<ResultFiles<'f>>,
    /// The text since the last image.
    texts: String,
    content: Vec<ResultContent>,
    count: usize,
}

impl Output<'_> {
    async fn block(&mut self, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.text(&text.text),
            ContentBlock::Image(image) => {
                self.flush().await;
                self.content.push(ResultContent::Image { media_type: image.mime_type, data: image.data });
            }
            ContentBlock::Audio(audio) => self.bytes("audio", &audio.mime_type, &audio.data).await,
            ContentBlock::Resource(resource) => match resource.resource {
                ResourceContents::TextResourceContents { uri, text, .. } => {
                    self.text(&format!("[resource {}]\n{text}", printable(&uri)));
                }
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                    let kind = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                    self.text(&format!("[resource {}]", printable(&uri)));
                    self.bytes("a resource", &kind, &blob).await;
                }
                _ => self.text("[a resource of a kind that is not known is left out]"),
            },
            ContentBlock::ResourceLink(link) => {
                let kind = link.mime_type.as_deref().map(|kind| format!(", {kind}")).unwrap_or_default();
                let text = format!("[link to the resource `{}`{kind}: {}]", link.name, link.uri);
                self.text(&printable(&text));
            }
            _ => self.text("[content of a kind that is not known is left out]"),
        }
    }

    fn text(&mut self, text: &str) {
        if !self.texts.is_empty() {
            self.texts.push('\n');
        }
        self.texts.push_str(text);
    }

    /// Ends the current text block. A large text is written to a file and shown in part.
    async fn flush(&mut self) {
        let text = std::mem::take(&mut self.texts);
        if text.is_empty() {
            return;
        }
        let kept = if text.len() <= MAX_TEXT_BYTES { text } else { self.large(&text).await };
        self.content.push(ResultContent::Text { text: kept });
    }

    async fn large(&mut self, text: &str) -> String {
        let end = (0..=PREVIEW_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        let preview = text.get(..end).unwrap_or_default();
        let total = text.len();
        match self.save("txt", text.as_bytes()).await {
            Ok(path) => {
                format!("[the text has {total} bytes and is in the file `{path}`; it begins so:]\n{preview}")
            }
            Err(reason) => {
                format!("[the text has {total} bytes, and only the beginning is kept: {reason}]\n{preview}")
            }
        }
    }

    /// Writes binary content, encoded as base64, to a file.
    async fn bytes(&mut self, what: &str, kind: &str, data: &str) {
        let kind = printable(kind);
        let Ok(bytes) = BASE64.decode(data) else {
            self.text(&format!("[{what} of the type {kind} is left out: its data is not base64]"));
            return;
        };
        let extension = kind.rsplit('/').next().filter(|end| is_plain(end)).unwrap_or("bin").to_owned();
        let told = match self.save(&extension, &bytes).await {
            Ok(path) => {
                format!("[{what} of the type {kind}, {} bytes, is in the file `{path}`]", bytes.len())
            }
            Err(reason) => {
                format!("[{what} of the type {kind}, {} bytes, is left out: {reason}]", bytes.len())
            }
        };
        self.text(&told);
    }

    async fn save(&mut self, extension: &str, bytes: &[u8]) -> Result<String, String> {
        let Some(files) = &self.files else { return Err("the session has no sandbox for files".to_owned()) };
        let stem: String = files
            .stem
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' })
            .take(120)
            .collect();
        self.count += 1;
        let path = format!("{DIR}/{stem}-{}.{extension}", self.count);
        let written = files.executor.create_file(&path, bytes, files.options.clone()).await;
        written.map(|_| path).map_err(|error| format!("it cannot be written to a file: {error}"))
    }
}

fn is_plain(text: &str) -> bool {
    (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn output(result: Value) -> ToolOutput {
        to_output(serde_json::from_value(result).unwrap(), None, None).await
    }

    async fn checked(result: Value) -> ToolOutput {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
        to_output(serde_json::from_value(result).unwrap(), Some(&schema), None).await
    }

    fn texts(output: &ToolOutput) -> Vec<&str> {
        let text = |part: &'_ ResultContent| match part {
            ResultContent::Text { text } => text.as_str().to_owned().leak() as &str,
            _ => "(image)",
        };
        output.content.iter().map(text).collect()
    }

    #[tokio::test]
    async fn every_kind_of_content_is_told() {
        let output = output(json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "test://a", "text": "words"}},
            {"type": "resource", "resource": {"uri": "test://b", "blob": "!", "mimeType": "x/y"}},
            {"type": "resource_link", "uri": "file:///c\u{1b}", "name": "c"},
        ]}))
        .await;
        assert_eq!(output.status, ToolStatus::Succeeded);
        assert_eq!(
            texts(&output),
            [
                "one",
                "(image)",
                "[audio of the type audio/wav, 3 bytes, is left out: the session has no sandbox for files]\n\
                 [resource test://a]\nwords\n[resource test://b]\n\
                 [a resource of the type x/y is left out: its data is not base64]\n\
                 [link to the resource `c`: file:///c\\u{1b}]",
            ]
        );
    }

    #[tokio::test]
    async fn structured_content_is_shown_once() {
        let both =
            json!({"content": [{"type": "text", "text": "{\"a\": 1}"}], "structuredContent": {"a": 1}});
        assert_eq!(texts(&output(both).await), ["{\"a\": 1}"]);
        let alone = json!({"content": [], "structuredContent": {"a": 1}});
        assert_eq!(texts(&output(alone).await), ["{\"a\":1}"]);
        let failed = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
        assert_eq!(output(failed).await.status, ToolStatus::Failed);
    }

    #[tokio::test]
    async fn structured_content_that_breaks_the_servers_word_is_an_error() {
        let good = json!({"content": [], "structuredContent": {"a": 1}});
        let good = checked(good).await;
        assert_eq!((good.status, texts(&good)), (ToolStatus::Succeeded, vec!["{\"a\":1}"]));
        let wrong = json!({"content": [], "structuredContent": {"a": "x"}});
        let wrong = checked(wrong).await;
        assert_eq!(wrong.status, ToolStatus::Failed);
        let told = texts(&wrong)[0];
        assert!(
            told.contains("at `/a` it is of the type string, and integer is needed; it is shown unchanged"),
            "{told}"
        );
        assert!(told.ends_with("\n{\"a\":\"x\"}"), "{told}");
        let none = checked(json!({"content": [{"type": "text", "text": "one"}]})).await;
        assert_eq!(none.status, ToolStatus::Failed);
        let told = texts(&none)[0];
        assert!(told.contains("there is no structured content") && told.ends_with("\none"), "{told}");
        // An error of the server is told as it is.
        let failed = checked(json!({"content": [{"type": "text", "text": "no"}], "isError": true})).await;
        assert_eq!(texts(&failed), ["no"]);
    }

    #[tokio::test]
    async fn a_large_text_is_shown_in_part() {
        let large = json!({"content": [{"type": "text", "text": "ä".repeat(60_000)}]});
        let output = output(large).await;
        let text = texts(&output)[0];
        assert!(text.len() < 5_000 && text.starts_with("[the text has 120000 bytes"), "{}", &text[..100]);
    }
}
