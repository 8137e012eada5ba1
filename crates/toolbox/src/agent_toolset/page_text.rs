//! The text of a page of HTML: without its markup, scripts and styles. It is for reading, not for rendering.

/// Elements whose content is not shown.
const HIDDEN: [&str; 6] = ["script", "style", "noscript", "template", "svg", "head"];

/// Elements that begin a new line.
const BLOCKS: [&str; 27] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "br",
    "dd",
    "div",
    "dl",
    "dt",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "main",
    "ol",
    "p",
    "pre",
    "section",
    "tr",
    "ul",
];

/// Whether content of this media type is a page of HTML.
pub(super) fn is_html(bytes: &[u8]) -> bool {
    let start = bytes.trim_ascii_start();
    let start = start.get(..start.len().min(14)).unwrap_or_default().to_ascii_lowercase();
    [b"<!doctype html".as_slice(), b"<html"].iter().any(|mark| start.starts_with(mark))
}

/// The text of a page.
pub(super) fn page_text(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        push_words(&mut text, before);
        if let Some(comment) = tag.strip_prefix("<!--") {
            rest = comment.find("-->").and_then(|end| comment.get(end + 3..)).unwrap_or_default();
            continue;
        }
        let Some(end) = tag.find('>') else {
            rest = tag;
            break;
        };
        let (inner, after) = (tag.get(1..end).unwrap_or_default(), tag.get(end + 1..).unwrap_or_default());
        let name: String =
            inner.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect::<String>();
        let name = name.to_ascii_lowercase();
        if name.is_empty() && !inner.starts_with(['/', '!', '?']) {
            // This `<` does not begin a tag.
            push_words(&mut text, "<");
            rest = tag.get(1..).unwrap_or_default();
            continue;
        }
        if BLOCKS.contains(&name.as_str()) {
            new_line(&mut text);
        }
        if name == "li" && !inner.starts_with('/') {
            text.push_str("- ");
        }
        rest = if HIDDEN.contains(&name.as_str()) && !inner.starts_with('/') && !inner.ends_with('/') {
            after_element(after, &name)
        } else {
            after
        };
    }
    push_words(&mut text, rest);
    text.trim().to_owned()
}

/// The text after the end tag of a hidden element.
fn after_element<'h>(html: &'h str, name: &str) -> &'h str {
    let mut rest = html;
    while let Some(at) = rest.find("</") {
        rest = rest.get(at + 2..).unwrap_or_default();
        if rest.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name)) {
            return rest.find('>').and_then(|end| rest.get(end + 1..)).unwrap_or_default();
        }
    }
    ""
}

fn new_line(text: &mut String) {
    let kept = text.trim_end_matches(' ').len();
    text.truncate(kept);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// Adds words, and converts each run of white space to one space.
fn push_words(text: &mut String, words: &str) {
    let mut words = words;
    while let Some(character) = words.chars().next() {
        let (decoded, length) = match character {
            '&' => entity(words),
            other => (other, other.len_utf8()),
        };
        words = words.get(length..).unwrap_or_default();
        if !decoded.is_whitespace() {
            text.push(decoded);
        } else if !text.is_empty() && !text.ends_with(char::is_whitespace) {
            text.push(' ');
        }
    }
}

/// The character of the entity at the start, and its length; the `&` itself when there is none.
fn entity(text: &str) -> (char, usize) {
    const NAMED: [(&str, char); 8] = [
        ("amp", '&'),
        ("lt", '<'),
        ("gt", '>'),
        ("quot", '"'),
        ("apos", '\''),
        ("nbsp", ' '),
        ("mdash", '—'),
        ("ndash", '–'),
    ];
    let name = text.get(1..).and_then(|rest| rest.split_once(';')).map(|(name, _)| name);
    let decoded = name.filter(|name| name.len() <= 8).and_then(|name| {
        let number = name.strip_prefix('#').and_then(|number| match number.strip_prefix(['x', 'X']) {
            Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok(),
            None => number.parse().ok(),
        });
        let named = NAMED.iter().find(|(known, _)| *known == name).map(|(_, character)| *character);
        Some((number.and_then(char::from_u32).or(named)?, name.len() + 2))
    });
    decoded.unwrap_or(('&', 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_is_its_text() {
        let page = "<!DOCTYPE html><html><head><title>T</title><style>p {}</style></head><body><h1>Sales &amp; more</h1>\n\
                    <p>One <b>two</b>\n  three.</p><ul><li>a</li><li>1 < 2</li></ul><script>if (a < b) {}</script>\
                    <!-- no --><p>&#228;&#xE4;&nope;</p></body></html>";
        assert!(is_html(page.as_bytes()) && is_html(b"\n <HTML>") && !is_html(b"<p>a") && !is_html(b""));
        assert_eq!(page_text(page), "Sales & more\nOne two three.\n- a\n- 1 < 2\nää&nope;");
    }

    proptest! {
        #[test]
        fn any_text_is_read(html in "(<|>|/|!|-|&|;|script|p|ä|#|x4| |\\n){0,60}") {
            let text = page_text(&html);
            prop_assert!(text.len() <= html.len() + 2 * html.matches("li").count());
        }
    }
}
