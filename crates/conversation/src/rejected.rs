//! Which block of a request it was that the service refused, or whether it was the container.

use std::borrow::Borrow;

use conjure_base::ContainerId;

use crate::content::{Block, BlockKind};
use crate::message::{Message, Role};
use crate::model::{ApiErrorKind, ModelError, ModelErrorKind};

/// Whether a request failed because of the container that it named: it has expired, or is not there. The service
/// documents no wording; these are the forms that name the container, its field, or say what became of it.
pub(crate) fn is_container_refused(error: &ModelError, container: &ContainerId) -> bool {
    let is_refusal =
        matches!(error.kind, ModelErrorKind::Api(ApiErrorKind::InvalidRequest | ApiErrorKind::NotFound));
    let text = &error.message;
    let has_any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    is_refusal
        && (text.contains(container.as_str())
            || has_any(&["container:", "container.id:"])
            || (has_any(&["container ", "Container "])
                && has_any(&["expired", "not found", "does not exist"])))
}

/// The message and the block, both from 0, that a refusal is about: those that its text names, or else, when it
/// speaks of an image or a document, the first one in the newest message of the user. Older ones were accepted
/// before.
pub(crate) fn refused_block<M: Borrow<Message>>(text: &str, messages: &[M]) -> Option<(usize, usize)> {
    location_of(text).or_else(|| {
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

/// Whether a block is, or holds, an image or a document.
fn is_media(block: &Block) -> bool {
    match block.kind() {
        BlockKind::Other(kind) => matches!(kind.as_str(), "image" | "document"),
        // Results are written by this library, without white space.
        BlockKind::ToolResult { .. } => block.json().contains(r#""type":"image""#),
        _ => false,
    }
}

/// The place that the text of a refusal names as `messages.N.content.M`.
fn location_of(text: &str) -> Option<(usize, usize)> {
    text.match_indices("messages.").find_map(|(start, prefix)| {
        let (message, rest) = number(&text[start + prefix.len()..])?;
        let (block, _) = number(rest.strip_prefix(".content.")?)?;
        Some((message, block))
    })
}

/// The number at the head of `text`, and what follows it.
fn number(text: &str) -> Option<(usize, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::{is_container_refused, location_of, refused_block};
    use crate::{ApiErrorKind, Block, Message, ModelError, ModelErrorKind, ResultContent, ToolResult};

    #[test]
    fn a_refusal_is_about_the_container_when_it_says_so() {
        let container = conjure_base::ContainerId::new("container_01");
        let says = |kind, text: &str| is_container_refused(&ModelError::new(kind, text), &container);
        let invalid = || ModelErrorKind::Api(ApiErrorKind::InvalidRequest);
        for text in [
            "the service answered 400 (invalid_request_error): container: Input should be a valid id",
            "Container container_01 is not yours",
            "The container has expired",
        ] {
            assert!(says(invalid(), text), "{text}");
            assert!(says(ModelErrorKind::Api(ApiErrorKind::NotFound), text), "{text}");
            assert!(!says(ModelErrorKind::Api(ApiErrorKind::Overloaded), text), "{text}");
            assert!(!says(ModelErrorKind::Truncated, text), "{text}");
        }
        for text in [
            "container.skills: List should have at most 8 items",
            "messages.0.content.0.container_upload.file_id: Field required",
            "prompt is too long",
        ] {
            assert!(!says(invalid(), text), "{text}");
        }
    }

    #[test]
    fn the_location_is_found_where_the_service_writes_it() {
        let text = "messages.3.content.1.image.source.base64: image exceeds 5 MB maximum";
        assert_eq!(location_of(text), Some((3, 1)));
        assert_eq!(location_of("bad request: messages.12.content.0: too large"), Some((12, 0)));
        assert_eq!(location_of("messages.x and messages.4.content.5"), Some((4, 5)));
        for text in ["", "messages.1", "messages.1.content", "messages.99999999999999999999.content.1", "é"]
        {
            assert_eq!(location_of(text), None, "{text}");
        }
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
        assert_eq!(refused_block(could_not, &with(vec![text(), image()])), Some((2, 1)));
        assert_eq!(refused_block(could_not, &with(vec![Block::tool_result(&seen)])), Some((2, 0)));
        assert_eq!(refused_block(could_not, &with(vec![text()])), None);
        assert_eq!(refused_block(could_not, &[old.clone(), answer.clone()]), None);
        assert_eq!(refused_block("Your credit balance is too low", &with(vec![image()])), None);
        assert_eq!(refused_block::<Message>(could_not, &[]), None);
    }
}
