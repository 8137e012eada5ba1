//! Validates entry paths: relative, of plain segments, and naming the same file on every system.

use caseless::Caseless as _;
use conjure_base::text::is_invisible;
use unicode_normalization::UnicodeNormalization as _;

use crate::package::limits::PackageLimits;
use crate::package::problem::PackageProblem;

/// The maximum length of a segment in bytes on common file systems.
const MAX_SEGMENT_BYTES: usize = 255;

/// Device names on Windows, with any extension.
const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];

/// Checks the path of an entry, without the final slash of a directory.
pub(crate) fn check(path: &str, limits: &PackageLimits) -> Result<(), PackageProblem> {
    let refused = |reason| Err(PackageProblem::UnsafePath { reason });
    if path.len() > limits.path_bytes {
        let limit = limits.path_bytes as u64;
        return Err(PackageProblem::Limit { what: "bytes in its path", limit });
    }
    if path.is_empty() {
        return refused("it is empty");
    }
    if path.starts_with('/') {
        return refused("it is absolute");
    }
    if path.contains('\\') {
        return refused("it has a backslash, which separates directories on Windows");
    }
    if path.split('/').count() > limits.path_depth {
        let limit = limits.path_depth as u64;
        return Err(PackageProblem::Limit { what: "levels in its path", limit });
    }
    path.split('/').try_for_each(check_segment)
}

fn check_segment(segment: &str) -> Result<(), PackageProblem> {
    let refused = |reason| Err(PackageProblem::UnsafePath { reason });
    match segment {
        "" => return refused("it has an empty segment"),
        "." => return refused("it has a segment `.`"),
        ".." => return refused("it has a segment `..`"),
        _ => {}
    }
    if segment.len() > MAX_SEGMENT_BYTES {
        return refused("a segment has more than 255 bytes");
    }
    if segment.chars().any(is_control) {
        return refused("it has a control character");
    }
    if segment.chars().any(|c| is_invisible(c) && !is_variation(&c)) {
        return refused("it has a character that cannot be seen");
    }
    if segment.contains(':') {
        return refused("it has a colon, which marks a drive or a stream on Windows");
    }
    if segment.contains(['<', '>', '"', '|', '?', '*']) {
        return refused("it has one of the characters `<>\"|?*`, which are not allowed in names on Windows");
    }
    if segment.ends_with(['.', ' ']) {
        return refused("a segment ends with a dot or a space, which some systems drop");
    }
    if is_device(segment) {
        return refused("a segment is the name of a device on Windows");
    }
    Ok(())
}

/// Whether the character is a control character, or changes the direction or the lines of a text.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{200E}' | '\u{200F}' | '\u{61C}')
}

/// Whether the character selects an emoji or another variant of the previous one. It occurs in honest names, and
/// some file systems ignore it.
const fn is_variation(c: &char) -> bool {
    matches!(c, '\u{FE00}'..='\u{FE0F}')
}

fn is_device(segment: &str) -> bool {
    let stem = segment.split('.').next().unwrap_or_default().trim_end_matches(' ');
    if DEVICES.iter().any(|device| stem.eq_ignore_ascii_case(device)) {
        return true;
    }
    let Some((head, digit)) = stem.char_indices().nth(3).map(|(at, _)| stem.split_at(at)) else {
        return false;
    };
    let is_port = head.eq_ignore_ascii_case("COM") || head.eq_ignore_ascii_case("LPT");
    let mut digits = digit.chars();
    let is_digit = matches!(digits.next(), Some('0'..='9' | '¹' | '²' | '³'));
    is_port && is_digit && digits.next().is_none()
}

/// Returns a key that is equal for two segments that are one name on some file system. File systems ignore
/// different things, so the key is coarser than any of them: the full case folding of the compatibility form
/// (Unicode 3.13, D146), of the uppercase form, since some compare that.
pub(crate) fn collision_key(segment: &str) -> String {
    if segment.is_ascii() {
        return segment.to_ascii_lowercase();
    }
    let upper = segment.chars().filter(|c| !is_variation(c)).nfkd().flat_map(char::to_uppercase);
    upper.nfd().default_case_fold().nfkd().default_case_fold().nfkd().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_path(path: &str, reason: Option<&str>) {
        let outcome = check(path, &PackageLimits::default());
        match (outcome, reason) {
            (Ok(()), None) => {}
            (Err(problem), Some(reason)) if problem.to_string().contains(reason) => {}
            (outcome, _) => panic!("{path:?}: {outcome:?}"),
        }
    }

    #[test]
    fn plain_paths_pass() {
        for path in [
            "a",
            "a/b.txt",
            ".hidden",
            "..a",
            "a..b",
            "ünï/código",
            "con-text",
            "console",
            "com",
            "com10",
            "lpt",
            "nullable.md",
            "a b",
            "日本.md",
            "COMe",
            "\u{2764}\u{FE0F}.md",
            "it's (a) [b] {c} #1 & 50%~$.md",
        ] {
            check_path(path, None);
        }
    }

    #[test]
    fn traversing_or_ambiguous_paths_are_rejected() {
        for (path, reason) in [
            ("", "empty"),
            ("/etc/passwd", "absolute"),
            ("../x", "`..`"),
            ("a/../../x", "`..`"),
            ("a/./b", "`.`"),
            ("a//b", "empty segment"),
            ("a\\b", "backslash"),
            ("..\\x", "backslash"),
            ("C:/x", "colon"),
            ("c:x", "colon"),
            ("a/b:stream", "colon"),
            ("a\0b", "control"),
            ("a\nb", "control"),
            ("a/\u{202E}txt.exe", "control"),
            ("a\u{85}", "control"),
            ("a\u{200F}", "control"),
            ("a\u{61C}", "control"),
            ("SKILL\u{200B}.md", "cannot be seen"),
            ("a\u{200D}b", "cannot be seen"),
            ("\u{FEFF}a", "cannot be seen"),
            ("a\u{AD}b", "cannot be seen"),
            ("a/\u{2060}b", "cannot be seen"),
            ("\u{3164}", "cannot be seen"),
            ("a\u{E0041}", "cannot be seen"),
            ("a<b", "`<>\"|?*`"),
            ("a>b", "`<>\"|?*`"),
            ("a\"b", "`<>\"|?*`"),
            ("a|b", "`<>\"|?*`"),
            ("what?.md", "`<>\"|?*`"),
            ("*/b", "`<>\"|?*`"),
            ("a.", "dot or a space"),
            ("a /b", "dot or a space"),
            ("...", "dot or a space"),
            ("NUL", "device"),
            ("a/con.txt", "device"),
            ("aux .md", "device"),
            ("Com1", "device"),
            ("lpt9.x.y", "device"),
            ("COM¹", "device"),
            ("conin$", "device"),
        ] {
            check_path(path, Some(reason));
        }
        check_path(&"x".repeat(256), Some("255 bytes"));
        check_path(&"x/".repeat(300), Some("limit of 512 bytes in its path"));
        check_path(&["x"; 17].join("/"), Some("limit of 16 levels"));
        check_path(&["x"; 16].join("/"), None);
    }

    #[test]
    fn names_equal_on_some_file_system_have_the_same_key() {
        for (a, b) in [
            ("README", "readme"),
            ("\u{E9}", "e\u{301}"),
            ("É", "e\u{301}"),
            ("ß", "SS"),
            ("ς", "Σ"),
            ("Å", "\u{212B}"),
            ("\u{1E9E}", "ß"),
            ("STRASSE", "stra\u{1E9E}e"),
            ("\u{FB03}x", "FFIX"),
            ("\u{2764}\u{FE0F}", "\u{2764}"),
            ("①", "1"),
            ("\u{FF21}", "a"),
            ("\u{1C5}", "DŽ"),
            ("\u{13A0}", "\u{AB70}"),
            ("K", "\u{212A}"),
            ("\u{17F}", "s"),
            ("\u{3F4}", "θ"),
            ("\u{1F80}", "\u{1F88}"),
        ] {
            assert_eq!(collision_key(a), collision_key(b), "{a} {b}");
        }
        for (a, b) in [("a", "b"), ("é", "e"), ("①", "2"), ("か", "が"), ("", "\u{301}")] {
            assert_ne!(collision_key(a), collision_key(b), "{a} {b}");
        }
    }

    #[test]
    fn the_key_of_a_character_ignores_case_and_normal_form() {
        for c in '\u{80}'..=char::MAX {
            let original = c.to_string();
            let forms = [
                original.to_uppercase(),
                original.to_lowercase(),
                original.nfc().collect(),
                original.nfd().collect(),
                original.nfkc().collect(),
                original.nfkd().collect(),
                original.chars().default_case_fold().collect(),
            ];
            for form in forms.into_iter().filter(|form| *form != original) {
                assert_eq!(collision_key(&original), collision_key(&form), "{c:?} and {form:?}");
            }
        }
    }
}
