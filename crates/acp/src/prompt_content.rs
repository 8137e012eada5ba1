//! Converts the user's prompt to the content of a message.

use std::path::Path;

use agent_client_protocol::v1::schema::{ContentBlock, EmbeddedResourceResource};
use conjure_conversation::Block;
use serde_json::json;

/// Converts the blocks of a prompt to the content of a message.
///
/// # Errors
/// The block that cannot be sent to a model, as text.
pub(crate) fn blocks(prompt: Vec<ContentBlock>, cwd: &Path) -> Result<Vec<Block>, String> {
    let blocks: Result<Vec<Block>, String> = prompt.into_iter().map(|block| to_block(block, cwd)).collect();
    let blocks = blocks?;
    if blocks.is_empty() {
        return Err("the prompt is empty".to_owned());
    }
    Ok(blocks)
}

fn to_block(block: ContentBlock, cwd: &Path) -> Result<Block, String> {
    match block {
        ContentBlock::Text(text) => Ok(Block::text(text.text)),
        ContentBlock::Image(image) => {
            let source = json!({"type": "base64", "media_type": image.mime_type, "data": image.data});
            serde_json::from_value(json!({"type": "image", "source": source}))
                .map_err(|error| error.to_string())
        }
        ContentBlock::ResourceLink(link) => {
            Ok(Block::text(format!("[{}]({})", link.name, in_workspace(&link.uri, cwd))))
        }
        ContentBlock::Resource(resource) => match resource.resource {
            EmbeddedResourceResource::TextResourceContents(text) => {
                let name = in_workspace(&text.uri, cwd);
                Ok(Block::text(format!("<file path=\"{name}\">\n{}\n</file>", text.text)))
            }
            _ => {
                Err("a resource that is no text cannot be sent to the model; attach it as a file".to_owned())
            }
        },
        _ => Err("only texts, images, links and texts of files can be sent to the model".to_owned()),
    }
}

/// The path of a file in the editor's directory, relative to that directory, as the model's tools expect it. Any other URI is returned
/// unchanged.
fn in_workspace(uri: &str, cwd: &Path) -> String {
    let path = uri.strip_prefix("file://").unwrap_or(uri);
    let relative = Path::new(path).strip_prefix(cwd).ok().and_then(Path::to_str);
    relative.filter(|relative| !relative.is_empty()).unwrap_or(uri).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_directory_are_named_as_the_tools_take_them() {
        let cwd = Path::new("/home/ada/app");
        for (uri, name) in [
            ("file:///home/ada/app/src/a.rs", "src/a.rs"),
            ("/home/ada/app/b.rs", "b.rs"),
            ("file:///etc/passwd", "file:///etc/passwd"),
            ("file:///home/ada/app", "file:///home/ada/app"),
            ("https://example.com/", "https://example.com/"),
        ] {
            assert_eq!(in_workspace(uri, cwd), name);
        }
    }

    #[test]
    fn every_kind_that_a_model_takes_is_sent() {
        let prompt: Vec<ContentBlock> = serde_json::from_value(json!([
            {"type": "text", "text": "Look"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "file:///w/a.txt", "name": "a.txt"},
            {"type": "resource", "resource": {"uri": "file:///w/b.txt", "text": "words"}},
        ]))
        .unwrap();
        let blocks = blocks(prompt, Path::new("/w")).unwrap();
        let sent = serde_json::to_string(&blocks).unwrap();
        for part in ["Look", "image/png", "[a.txt](a.txt)", "<file path=\\\"b.txt\\\">\\nwords\\n</file>"] {
            assert!(sent.contains(part), "{part}: {sent}");
        }
        let audio =
            serde_json::from_value(json!([{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]))
                .unwrap();
        assert!(super::blocks(audio, Path::new("/w")).is_err());
        assert!(super::blocks(Vec::new(), Path::new("/w")).is_err());
    }
}
