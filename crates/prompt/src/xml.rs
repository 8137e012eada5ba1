//! Writer of XML fragments for a model. All text is escaped, so no text can close an element that it did not open.

use std::borrow::Cow;

use conjure_base::text::strip_deceptive;

/// Replacement of a character that XML cannot contain.
const REPLACEMENT: &str = "\u{FFFD}";

/// `text` as XML character data or attribute value: `&amp; &lt; &gt; &quot; &#x27;`, as Python's `html.escape` writes them.
///
/// Characters that XML 1.0 forbids (control characters except tab and line ends, U+FFFE, U+FFFF) become U+FFFD. Otherwise a parser
/// would refuse the whole block.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| entity(c).is_none()) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for character in text.chars() {
        match entity(character) {
            Some(entity) => escaped.push_str(entity),
            None => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

/// The replacement of `character`, or `None` where it stays.
const fn entity(character: char) -> Option<&'static str> {
    Some(match character {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '"' => "&quot;",
        '\'' => "&#x27;",
        '\t' | '\n' | '\r' => return None,
        '\0'..='\u{1F}' | '\u{FFFE}' | '\u{FFFF}' => REPLACEMENT,
        _ => return None,
    })
}

/// `text` with U+FFFD for the characters that XML 1.0 forbids; everything else is unchanged.
pub(crate) fn without_forbidden(text: &str) -> Cow<'_, str> {
    let is_forbidden = |c: char| entity(c) == Some(REPLACEMENT);
    if text.contains(is_forbidden) {
        Cow::Owned(text.replace(is_forbidden, REPLACEMENT))
    } else {
        Cow::Borrowed(text)
    }
}

/// Writes elements, with each tag and each value on its own line, without indentation. Values and names have no hidden text: names and paths
/// of skills may have some.
#[derive(Debug, Default)]
pub(crate) struct XmlWriter {
    text: String,
}

impl XmlWriter {
    /// Writes `<tag>`, what `content` writes, and `</tag>`.
    pub(crate) fn element(&mut self, tag: &'static str, content: impl FnOnce(&mut Self)) {
        self.line(&format!("<{tag}>"));
        content(self);
        self.line(&format!("</{tag}>"));
    }

    /// Writes an element with a name: `<tag name="...">`.
    pub(crate) fn named(&mut self, tag: &'static str, name: &str, content: impl FnOnce(&mut Self)) {
        self.line(&format!("<{tag} name=\"{}\">", escape(&strip_deceptive(name))));
        content(self);
        self.line(&format!("</{tag}>"));
    }

    /// Writes an element that contains this value.
    pub(crate) fn value(&mut self, tag: &'static str, value: &str) {
        self.element(tag, |xml| xml.line(&escape(&strip_deceptive(value))));
    }

    /// Writes XML that is already escaped.
    pub(crate) fn fragment(&mut self, xml: &str) {
        self.line(xml);
    }

    /// Writes an empty line.
    pub(crate) fn blank(&mut self) {
        self.line("");
    }

    /// The written text, without a newline at the end.
    pub(crate) fn finish(mut self) -> String {
        self.text.truncate(self.text.trim_end_matches('\n').len());
        self.text
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_markup_is_escaped() {
        assert_eq!(escape(r#"</a> & "b" 'c' ]]>"#), "&lt;/a&gt; &amp; &quot;b&quot; &#x27;c&#x27; ]]&gt;");
    }

    #[test]
    fn characters_that_xml_forbids_are_replaced_and_line_ends_stay() {
        assert_eq!(escape("a\0b\u{1b}c\u{FFFF}"), "a\u{FFFD}b\u{FFFD}c\u{FFFD}");
        assert!(matches!(escape("tab\tline\r\nß 漢 🦀"), Cow::Borrowed(_)));
    }
}
