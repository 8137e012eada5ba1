//! Writes records in the form of each profile.

use serde_json::{Value, json};

use super::store::{File, Skill, Version};
use crate::config::ApiProfile;

pub(super) fn skill(skill: &Skill, profile: ApiProfile) -> Value {
    let newest = skill.versions.last();
    let (created, updated) = (skill.created.to_string(), skill.updated.to_string());
    match profile {
        ApiProfile::Beta => json!({
            "id": skill.id, "type": "skill", "created_at": created, "updated_at": updated,
            "display_title": skill.title, "latest_version": newest.map(|version| &version.number),
            "source": skill.owner.name(),
        }),
        ApiProfile::Current => json!({
            "id": skill.id, "type": "skill", "created_at": created, "updated_at": updated,
            "display_name": skill.title, "latest_version_id": newest.map(|version| &version.id),
            "source": {"type": skill.owner.name()},
        }),
    }
}

pub(super) fn version(skill: &Skill, version: &Version, profile: ApiProfile) -> Value {
    let mut record = json!({
        "id": version.id, "type": "skill_version", "skill_id": skill.id, "name": version.name,
        "description": version.description, "created_at": version.created.to_string(),
    });
    if profile == ApiProfile::Beta {
        record["version"] = version.number.clone().into();
        record["directory"] = skill.name.clone().into();
    }
    record
}

pub(super) fn file(file: &File) -> Value {
    json!({
        "id": file.id, "type": "file", "filename": file.name, "mime_type": file.media_type,
        "size_bytes": file.content.len(), "created_at": file.created.to_string(), "downloadable": file.is_produced,
    })
}

/// The text that addresses a version in paths and requests.
pub(super) fn address(version: &Version, profile: ApiProfile) -> &str {
    match profile {
        ApiProfile::Beta => &version.number,
        ApiProfile::Current => &version.id,
    }
}
