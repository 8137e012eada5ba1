//! Finds the block of a request that an API error is about.

use std::borrow::Borrow;

use serde::Deserialize;

use crate::content::block::{Block, BlockKind};
use crate::content::message::{Message, Role};

/// Returns the message and the block, both from 0, that the error text is about. In this order:
///
/// 1. The position that the text names.
/// 2. The first block that uploads a file which the text names by its id. The file may have been deleted since.
/// 3. If the text is about an image or a document: the first one in the newest message of the user. Older ones were accepted before.
pub(crate) fn find_rejected_block<M: Borrow<Message>>(text: &str, messages: &[M]) -> Option<(usize, usize)> {
    parse_location(text).or_else(|| find_upload(text, messages)).or_else(|| {
        let lower = text.to_lowercase();
        if !["image", "document", "pdf", "media"].iter().any(|word| lower.contains(word)) {
            return None;
        }
        let place = messages.len().checked_sub(1)?;
        let newest: &Message = messages[place].borrow();
        let block = newest.content.iter().position(is_media).filter(|_| newest.role == Role::User)?;
        Some((place, block))
    })
}

/// The first block that uploads a file which the text names by its id.
fn find_upload<M: Borrow<Message>>(text: &str, messages: &[M]) -> Option<(usize, usize)> {
    #[derive(Deserialize)]
    struct Upload {
        file_id: String,
    }
    let is_named = |block: &Block| {
        matches!(block.kind(), BlockKind::Other(kind) if kind == "container_upload")
            && serde_json::from_str::<Upload>(block.json())
                .is_ok_and(|Upload { file_id }| contains_id(text, &file_id))
    };
    messages.iter().enumerate().find_map(|(place, message)| {
        let message: &Message = message.borrow();
        message.content.iter().position(is_named).map(|block| (place, block))
    })
}

/// Whether a text contains this id as a whole word.
fn contains_id(text: &str, id: &str) -> bool {
    let is_of_id = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !id.is_empty() && text.split(|c| !is_of_id(c)).any(|word| word == id)
}

/// Whether a block is or contains an image or a document.
fn is_media(block: &Block) -> bool {
    match block.kind() {
        BlockKind::Other(kind) => matches!(kind.as_str(), "image" | "document"),
        // This library writes results without white space.
        BlockKind::ToolResult { .. } => {
            [r#""type":"image""#, r#""type":"document""#].iter().any(|kind| block.json().contains(kind))
        }
        _ => false,
    }
}

/// The position that an error text names as `messages.N.content.M`.
fn parse_location(text: &str) -> Option<(usize, usize)> {
    text.match_indices("messages.").find_map(|(start, prefix)| {
        let (message, rest) = leading_number(&text[start + prefix.len()..])?;
        let (block, _) = leading_number(rest.strip_prefix(".content.")?)?;
        Some((message, block))
    })
}

/// The number at the start of `text`, and the rest.
fn leading_number(text: &str) -> Option<(usize, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::{find_rejected_block, parse_location};
    use crate::{Block, Message, ResultContent, ToolResult};

    #[test]
    fn the_location_is_found_where_the_service_writes_it() {
        let text = "messages.3.content.1.image.source.base64: image exceeds 5 MB maximum";
        assert_eq!(parse_location(text), Some((3, 1)));
        assert_eq!(parse_location("bad request: messages.12.content.0: too large"), Some((12, 0)));
        assert_eq!(parse_location("messages.x and messages.4.content.5"), Some((4, 5)));
        for text in ["", "messages.1", "messages.1.content", "messages.99999999999999999999.content.1", "é"]
        {
            assert_eq!(parse_location(text), None, "{text}");
        }
    }

    #[test]
    fn a_refusal_that_names_a_file_is_about_the_block_that_puts_it_into_a_container() {
        let upload = |id: &str| {
            Block::from_json(format!(r#"{{"type":"container_upload","file_id":"{id}"}}"#)).unwrap()
        };
        let messages = [
            Message::user(vec![Block::text("file_1"), upload("file_11"), upload("file_1")]),
            Message::assistant(vec![Block::text("I see")]),
            Message::user(vec![upload("file_1")]),
        ];
        assert_eq!(find_rejected_block("File not found: file_1", &messages), Some((0, 2)));
        assert_eq!(find_rejected_block("the file `file_11` has expired.", &messages), Some((0, 1)));
        assert_eq!(find_rejected_block("File not found: file_2", &messages), None);
        assert_eq!(find_rejected_block("File not found", &messages), None);
    }

    #[test]
    fn a_refusal_without_a_location_is_about_the_newest_media_if_it_speaks_of_media() {
        let image = || Block::from_json(r#"{"type":"image","source":{}}"#).unwrap();
        let part = ResultContent::Image { media_type: "image/png".to_owned(), data: String::new() };
        let seen = ToolResult {
            content: vec![part],
            ..ToolResult::text_result(&conjure_base::CallId::new("a"), "")
        };
        let old = Message::user(vec![image()]);
        let answer = Message::assistant(vec![Block::text("I see")]);
        let with = |blocks| vec![old.clone(), answer.clone(), Message::user(blocks)];
        let text = || Block::text("image");
        let could_not = "Could not process image";
        assert_eq!(find_rejected_block(could_not, &with(vec![text(), image()])), Some((2, 1)));
        assert_eq!(find_rejected_block(could_not, &with(vec![Block::tool_result(&seen)])), Some((2, 0)));
        assert_eq!(find_rejected_block(could_not, &with(vec![text()])), None);
        assert_eq!(find_rejected_block(could_not, &[old.clone(), answer.clone()]), None);
        assert_eq!(find_rejected_block("Your credit balance is too low", &with(vec![image()])), None);
        assert_eq!(find_rejected_block::<Message>(could_not, &[]), None);
    }
}
