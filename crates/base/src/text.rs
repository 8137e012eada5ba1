//! Text for messages and models: truncation, and removal of characters that a reader does not see.

use std::borrow::Cow;

/// The text, shortened to at most `max_chars` characters. A shortened text ends in `…`, which counts.
///
/// ```
/// use conjure_base::text::truncate;
///
/// assert_eq!(truncate("résumé", 6), "résumé");
/// assert_eq!(truncate("résumés", 6), "résum…");
/// ```
#[must_use]
pub fn truncate(text: &str, max_chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max_chars) {
        None => Cow::Borrowed(text),
        Some(_) if max_chars == 0 => Cow::Borrowed(""),
        Some(_) => {
            let end = text.char_indices().nth(max_chars - 1).map_or(text.len(), |(end, _)| end);
            Cow::Owned(format!("{}…", &text[..end]))
        }
    }
}

/// Whether a character is not shown, or changes the direction of others.
///
/// These are Unicode's *default ignorable* characters and the annotation marks. Joiners and variation selectors are
/// among them: honest names in Persian and many emoji contain those. [`strip_deceptive`] keeps them where they belong.
#[must_use]
pub const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text without the characters that deceive its reader: invisible ones, and those that reorder others.
///
/// A joiner stays between two characters that are not ASCII. A variation selector stays after such a character.
#[must_use]
pub fn strip_deceptive(text: &str) -> Cow<'_, str> {
    if classify_chars(text).any(|(_, is_deceptive)| is_deceptive) {
        classify_chars(text)
            .filter(|(_, is_deceptive)| !is_deceptive)
            .map(|(c, _)| c)
            .collect::<String>()
            .into()
    } else {
        text.into()
    }
}

/// Yields each character of a text with a flag: whether it deceives, as [`strip_deceptive`] decides.
pub fn classify_chars(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut previous = None;
    let mut rest = text.chars().peekable();
    std::iter::from_fn(move || {
        let c = rest.next()?;
        let is_base = |c: char| !c.is_ascii() && !is_joiner(c) && !is_always_deceptive(c);
        let is_deceptive = if is_variation_selector(c) {
            !previous.is_some_and(|previous| is_base(previous) && !is_variation_selector(previous))
        } else if is_joiner(c) {
            !(previous.is_some_and(is_base) && rest.peek().is_some_and(|next| is_base(*next)))
        } else {
            is_always_deceptive(c)
        };
        previous = Some(c);
        Some((c, is_deceptive))
    })
}

const fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// The usual variation selectors and those of Mongolian. The supplementary ones (`U+E0100` and up) can hide text.
const fn is_variation_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{180b}'..='\u{180d}' | '\u{180f}')
}

/// Line and paragraph separators deceive, too: most readers show them as a space or not at all.
const fn is_always_deceptive(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}') || (is_invisible(c) && !is_joiner(c) && !is_variation_selector(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_text_has_at_most_that_many_characters() {
        for (max_chars, expected) in [(0, ""), (1, "…"), (2, "ä…"), (3, "äbc"), (usize::MAX, "äbc")] {
            assert_eq!(truncate("äbc", max_chars), expected);
        }
        assert_eq!(truncate("", 0), "");
        assert!(matches!(truncate("äbc", 3), Cow::Borrowed(_)));
    }

    #[test]
    fn invisible_and_reordering_characters_are_stripped() {
        for deceptive in ["\u{202e}", "\u{2066}", "\u{200b}", "\u{feff}", "\u{e0041}", "\u{e0100}", "\u{ad}"]
        {
            assert_eq!(strip_deceptive(&format!("r{deceptive}m é{deceptive}à")), "rm éà", "{deceptive:?}");
        }
        assert_eq!(strip_deceptive("r\u{200d}m \u{200c}x 1\u{fe0f}"), "rm x 1");
        assert!(matches!(strip_deceptive("Région\tof\n漢字"), Cow::Borrowed(_)));
    }

    #[test]
    fn languages_and_emoji_keep_what_they_need_and_nothing_hides_in_it() {
        for kept in ["می\u{200c}خواهم", "👩\u{200d}👧", "❤\u{fe0f}\u{200d}🔥", "ᠠ\u{180b}ᠠ"]
        {
            assert_eq!(strip_deceptive(kept), kept);
        }
        assert_eq!(strip_deceptive("é\u{200d}\u{200c}\u{200d}é"), "éé");
        assert_eq!(strip_deceptive("é\u{fe0f}\u{fe01}\u{fe02}"), "é\u{fe0f}");
    }

    #[test]
    fn letters_spaces_and_line_ends_are_visible() {
        assert!(!"aß漢🦀 \t\r\n\u{a0}\u{301}".chars().any(is_invisible));
        assert!("\u{200d}\u{fe0f}\u{202e}\u{e0041}".chars().all(is_invisible));
    }
}
