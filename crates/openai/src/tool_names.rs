//! Tool names on the wire: at most 64 of `A-Z`, `a-z`, `0-9`, `_` and `-`. Other names are mapped, and names in the answer are mapped
//! back ([`ToolNames`](conjure_model_http::ToolNames)).

use std::borrow::Cow;

use conjure_base::Digest;

/// The longest name that the service accepts, in bytes.
const MAX_NAME: usize = 64;
/// The number of hexadecimal digits of the digest that make a mapped name unique.
const DIGEST_DIGITS: usize = 8;

/// The name that a request uses: the name itself if it is valid. Otherwise invalid characters become `_`, and a part of the name's digest
/// is appended.
pub(crate) fn wire_name(name: &str) -> Cow<'_, str> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_valid) {
        return Cow::Borrowed(name);
    }
    let digest = Digest::of_bytes(name.as_bytes()).to_hex();
    let valid = name.chars().map(|c| if u8::try_from(c).is_ok_and(is_valid) { c } else { '_' });
    let mut mapped: String = valid.take(MAX_NAME - DIGEST_DIGITS - 1).collect();
    mapped.push('_');
    mapped.extend(digest.chars().take(DIGEST_DIGITS));
    Cow::Owned(mapped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use conjure_conversation::ToolDefinition;
    use conjure_model_http::ToolNames;
    use proptest::prelude::*;

    fn tool(name: &str) -> ToolDefinition {
        ToolDefinition { name: name.to_owned(), description: String::new(), input_schema: true.into() }
    }

    #[test]
    fn a_valid_name_is_kept_and_any_other_is_mapped_and_found_again() {
        let long = "a".repeat(64);
        let too_long = "a".repeat(65);
        for name in ["bash_tool", "A-1", long.as_str()] {
            assert_eq!(wire_name(name), name);
        }
        let names = ["skills.load", "skills_load", too_long.as_str(), "größe", ""];
        let known = ToolNames::new(&names.map(tool), wire_name);
        for name in names {
            assert_eq!(known.own_name(&wire_name(name)), name);
        }
        assert!(wire_name("skills.load").starts_with("skills_load_"));
        assert_ne!(wire_name("skills.load"), wire_name("skills:load"));
        assert_eq!(known.own_name("never_sent"), "never_sent");
    }

    proptest! {
        #[test]
        fn every_mapped_name_is_valid(name in "\\PC{0,80}") {
            let wire = wire_name(&name);
            prop_assert!((1..=64).contains(&wire.len()), "{wire}");
            prop_assert!(wire.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'), "{wire}");
            let known = ToolNames::new(&[tool(&name)], wire_name);
            prop_assert_eq!(known.own_name(&wire), name.as_str());
        }
    }
}
