//! Metadata of skills, versions and files, parsed for both API profiles. Times stay text (ISO 8601).

use conjure_base::text::is_invisible;
use serde::{Deserialize, Deserializer};

use crate::hosted::{FileId, SkillId, SkillSource, VersionId};

/// The metadata of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct SkillMetadata {
    /// Its id.
    pub id: SkillId,
    /// Its title for humans.
    #[serde(default, alias = "display_title", rename = "display_name")]
    pub title: Option<String>,
    /// Its newest version.
    #[serde(default, alias = "latest_version", rename = "latest_version_id")]
    pub latest: Option<VersionId>,
    /// Who created it.
    #[serde(deserialize_with = "source")]
    pub source: SkillSource,
    /// When it was created.
    #[serde(default)]
    pub created_at: String,
    /// When it last changed.
    #[serde(default)]
    pub updated_at: String,
}

/// The metadata of a skill's version.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "WireVersion")]
#[non_exhaustive]
pub struct VersionMetadata {
    /// The id for paths and requests: `version` in the beta profile, `id` in the current one.
    pub id: VersionId,
    /// The skill.
    pub skill: SkillId,
    /// The name in its `SKILL.md`.
    pub name: String,
    /// The description in its `SKILL.md`.
    pub description: String,
    /// The directory that the skill is loaded from.
    pub directory: String,
    /// When it was created.
    pub created_at: String,
}

/// The metadata of a file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct FileMetadata {
    /// Its id.
    pub id: FileId,
    /// Its name as the service returns it, which may be any text. Use [`FileMetadata::safe_name`] to store the file.
    #[serde(rename = "filename")]
    pub name: String,
    /// Its content type.
    #[serde(rename = "mime_type", default)]
    pub media_type: String,
    /// Its size in bytes.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// When it was created.
    #[serde(default)]
    pub created_at: String,
    /// When it expires, if it does.
    #[serde(default)]
    pub expires_at: Option<String>,
    /// Whether it can be downloaded, if known. Produced files can, uploaded files cannot.
    #[serde(default, rename = "downloadable")]
    pub is_downloadable: Option<bool>,
}

impl FileMetadata {
    /// The name as a safe path segment: without directories, invisible characters and leading dots. Falls back to the id, then to `file`.
    #[must_use]
    pub fn safe_name(&self) -> String {
        safe_name(&self.name).or_else(|| safe_name(self.id.as_str())).unwrap_or_else(|| "file".to_owned())
    }
}

/// The longest name that is used, in bytes. Every file system accepts it.
const MAX_NAME_BYTES: usize = 200;

fn safe_name(text: &str) -> Option<String> {
    let last = text.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain: String =
        last.chars().filter(|character| !character.is_control() && !is_invisible(*character)).collect();
    let plain = plain.trim().trim_start_matches('.').trim();
    // The name is shortened at its start, because its end holds the extension.
    let start = plain.len().saturating_sub(MAX_NAME_BYTES);
    let start = (start..plain.len()).find(|at| plain.is_char_boundary(*at)).unwrap_or(0);
    let name = plain[start..].trim_start_matches('.').trim();
    (!name.is_empty()).then(|| name.to_owned())
}

fn source<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SkillSource, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Wire {
        Text(String),
        Object {
            #[serde(rename = "type")]
            kind: String,
        },
    }
    Ok(match Wire::deserialize(deserializer)? {
        Wire::Text(name) | Wire::Object { kind: name } => SkillSource::from(name.as_str()),
    })
}

#[derive(Deserialize)]
struct WireVersion {
    id: VersionId,
    #[serde(default)]
    version: Option<VersionId>,
    skill_id: SkillId,
    #[serde(default)]
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    directory: Option<String>,
    #[serde(default)]
    created_at: String,
}

impl From<WireVersion> for VersionMetadata {
    fn from(wire: WireVersion) -> Self {
        Self {
            id: wire.version.unwrap_or(wire.id),
            skill: wire.skill_id,
            // Under the current profile, the directory has the skill's name.
            directory: wire.directory.unwrap_or_else(|| wire.name.clone()),
            name: wire.name,
            description: wire.description,
            created_at: wire.created_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn both_profiles_give_the_same_skill_metadata() {
        let beta = json!({"id": "skill_1", "type": "skill", "created_at": "a", "updated_at": "b",
            "display_title": "T", "latest_version": "17", "source": "custom"});
        let current = json!({"id": "skill_1", "type": "skill", "created_at": "a", "updated_at": "b",
            "display_name": "T", "latest_version_id": "17", "source": {"type": "custom"}});
        let read = |value| serde_json::from_value::<SkillMetadata>(value).unwrap();
        let record = read(beta);
        assert_eq!(record, read(current));
        assert_eq!((record.title.as_deref(), &record.source), (Some("T"), &SkillSource::Custom));
        assert_eq!(record.latest, Some(VersionId::new("17")));
        let bare = read(json!({"id": "xlsx", "source": {"type": "plugin"}, "display_title": null}));
        assert_eq!((bare.title, bare.latest), (None, None));
        assert_eq!(bare.source, SkillSource::Other("plugin".to_owned()));
    }

    #[test]
    fn a_version_is_addressed_by_its_profiles_field() {
        let read = |value| serde_json::from_value::<VersionMetadata>(value).unwrap();
        let beta = read(json!({"id": "skillver_1", "version": "1759178010641129", "skill_id": "skill_1",
            "name": "N", "description": "D", "directory": "n", "created_at": "a", "type": "skill_version"}));
        assert_eq!((beta.id.as_str(), beta.directory.as_str()), ("1759178010641129", "n"));
        let current =
            read(json!({"id": "skillver_1", "skill_id": "skill_1", "name": "n", "description": "D",
            "created_at": "a", "type": "skill_version"}));
        assert_eq!((current.id.as_str(), current.directory.as_str()), ("skillver_1", "n"));
    }

    fn named(name: &str) -> FileMetadata {
        let record = json!({"id": "file_1", "filename": name, "size_bytes": 3});
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn safe_names_contain_no_path_traversal() {
        for (name, expected) in [
            ("report.xlsx", "report.xlsx"),
            ("/etc/passwd", "passwd"),
            ("../../.ssh/authorized_keys", "authorized_keys"),
            ("..\\..\\evil.exe", "evil.exe"),
            (".bashrc", "bashrc"),
            ("a\nb\u{202e}.txt", "ab.txt"),
            ("..", "file_1"),
            ("a/", "file_1"),
            ("", "file_1"),
            ("\u{dc}bersicht 1.pdf", "\u{dc}bersicht 1.pdf"),
        ] {
            assert_eq!(named(name).safe_name(), expected, "{name:?}");
        }
        let long = format!("{}.csv", "\u{e4}".repeat(500));
        let short = named(&long).safe_name();
        assert!(short.len() <= 200 && short.ends_with("\u{e4}.csv"), "{short}");
    }

    proptest! {
        #[test]
        fn a_safe_name_is_one_visible_segment(name in any::<String>()) {
            let safe = named(&name).safe_name();
            prop_assert!(!safe.is_empty() && safe.len() <= MAX_NAME_BYTES && !safe.starts_with('.'));
            prop_assert!(!safe.contains(['/', '\\']) && !safe.chars().any(char::is_control));
        }
    }
}
