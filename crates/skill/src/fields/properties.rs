//! A skill's properties as the reference implementation prints them.

use std::fmt::Write as _;

use serde::Serialize;

use crate::fields::metadata::Metadata;
use crate::frontmatter::Frontmatter;

/// The fields of a frontmatter, in the reference's order. Missing fields and an empty `metadata` are left out.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Properties<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    license: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compatibility: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_tools: Option<&'a str>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
}

impl<'a> Properties<'a> {
    pub(crate) fn of(frontmatter: &'a Frontmatter) -> Self {
        Self {
            name: frontmatter.name().as_str(),
            description: frontmatter.description(),
            license: frontmatter.license(),
            compatibility: frontmatter.compatibility(),
            allowed_tools: frontmatter.allowed_tools(),
            metadata: frontmatter.metadata(),
        }
    }

    /// The JSON text as the reference prints it: indented by two spaces, with non-ASCII characters escaped, without a
    /// final line end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Texts in texts always have a JSON form.
        let json = serde_json::to_string_pretty(self).unwrap_or_default();
        let mut out = String::with_capacity(json.len());
        for c in json.chars() {
            if c == '\n' || (' '..='~').contains(&c) {
                out.push(c);
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;

    #[test]
    fn the_json_matches_the_reference() {
        let content = "---\nmetadata:\n  z: \"1\"\n  a: é\nname: n\ndescription: 'q\" 🦀'\nallowed-tools: T\nlicense:\n---\n";
        let document = Frontmatter::parse(content, Mode::Strict).unwrap();
        let expected = r#"{
  "name": "n",
  "description": "q\" \ud83e\udd80",
  "license": "",
  "allowed-tools": "T",
  "metadata": {
    "z": "1",
    "a": "\u00e9"
  }
}"#;
        assert_eq!(Properties::of(&document.frontmatter).to_json(), expected);
    }
}
