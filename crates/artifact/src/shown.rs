//! How much of a text that somebody wrote an error shows. It owns no state.

/// In characters.
pub(crate) const LONGEST_SHOWN: usize = 200;

/// A text that is no URL, as far as it may be shown: without what may be a user name, a password, a query.
pub(crate) fn shown_text(text: &str) -> String {
    let text = text.find(['?', '#']).map_or(text, |end| &text[..end]);
    let (scheme, rest) = text.split_at(text.find("//").map_or(0, |at| at + 2));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, behind)| behind);
    let text: String = scheme.chars().chain(rest.chars()).take(LONGEST_SHOWN + 1).collect();
    cut(&text.escape_debug().to_string())
}

/// Its beginning.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_may_be_secret_is_not_shown() {
        assert_eq!(shown_text("https://user:pass@example.com/a?key=secret"), "https://example.com/a");
        assert_eq!(shown_text("https://a@b@example.com\n"), "https://example.com\\n");
        assert_eq!(shown_text("bob:hunter2@example.com"), "example.com");
        assert!(shown_text(&"ä".repeat(5000)).chars().count() <= LONGEST_SHOWN + 1);
    }

    proptest! {
        #[test]
        fn what_is_shown_is_short_and_without_a_query(text in ".{0,400}") {
            let shown = shown_text(&text);
            prop_assert!(shown.chars().count() <= LONGEST_SHOWN + 1);
            prop_assert!(!shown.contains('?') && !shown.contains('#'));
        }
    }
}
