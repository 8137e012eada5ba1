//! Converts untrusted bytes to text for a model: valid UTF-8, without control characters, truncated between characters.

pub mod call_text;

use std::borrow::Cow;

/// The replacement for bytes that are not UTF-8.
const REPLACEMENT: char = '\u{FFFD}';

/// Converts `bytes` to text. Invalid UTF-8 becomes U+FFFD, and control characters become symbols (`␀`, `␛`). Tabs and line ends
/// stay. The result has at most three times as many bytes.
pub(crate) fn clean(bytes: &[u8]) -> String {
    characters(bytes).map(|(character, _)| character).collect()
}

/// Whether [`clean`] would leave `text` as it is.
pub(crate) fn is_clean(text: &str) -> bool {
    text.chars().all(|c| c == printable_char(c))
}

/// A short quotation for a message: cleaned, on one line, at most 120 characters.
pub(crate) fn quote(text: &str) -> String {
    const MOST: usize = 120;
    let mut characters = characters(text.as_bytes()).map(|(c, _)| if c == '\n' { '␊' } else { c });
    let mut quoted: String = characters.by_ref().take(MOST).collect();
    if characters.next().is_some() {
        quoted.push('…');
    }
    quoted
}

/// Head and tail of a truncated text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Truncated {
    /// From the start.
    pub(crate) head: String,
    /// From the end; empty when `omitted` is 0.
    pub(crate) tail: String,
    /// The exact number of source bytes in neither.
    pub(crate) omitted: u64,
}

/// Truncates a source of `total` bytes to `budget` bytes of text. `head` and `tail` are its known first and last bytes. They do not
/// overlap. If they have `total` bytes together, they are the whole source.
pub(crate) fn truncate(head: &[u8], tail: &[u8], total: u64, budget: usize) -> Truncated {
    let known = (head.len() + tail.len()) as u64;
    if known < total {
        return split_budget(trim_incomplete_end(head), trim_incomplete_start(tail), total, budget);
    }
    let whole = if tail.is_empty() { Cow::Borrowed(head) } else { Cow::Owned([head, tail].concat()) };
    // Text is never shorter than its bytes, so a longer source cannot fit.
    if whole.len() <= budget {
        let text = clean(&whole);
        if text.len() <= budget {
            return Truncated { head: text, tail: String::new(), omitted: 0 };
        }
    }
    // The text is longer than the budget, so head and tail cannot overlap.
    split_budget(&whole, &whole, total, budget)
}

fn split_budget(head: &[u8], tail: &[u8], total: u64, budget: usize) -> Truncated {
    let half = budget / 2;
    let (head, from_head) = take(characters(head), half);
    // A character has at most four bytes, so a longer tail is of no use.
    let near = match tail.len().checked_sub(half.saturating_mul(4)) {
        Some(offset @ 1..) => trim_incomplete_start(&tail[offset..]),
        _ => tail,
    };
    let mut near: Vec<(char, usize)> = characters(near).collect();
    near.reverse();
    let (tail, from_tail) = take(near.into_iter(), half);
    Truncated {
        head,
        tail: tail.chars().rev().collect(),
        omitted: total.saturating_sub(from_head + from_tail),
    }
}

/// Takes as many characters as fit. Returns them and the number of their source bytes.
fn take(characters: impl Iterator<Item = (char, usize)>, budget: usize) -> (String, u64) {
    let (mut text, mut consumed) = (String::new(), 0);
    for (character, bytes) in characters {
        if text.len() + character.len_utf8() > budget {
            break;
        }
        text.push(character);
        consumed += bytes as u64;
    }
    (text, consumed)
}

/// The cleaned characters of `bytes`, each with the number of its source bytes.
fn characters(bytes: &[u8]) -> impl Iterator<Item = (char, usize)> {
    bytes.utf8_chunks().flat_map(|chunk| {
        let invalid = chunk.invalid().len();
        let valid = chunk.valid().chars().map(|c| (printable_char(c), c.len_utf8()));
        valid.chain((invalid > 0).then_some((REPLACEMENT, invalid)))
    })
}

/// The printable form of a character. Symbols keep control characters visible.
fn printable_char(character: char) -> char {
    match character {
        '\t' | '\n' | '\r' => character,
        '\0'..='\u{1F}' => char::from_u32('\u{2400}' as u32 + character as u32).unwrap_or(REPLACEMENT),
        '\u{7F}' => '\u{2421}',
        '\u{80}'..='\u{9F}' => REPLACEMENT,
        other => other,
    }
}

/// Removes an incomplete character at the end.
fn trim_incomplete_end(bytes: &[u8]) -> &[u8] {
    for back in 1..=bytes.len().min(3) {
        let at = bytes.len() - back;
        let needed = match bytes[at] {
            0x80..=0xBF => continue,
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => 1,
        };
        return if needed > back { &bytes[..at] } else { bytes };
    }
    bytes
}

/// Removes an incomplete character at the start.
fn trim_incomplete_start(bytes: &[u8]) -> &[u8] {
    let broken = bytes.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xBF)).count();
    &bytes[broken..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_characters_become_pictures_and_broken_bytes_marks() {
        assert_eq!(clean(b"a\0\x1b[31mred\r\n\t\x7f"), "a␀␛[31mred\r\n\t␡");
        assert_eq!(clean(b"ok \xff\xfe \xc3"), "ok \u{FFFD}\u{FFFD} \u{FFFD}");
        assert_eq!(clean("ß 漢 🦀".as_bytes()), "ß 漢 🦀");
    }

    #[test]
    fn a_cut_falls_between_characters_and_counts_what_it_leaves_out() {
        let source = "ä".repeat(10).into_bytes();
        // Both cuts fall into the middle of an `ä`.
        let cut = truncate(&source[..5], &source[15..], 20, 100);
        assert_eq!(cut, Truncated { head: "ää".to_owned(), tail: "ää".to_owned(), omitted: 12 });
    }

    #[test]
    fn quotations_are_short_and_on_one_line() {
        assert_eq!(quote("a\nb\0"), "a␊b␀");
        assert_eq!(quote(&"x".repeat(1000)).chars().count(), 121);
    }

    proptest! {
        #[test]
        fn a_cut_fits_and_its_counts_are_exact(bytes: Vec<u8>, head in 0usize..64, tail in 0usize..64, budget in 0usize..128) {
            let head = head.min(bytes.len());
            let tail = tail.min(bytes.len() - head);
            let cut = truncate(&bytes[..head], &bytes[bytes.len() - tail..], bytes.len() as u64, budget);
            prop_assert!(cut.head.len() + cut.tail.len() <= budget);
            prop_assert!(is_clean(&cut.head) && is_clean(&cut.tail));
            if cut.omitted == 0 && head + tail == bytes.len() {
                prop_assert_eq!(cut.head + &cut.tail, clean(&bytes));
            }
        }

        #[test]
        fn head_tail_and_count_of_plain_text_add_up(text in "[a-zä漢]{0,200}", budget in 0usize..100) {
            let cut = truncate(text.as_bytes(), b"", text.len() as u64, budget);
            prop_assert!(text.starts_with(&cut.head) && text.ends_with(&cut.tail));
            prop_assert_eq!((cut.head.len() + cut.tail.len()) as u64 + cut.omitted, text.len() as u64);
        }

        #[test]
        fn cleaning_twice_changes_nothing(bytes: Vec<u8>) {
            let once = clean(&bytes);
            prop_assert!(is_clean(&once));
            prop_assert_eq!(clean(once.as_bytes()), once);
        }
    }
}
