//! The session's names for the tools of servers: `mcp__SERVER__TOOL`, as in other programs.

use std::collections::BTreeSet;

use conjure_base::Digest;

/// The maximum length of a name that all model services accept, in bytes.
const MAX_BYTES: usize = 64;

/// How many digits of a digest make a shortened name unique.
const SUFFIX_DIGITS: usize = 8;

/// The session's name for a tool of a server. Characters that model services refuse become `_`.
///
/// A name that is too long or already in `taken` gets a suffix. The suffix is a digest of the full name, so it is the same in every
/// session.
pub(in crate::client) fn tool_name(server: &str, tool: &str, taken: &mut BTreeSet<String>) -> String {
    let full = format!("mcp__{server}__{tool}");
    let plain: String = full
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
        .collect();
    let name = if plain.len() <= MAX_BYTES && !taken.contains(&plain) {
        plain
    } else {
        let digits = Digest::of_bytes(full.as_bytes()).to_hex();
        let head: String = plain.chars().take(MAX_BYTES - SUFFIX_DIGITS - 1).collect();
        format!("{head}_{}", digits.get(..SUFFIX_DIGITS).unwrap_or_default())
    };
    taken.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_other_programs_and_long_ones_stay_apart() {
        let mut taken = BTreeSet::new();
        assert_eq!(tool_name("git", "git_status", &mut taken), "mcp__git__git_status");
        let other = tool_name("git", "git status", &mut taken);
        assert!(other.starts_with("mcp__git__git_status_"), "{other}");
        let (long, longer) = ("x".repeat(80), "x".repeat(81));
        let (one, other) = (tool_name("a", &long, &mut taken), tool_name("a", &longer, &mut taken));
        assert_ne!(one, other);
        assert_eq!(one.len(), MAX_BYTES);
        assert_eq!(one, tool_name("a", &long, &mut BTreeSet::new()), "the same in every session");
    }

    proptest! {
        #[test]
        fn every_name_is_accepted_by_model_services(tools in proptest::collection::vec("\\PC{0,90}", 0..8)) {
            let mut taken = BTreeSet::new();
            for tool in &tools {
                let name = tool_name("server", tool, &mut taken);
                prop_assert!((1..=MAX_BYTES).contains(&name.len()));
                prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')));
            }
        }
    }
}
