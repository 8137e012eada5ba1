//! Characters that deceive whoever reads a text: they are not seen, or have others shown in another order.

use std::borrow::Cow;

/// The characters of a text, and of each whether it deceives.
///
/// Marks that join letters, or choose a shape for one, do not where a letter or sign that is not ASCII stands before them:
/// Persian and many emoji need them there.
pub fn judged(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut before = None;
    let mut rest = text.chars().peekable();
    std::iter::from_fn(move || {
        let c = rest.next()?;
        let is_seen = |c: char| !c.is_ascii() && !is_joiner(c) && !is_always_deceptive(c);
        let deceives = if is_variation(c) {
            !before.is_some_and(|before| is_seen(before) && !is_variation(before))
        } else if is_joiner(c) {
            !(before.is_some_and(is_seen) && rest.peek().is_some_and(|next| is_seen(*next)))
        } else {
            is_always_deceptive(c)
        };
        before = Some(c);
        Some((c, deceives))
    })
}

/// The text without the characters that deceive.
#[must_use]
pub fn without_deceptive(text: &str) -> Cow<'_, str> {
    if judged(text).any(|(_, deceives)| deceives) {
        judged(text).filter(|(_, deceives)| !deceives).map(|(c, _)| c).collect::<String>().into()
    } else {
        text.into()
    }
}

const fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

const fn is_variation(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}')
}

/// Marks of direction, what has no width or is blank by nature, tags.
const fn is_always_deceptive(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180e}'
        | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_or_turns_others_round_deceives() {
        for deceptive in ["\u{202e}", "\u{2066}", "\u{200b}", "\u{feff}", "\u{e0041}", "\u{e0100}", "\u{ad}"]
        {
            assert_eq!(without_deceptive(&format!("r{deceptive}m é{deceptive}à")), "rm éà", "{deceptive:?}");
        }
        assert_eq!(without_deceptive("r\u{200d}m \u{200c}x 1\u{fe0f}"), "rm x 1");
        assert!(matches!(without_deceptive("Région\tof\n漢字"), Cow::Borrowed(_)));
    }

    #[test]
    fn languages_and_emoji_keep_what_they_need_and_nothing_hides_in_it() {
        for kept in ["می\u{200c}خواهم", "👩\u{200d}👧", "❤\u{fe0f}\u{200d}🔥"] {
            assert_eq!(without_deceptive(kept), kept);
        }
        assert_eq!(without_deceptive("é\u{200d}\u{200c}\u{200d}é"), "éé");
        assert_eq!(without_deceptive("é\u{fe0f}\u{fe01}\u{fe02}"), "é\u{fe0f}");
    }
}
