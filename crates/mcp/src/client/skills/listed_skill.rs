//! [`ListedSkill`]: a skill that a server lists, after the checks.

use std::collections::BTreeSet;

use conjure_base::{Digest, Redactor};
use rmcp::model::{JsonObject, Skill as WireSkill, SkillResource, SkillResources};
use serde::{Deserialize, Serialize};

use crate::client::transport::process_transport::printable;

/// The maximum number of files of a skill, and of their bytes together. The SDK has the same limits for servers.
const MAX_FILES: usize = 512;
const MAX_BYTES: u64 = 16 << 20;

/// The maximum sizes of a frontmatter, of an encoded file path, and of one path segment, in bytes.
const MAX_FRONTMATTER_BYTES: usize = 32 << 10;
const MAX_PATH_BYTES: usize = 1024;
const MAX_SEGMENT_BYTES: usize = 255;

/// The maximum size of a URI, in bytes.
const MAX_URI_BYTES: usize = 2048;

/// The maximum length of a reason, in characters. It may contain parts of a URI.
const MAX_REASON_CHARS: usize = 300;

/// The maximum number of files in all skills of a server.
const MAX_LISTED_FILES: usize = 4096;

/// The maximum number of skills of a server, and the number of refused skills that are reported one by one.
const MAX_SKILLS: usize = 256;
const MAX_REPORTED: usize = 20;

/// A skill that a server lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::client) struct ListedSkill {
    /// The URI of its `SKILL.md`.
    pub(super) uri: String,
    pub(super) frontmatter: JsonObject,
    /// All its files, including `SKILL.md`.
    pub(super) files: Vec<ListedFile>,
    /// The version that the user approves. It differs if any byte of any file differs.
    pub(super) version: String,
}

/// A file of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ListedFile {
    pub(super) uri: String,
    /// The path in the skill's directory.
    pub(super) path: String,
    pub(super) digest: String,
    pub(super) size: u64,
}

/// The skills of a server, and the reasons why others were left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::client) struct SkillListing {
    pub(in crate::client) skills: Vec<ListedSkill>,
    /// Sentences about skills that cannot be offered.
    pub(in crate::client) skipped: Vec<String>,
    /// The number of skills that cannot be offered.
    refused: usize,
}

impl SkillListing {
    /// The listing of a server that did not list its skills.
    pub(in crate::client) fn failed(error: impl std::fmt::Display) -> Self {
        Self { skipped: vec![format!("its skills cannot be listed: {error}")], ..Self::default() }
    }

    /// Adds a skill that the server lists. Returns whether another one may be added.
    pub(super) fn add(&mut self, skill: WireSkill) -> bool {
        let files: usize = self.skills.iter().map(|skill| skill.files.len()).sum();
        if self.skills.len() + self.refused == MAX_SKILLS || files > MAX_LISTED_FILES {
            self.skipped.push(
                "it has too many skills, or skills with too many files; the others are left out".to_owned(),
            );
            return false;
        }
        let name = printable(&conjure_base::text::truncate(skill.name(), 64));
        match ListedSkill::from_wire(skill) {
            Ok(skill) if self.skills.iter().any(|known| known.uri == skill.uri) => {}
            Ok(skill) => self.skills.push(skill),
            Err(reason) => {
                self.refused += 1;
                if self.skipped.len() < MAX_REPORTED {
                    let reason = printable(&conjure_base::text::truncate(&reason, MAX_REASON_CHARS));
                    self.skipped.push(format!("its skill `{name}` is left out: {reason}"));
                }
            }
        }
        true
    }

    /// Leaves out each skill that contains one of these secrets. A redacted frontmatter could not be verified.
    pub(in crate::client) fn redacted(mut self, redactor: &Redactor) -> Self {
        let has_secret = |skill: &ListedSkill| {
            let all = serde_json::to_string(skill).unwrap_or_default();
            // JSON escapes quotes and line breaks, so the unescaped texts are searched too.
            let texts = skill.frontmatter.values().filter_map(serde_json::Value::as_str);
            texts
                .chain([all.as_str()])
                .any(|text| matches!(redactor.redact(text), std::borrow::Cow::Owned(_)))
        };
        let before = self.skills.len();
        self.skills.retain(|skill| !has_secret(skill));
        if self.skills.len() < before {
            self.skipped.push("skills that repeat a secret are left out".to_owned());
        }
        for text in &mut self.skipped {
            *text = redactor.redact(text).into_owned();
        }
        self
    }
}

impl ListedSkill {
    /// Checks a skill that the server lists.
    pub(super) fn from_wire(skill: WireSkill) -> Result<Self, String> {
        skill.validate().map_err(|error| error.to_string())?;
        let SkillResources::Files(resources) = skill.resources else {
            return Err("its files change at any time, so a person cannot approve them".to_owned());
        };
        if resources.len() > MAX_FILES {
            return Err(format!("it has {} files, and the maximum is {MAX_FILES}", resources.len()));
        }
        if resources.iter().any(|file| file.uri.len() > MAX_URI_BYTES) || skill.uri.len() > MAX_URI_BYTES {
            return Err(format!("one of its URIs has more than {MAX_URI_BYTES} bytes"));
        }
        let bytes: u64 = resources.iter().map(|file| file.size).fold(0, u64::saturating_add);
        if bytes > MAX_BYTES {
            return Err(format!("its files have {bytes} bytes, and the maximum is {MAX_BYTES}"));
        }
        let root = skill.uri.strip_suffix("SKILL.md").unwrap_or_default();
        let mut files = Vec::with_capacity(resources.len());
        for SkillResource { uri, digest, size, .. } in resources {
            let path = uri.strip_prefix(root).and_then(plain_path);
            let path = path.ok_or_else(|| format!("`{uri}` is no plain path in its directory"))?;
            files.push(ListedFile { path, uri, digest, size });
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        if has_file_as_dir(&files) {
            return Err("one of its files has the name of a directory, or is listed twice".to_owned());
        }
        let frontmatter = serde_json::to_value(&skill.frontmatter).map_err(|error| error.to_string())?;
        match frontmatter {
            serde_json::Value::Object(frontmatter)
                if serde_json::to_string(&frontmatter)
                    .is_ok_and(|text| text.len() <= MAX_FRONTMATTER_BYTES) =>
            {
                let version = version(&skill.uri, &files);
                Ok(Self { uri: skill.uri, frontmatter, files, version })
            }
            _ => Err(format!("its frontmatter has more than {MAX_FRONTMATTER_BYTES} bytes")),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.text("name")
    }

    /// The server's description on one line, with invisible characters escaped.
    pub(super) fn description(&self) -> String {
        let words: Vec<&str> = self.text("description").split_whitespace().collect();
        printable(&words.join(" "))
    }

    fn text(&self, key: &str) -> &str {
        self.frontmatter.get(key).and_then(serde_json::Value::as_str).unwrap_or_default()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

/// The digest of the URI, the files and their paths.
fn version(uri: &str, files: &[ListedFile]) -> String {
    let mut text = format!("{uri}\n");
    for file in files {
        text.push_str(&format!("{} {}\n", file.digest, file.path));
    }
    Digest::of_bytes(text.as_bytes()).to_hex()
}

/// Decodes the path of a file. `None` if it leaves the skill's directory or is ambiguous.
fn plain_path(encoded: &str) -> Option<String> {
    if encoded.len() > MAX_PATH_BYTES || encoded.contains(['?', '#']) {
        return None;
    }
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut bytes = encoded.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    let path = String::from_utf8(decoded).ok()?;
    let is_plain = |segment: &str| {
        (1..=MAX_SEGMENT_BYTES).contains(&segment.len())
            && !matches!(segment, "." | "..")
            && !segment.contains(['\\', '`'])
            && printable(segment) == segment
            && !segment.contains(['\n', '\t'])
    };
    // An encoded slash would be a second notation of the same path.
    let slashes = |text: &str| text.matches('/').count();
    (slashes(&path) == slashes(encoded) && path.split('/').all(is_plain)).then_some(path)
}

/// Whether a path is listed twice, or a file is the parent directory of another file.
fn has_file_as_dir(files: &[ListedFile]) -> bool {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let is_dir = |file: &ListedFile| {
        file.path
            .char_indices()
            .any(|(at, c)| c == '/' && file.path.get(..at).is_some_and(|dir| paths.contains(dir)))
    };
    paths.len() < files.len() || files.iter().any(is_dir)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn wire(files: &[(&str, u64)]) -> WireSkill {
        let digest = format!("sha256:{}", "0".repeat(64));
        let file = |(path, size): &(&str, u64)| json!({"uri": format!("skill://a/notes/{path}"), "digest": digest, "size": size});
        let skill = json!({
            "uri": "skill://a/notes/SKILL.md",
            "frontmatter": {"name": "notes", "description": "Takes\n notes.\u{202e}", "license": "MIT"},
            "resources": files.iter().map(file).collect::<Vec<_>>(),
        });
        serde_json::from_value(skill).unwrap()
    }

    #[test]
    fn a_skill_has_the_paths_of_its_files_and_a_version() {
        let skill = ListedSkill::from_wire(wire(&[("SKILL.md", 9), ("scripts/my%20run.py", 2)])).unwrap();
        let paths: Vec<&str> = skill.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["SKILL.md", "scripts/my run.py"]);
        assert_eq!(
            (skill.name(), skill.description().as_str(), skill.bytes()),
            ("notes", "Takes notes.", 11)
        );
        assert_eq!(skill.version.len(), 64);
        let mut changed = wire(&[("SKILL.md", 9), ("scripts/my%20run.py", 2)]);
        let SkillResources::Files(files) = &mut changed.resources else { panic!("it has files") };
        files[1].digest.replace_range(7..8, "1");
        assert_ne!(ListedSkill::from_wire(changed).unwrap().version, skill.version);
    }

    #[test]
    fn a_skill_that_leads_elsewhere_or_is_too_large_is_refused() {
        for (files, reason) in [
            (vec![("a.md", 1)], "does not list its own SKILL.md"),
            (vec![("SKILL.md", 1), ("../b/x", 1)], "does not identify a file"),
            (vec![("SKILL.md", 1), ("a/./x", 1)], "is no plain path"),
            (vec![("SKILL.md", 1), ("%2e%2e/x", 1)], "does not identify a file"),
            (vec![("SKILL.md", 1), ("a%2fx", 1)], "is no plain path"),
            (vec![("SKILL.md", 1), ("a%0ax", 1)], "is no plain path"),
            (vec![("SKILL.md", 1), ("a%5cx", 1)], "is no plain path"),
            (vec![("SKILL.md", 1), ("a%zz", 1)], "is no plain path"),
            (vec![("SKILL.md", 1), ("a?b", 1)], "is no plain path"),
            (vec![("SKILL.md", 1), ("a` and 3 more", 1)], "is no plain path"),
            (vec![("SKILL.md", 1), ("a", 1), ("a/b", 1)], "has the name of a directory"),
            (vec![("SKILL.md", 1), ("a", MAX_BYTES)], "the maximum is"),
            (vec![("SKILL.md", u64::MAX), ("a", u64::MAX)], "the maximum is"),
        ] {
            let refused = ListedSkill::from_wire(wire(&files)).unwrap_err();
            assert!(refused.contains(reason), "{files:?}: {refused}");
        }
        let mut dynamic = wire(&[("SKILL.md", 1)]);
        dynamic.resources = SkillResources::Dynamic;
        assert!(ListedSkill::from_wire(dynamic).unwrap_err().contains("change at any time"));
        let mut large = wire(&[("SKILL.md", 1)]);
        large.frontmatter = large.frontmatter.with_field("x", "x".repeat(MAX_FRONTMATTER_BYTES));
        assert!(ListedSkill::from_wire(large).unwrap_err().contains("frontmatter has more"));
    }

    #[test]
    fn a_flood_of_skills_is_told_in_few_words_and_secrets_are_left_out() {
        let mut listing = SkillListing::default();
        for _ in 0..MAX_REPORTED + 5 {
            assert!(listing.add(wire(&[])));
        }
        assert!(listing.add(wire(&[("SKILL.md", 1)])));
        assert_eq!(
            (listing.skills.len(), listing.skipped.len()),
            (1, MAX_REPORTED),
            "a good one after bad ones is kept"
        );
        while listing.add(wire(&[])) {}
        assert_eq!((listing.skills.len(), listing.skipped.len()), (1, MAX_REPORTED + 1));
        let mut listing = SkillListing::default();
        assert!(listing.add(wire(&[("SKILL.md", 1)])) && listing.add(wire(&[("SKILL.md", 1)])));
        assert_eq!(listing.skills.len(), 1);
        let listing = listing.redacted(&Redactor::new([("TOKEN", "Takes\\n notes")]));
        assert_eq!((listing.skills.len(), listing.skipped.len()), (0, 1));
    }

    proptest! {
        #[test]
        fn a_path_stays_in_its_directory(
            parts in proptest::collection::vec(proptest::sample::select(vec!["a", "..", ".", "%2e", "%2E", "%5c", "%2f", "%00", "%", "/", "ä", " ", "?"]), 0..8),
        ) {
            if let Some(path) = plain_path(&parts.concat()) {
                let stays = |part| matches!(part, std::path::Component::Normal(_));
                prop_assert!(std::path::Path::new(&path).components().all(stays));
                prop_assert!(!path.contains("//") && !path.ends_with('/') && !path.contains('\\'));
            }
        }
    }
}
