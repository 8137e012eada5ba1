//! Where in a request the block is that the service refused.

/// The message and the block that the text of a refusal names as `messages.N.content.M`, both from 0.
pub(crate) fn location_of(text: &str) -> Option<(usize, usize)> {
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
    use super::location_of;

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
}
