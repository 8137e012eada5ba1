//! Cleans a text for the terminal while it arrives in pieces.

use conjure_base::text::is_invisible;

use crate::cli::terminal::printable_lines;

/// The maximum size of invisible characters that wait for the next visible one, in bytes.
const MAX_HELD_BYTES: usize = 64;

/// Cleans the pieces of a text as if they were one text.
///
/// Whether an invisible character deceives depends on the characters before and after it. So the last visible character
/// is remembered, and invisible characters at the end of a piece wait for the next piece.
#[derive(Debug, Default)]
pub(super) struct StreamCleaner {
    before: Option<char>,
    held: String,
}

impl StreamCleaner {
    /// Takes a piece. Returns the text that can be shown now.
    pub(super) fn push(&mut self, piece: &str) -> String {
        let mut text = std::mem::take(&mut self.held);
        text.push_str(piece);
        let visible = text.trim_end_matches(is_invisible).len();
        if text.len() - visible <= MAX_HELD_BYTES {
            self.held = text.split_off(visible);
        }
        self.clean(&text)
    }

    /// Ends the text. Returns the rest of it.
    pub(super) fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.held);
        let shown = self.clean(&rest);
        self.before = None;
        shown
    }

    fn clean(&mut self, text: &str) -> String {
        let Some(last) = text.chars().next_back() else { return String::new() };
        let shown = match self.before {
            None => printable_lines(text),
            Some(before) => {
                let before = before.to_string();
                let all = printable_lines(&format!("{before}{text}"));
                all.strip_prefix(&printable_lines(&before))
                    .map_or_else(|| printable_lines(text), str::to_owned)
            }
        };
        self.before = Some(last).filter(|last| !is_invisible(*last));
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cleans the text in two pieces, cut at each place, and one character at a time.
    fn check(text: &str) {
        let expected = printable_lines(text);
        let cleaned = |pieces: &[&str]| {
            let mut cleaner = StreamCleaner::default();
            let shown: String = pieces.iter().map(|piece| cleaner.push(piece)).collect();
            shown + &cleaner.finish()
        };
        for (at, _) in text.char_indices() {
            assert_eq!(cleaned(&[&text[..at], &text[at..]]), expected, "{text:?} cut at {at}");
        }
        let ends: Vec<usize> = text.char_indices().map(|(at, c)| at + c.len_utf8()).collect();
        let starts = text.char_indices().map(|(at, _)| at);
        let characters: Vec<&str> = starts.zip(ends).map(|(from, to)| &text[from..to]).collect();
        assert_eq!(cleaned(&characters), expected, "{text:?} by characters");
    }

    #[test]
    fn pieces_are_shown_as_the_whole_text_is() {
        for text in [
            "Hello\n\tworld",
            "a\x1b[2Jb\u{9b}2Kc\u{202e}d\u{200b}e\u{e0041}f\u{feff}g",
            "می\u{200c}خواهم",
            "👩\u{200d}👧 ❤\u{fe0f}\u{200d}🔥 é\u{200d}\u{200c}\u{200d}é",
            "1\u{fe0f} é\u{fe0f}\u{fe01}",
            "x\u{200d}",
        ] {
            check(text);
        }
    }

    #[test]
    fn what_is_never_seen_is_not_held_for_ever() {
        let mut cleaner = StreamCleaner::default();
        let shown: String = (0..100).map(|_| cleaner.push("\u{200b}")).collect();
        assert!(shown.contains("\\u{200b}"));
        assert!(cleaner.held.len() <= MAX_HELD_BYTES);
    }
}
