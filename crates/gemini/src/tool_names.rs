//! Tool names in the form that the service accepts: a letter or `_` first, then `[A-Za-z0-9_.:-]`, 128 characters at most.
//!
//! Most names are sent unchanged. Any other name is sent as `t:`, its characters with `_` for invalid ones, and a digest of the name. So
//! the same name always gets the same form. [`ToolNames`](conjure_model_http::ToolNames) maps the names in the answer back.

use std::borrow::Cow;

use conjure_base::Digest;

/// The longest name, in bytes.
pub(crate) const MAX_NAME: usize = 128;
/// The prefix of mapped names. A valid name with this prefix is mapped too, so that no two names collide.
const MAPPED: &str = "t:";
/// How many characters of the name a mapped name keeps.
const MAX_NAME_PREFIX: usize = 80;
/// The number of hexadecimal digits of the digest in a mapped name.
const DIGEST_DIGITS: usize = 16;

/// The name in the form that the service accepts.
pub(crate) fn wire_name(name: &str) -> Cow<'_, str> {
    if is_wire_name(name) && !name.starts_with(MAPPED) {
        return Cow::Borrowed(name);
    }
    let prefix = name.chars().take(MAX_NAME_PREFIX);
    let prefix: String = prefix.map(|c| if is_name_char(c) { c } else { '_' }).collect();
    let digest = Digest::of_bytes(name.as_bytes()).to_hex();
    Cow::Owned(format!("{MAPPED}{prefix}:{}", &digest[..DIGEST_DIGITS]))
}

/// Whether the service accepts this name.
pub(crate) fn is_wire_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.chars().next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(is_name_char)
}

const fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use conjure_conversation::ToolDefinition;
    use conjure_model_http::ToolNames;
    use proptest::prelude::*;

    fn tool(name: &str) -> ToolDefinition {
        ToolDefinition {
            name: name.to_owned(),
            description: String::new(),
            input_schema: serde_json::json!({}),
        }
    }

    #[test]
    fn names_that_the_service_takes_pass_unchanged() {
        let longest = "a".repeat(128);
        for name in ["bash_tool", "_x", "skills.load", "a:b-c", "T", longest.as_str()] {
            assert_eq!(wire_name(name), name);
            assert_eq!(ToolNames::new(&[tool(name)], wire_name).own_name(name), name);
        }
    }

    #[test]
    fn other_names_are_mapped_and_read_back() {
        let long = "x".repeat(129);
        let also_long = format!("{}y", "x".repeat(128));
        let names = ["9lives", "-a", "", "größe", "a b", "t:mine", "/bin/sh", &long, &also_long];
        let tools: Vec<ToolDefinition> = names.iter().map(|name| tool(name)).collect();
        let table = ToolNames::new(&tools, wire_name);
        for name in names {
            let wire = wire_name(name).into_owned();
            assert!(is_wire_name(&wire) && wire != name, "{name} is {wire}");
            assert_eq!(table.own_name(&wire), name);
        }
        let digest = Digest::of_bytes(b"9lives").to_hex();
        assert_eq!(wire_name("9lives"), format!("t:9lives:{}", &digest[..16]));
        assert_eq!(table.own_name("t:unknown"), "t:unknown");
    }

    proptest! {
        #[test]
        fn every_name_becomes_one_that_the_service_takes(name in "\\PC{0,200}") {
            let wire = wire_name(&name);
            prop_assert!(is_wire_name(&wire), "{}", wire);
            let table = ToolNames::new(&[tool(&name)], wire_name);
            prop_assert_eq!(table.own_name(&wire), name.as_str());
        }
    }
}
