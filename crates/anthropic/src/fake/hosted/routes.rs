//! The endpoints of skills and files.

use bytes::Bytes;
use conjure_base::Timestamp;
use conjure_conversation::ApiErrorKind;
use reqwest::Method;
use serde_json::{Value, json};

use super::json;
use super::store::{Origin, Skill, SkillOwner, Store};
use super::upload;
use super::zip;
use crate::config::ApiProfile;
use crate::fake::refusal::Refusal;
use crate::fake::reply::Reply;

/// The default number of items on a page.
const PAGE: usize = 20;

/// A request for skills or files.
pub(in crate::fake) struct HostedRequest<'a> {
    pub(in crate::fake) profile: ApiProfile,
    pub(in crate::fake) method: &'a Method,
    /// The path, percent-encoded as it arrived.
    pub(in crate::fake) path: &'a str,
    pub(in crate::fake) query: &'a str,
    pub(in crate::fake) betas: &'a [String],
    pub(in crate::fake) content_type: &'a str,
    pub(in crate::fake) body: &'a Bytes,
    pub(in crate::fake) now: Timestamp,
}

/// Whether this path belongs to skills or files.
pub(in crate::fake) fn is_hosted(path: &str) -> bool {
    ["/v1/skills", "/v1/files"].iter().any(|root| {
        path.strip_prefix(root).is_some_and(|remainder| remainder.is_empty() || remainder.starts_with('/'))
    })
}

fn not_found(what: &str) -> Refusal {
    Refusal::new(ApiErrorKind::NotFound, format!("{what} not found"))
}

fn record(value: &Value) -> Reply {
    Reply::raw(200, "application/json", value.to_string())
}

impl HostedRequest<'_> {
    pub(in crate::fake) fn answer(&self, store: &mut Store) -> Result<Reply, Refusal> {
        let segments: Vec<String> = self.path.split('/').skip(2).map(decoded).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        self.check_beta(segments.first().copied().unwrap_or_default())?;
        let method = self.method.as_str();
        match (method, segments.as_slice()) {
            ("POST", ["skills"]) => self.create_skill(store),
            ("GET", ["skills"]) => self.list_skills(store),
            ("GET", ["skills", id]) => {
                self.skill(store, id).map(|skill| record(&json::skill(skill, self.profile)))
            }
            ("DELETE", ["skills", id]) => self.delete_skill(store, id),
            ("POST", ["skills", id, "versions"]) => self.create_version(store, id),
            ("GET", ["skills", id, "versions"]) => self.list_versions(store, id),
            ("GET", ["skills", id, "versions", version]) => {
                let skill = self.skill(store, id)?;
                let found = skill.versions.iter().find(|known| known.is(version));
                let found = found.ok_or_else(|| not_found(&format!("version: {version}")))?;
                Ok(record(&json::version(skill, found, self.profile)))
            }
            ("DELETE", ["skills", id, "versions", version]) => self.delete_version(store, id, version),
            ("GET", ["skills", id, "versions", version, "content"]) => {
                self.download_version(store, id, version)
            }
            ("POST", ["files"]) => self.create_file(store),
            ("GET", ["files"]) => self.list_files(store),
            ("GET", ["files", id]) => {
                let file = store.files.iter().find(|file| file.id == *id);
                file.map(|file| record(&json::file(file))).ok_or_else(|| not_found(&format!("File: {id}")))
            }
            ("DELETE", ["files", id]) => {
                let before = store.files.len();
                store.files.retain(|file| file.id != *id);
                if store.files.len() == before {
                    return Err(not_found(&format!("File: {id}")));
                }
                Ok(record(&json!({"id": id, "type": "file_deleted"})))
            }
            ("GET", ["files", id, "content"]) => self.download_file(store, id),
            _ => Err(Refusal::new(ApiErrorKind::NotFound, "Not found")),
        }
    }

    /// Under the beta profile, an endpoint exists only for requests that name its beta.
    fn check_beta(&self, api: &str) -> Result<(), Refusal> {
        let beta = if api == "files" { "files-api-2025-04-14" } else { "skills-2025-10-02" };
        if self.profile == ApiProfile::Current || self.betas.iter().any(|named| named == beta) {
            return Ok(());
        }
        Err(Refusal::invalid(format!("this endpoint needs `anthropic-beta: {beta}`")))
    }

    fn skill<'s>(&self, store: &'s Store, id: &str) -> Result<&'s Skill, Refusal> {
        store.skill(id).ok_or_else(|| not_found(&format!("skill: {id}")))
    }

    /// A skill that may be changed: an uploaded one.
    fn own<'s>(&self, store: &'s mut Store, id: &str) -> Result<&'s mut Skill, Refusal> {
        let skill = store.skills.iter_mut().find(|skill| skill.id == id);
        let skill = skill.ok_or_else(|| not_found(&format!("skill: {id}")))?;
        match skill.owner {
            SkillOwner::Custom => Ok(skill),
            SkillOwner::Anthropic => {
                Err(Refusal::new(ApiErrorKind::Permission, "this skill cannot be changed"))
            }
        }
    }

    fn create_skill(&self, store: &mut Store) -> Result<Reply, Refusal> {
        let title = if self.profile == ApiProfile::Beta { "display_title" } else { "display_name" };
        let uploaded = upload::skill(self.content_type, self.body, Some(title))?;
        let id = store.fresh("skill");
        let version = store.version((uploaded.name.clone(), uploaded.description), uploaded.files, self.now);
        let skill = Skill {
            id,
            owner: SkillOwner::Custom,
            title: uploaded.title.unwrap_or_else(|| uploaded.name.clone()),
            name: uploaded.name,
            created: self.now,
            updated: self.now,
            versions: vec![version],
        };
        let reply = record(&json::skill(&skill, self.profile));
        store.skills.push(skill);
        Ok(reply)
    }

    fn create_version(&self, store: &mut Store, id: &str) -> Result<Reply, Refusal> {
        let name = self.own(store, id)?.name.clone();
        let uploaded = upload::skill(self.content_type, self.body, None)?;
        if uploaded.name != name {
            return Err(Refusal::invalid(format!("SKILL.md: `name` must be that of the skill, `{name}`")));
        }
        let version = store.version((uploaded.name, uploaded.description), uploaded.files, self.now);
        let skill = self.own(store, id)?;
        skill.updated = self.now;
        let reply = record(&json::version(skill, &version, self.profile));
        skill.versions.push(version);
        Ok(reply)
    }

    fn delete_skill(&self, store: &mut Store, id: &str) -> Result<Reply, Refusal> {
        let skill = self.own(store, id)?;
        if !skill.versions.is_empty() {
            let message = "Cannot delete skill with existing versions. Delete all versions first.";
            return Err(Refusal::invalid(message));
        }
        store.skills.retain(|skill| skill.id != id);
        Ok(record(&json!({"id": id, "type": "skill_deleted"})))
    }

    fn delete_version(&self, store: &mut Store, id: &str, version: &str) -> Result<Reply, Refusal> {
        let skill = self.own(store, id)?;
        let index = skill.versions.iter().position(|known| known.is(version));
        let index = index.ok_or_else(|| not_found(&format!("version: {version}")))?;
        skill.versions.remove(index);
        Ok(record(&json!({"id": version, "type": "skill_version_deleted"})))
    }

    fn list_skills(&self, store: &Store) -> Result<Reply, Refusal> {
        let source = self.field("source");
        let listed: Vec<(&str, Value)> = store
            .skills
            .iter()
            .rev()
            .filter(|skill| source.as_deref().is_none_or(|source| source == skill.owner.name()))
            .map(|skill| (skill.id.as_str(), json::skill(skill, self.profile)))
            .collect();
        let max = if self.profile == ApiProfile::Beta { 100 } else { 1000 };
        self.page(&listed, max)
    }

    fn list_versions(&self, store: &Store, id: &str) -> Result<Reply, Refusal> {
        let skill = self.skill(store, id)?;
        let listed: Vec<(&str, Value)> = skill
            .versions
            .iter()
            .rev()
            .map(|version| (version.id.as_str(), json::version(skill, version, self.profile)))
            .collect();
        self.page(&listed, 1000)
    }

    fn list_files(&self, store: &Store) -> Result<Reply, Refusal> {
        let listed: Vec<(&str, Value)> =
            store.files.iter().rev().map(|file| (file.id.as_str(), json::file(file))).collect();
        if self.profile == ApiProfile::Current {
            return self.page(&listed, 1000);
        }
        let index = |id: &str| {
            let index = listed.iter().position(|(known, _)| *known == id);
            index.ok_or_else(|| Refusal::invalid(format!("no file `{id}` to page from")))
        };
        let limit = self.limit(1000)?;
        let (start, end) = match (self.field("after_id"), self.field("before_id")) {
            (Some(id), None) => {
                let start = index(&id)? + 1;
                (start, listed.len().min(start.saturating_add(limit)))
            }
            (None, Some(id)) => {
                let end = index(&id)?;
                (end.saturating_sub(limit), end)
            }
            (None, None) => (0, listed.len().min(limit)),
            _ => return Err(Refusal::invalid("only one of after_id and before_id may be given")),
        };
        let page = &listed[start..end];
        let is_more = if self.field("before_id").is_some() { start > 0 } else { end < listed.len() };
        Ok(record(&json!({
            "data": page.iter().map(|(_, value)| value).collect::<Vec<_>>(),
            "first_id": page.first().map(|(id, _)| id), "last_id": page.last().map(|(id, _)| id),
            "has_more": is_more,
        })))
    }

    /// One page of these items. A page token names the first item on its page.
    fn page(&self, listed: &[(&str, Value)], max: usize) -> Result<Reply, Refusal> {
        let limit = self.limit(max)?;
        let start = match self.field("page") {
            None => 0,
            Some(token) => {
                let id = token.strip_prefix("page_").unwrap_or_default().to_owned();
                let index = listed.iter().position(|(known, _)| *known == id);
                index.ok_or_else(|| Refusal::invalid("page: not a token of this list"))?
            }
        };
        let end = listed.len().min(start.saturating_add(limit));
        let data: Vec<&Value> = listed[start..end].iter().map(|(_, value)| value).collect();
        let next = listed.get(end).map(|(id, _)| format!("page_{id}"));
        Ok(record(&json!({"data": data, "has_more": next.is_some(), "next_page": next})))
    }

    fn limit(&self, max: usize) -> Result<usize, Refusal> {
        let Some(text) = self.field("limit") else { return Ok(PAGE) };
        let limit = text.parse().ok().filter(|limit| (1..=max).contains(limit));
        limit.ok_or_else(|| Refusal::invalid(format!("limit: Input should be between 1 and {max}")))
    }

    fn create_file(&self, store: &mut Store) -> Result<Reply, Refusal> {
        let (name, media_type, content) = upload::file(self.content_type, self.body)?;
        store.add_file(&name, &media_type, content, Origin::Upload, self.now);
        let file = store.files.last().ok_or_else(|| not_found("File"))?;
        Ok(record(&json::file(file)))
    }

    fn download_file(&self, store: &Store, id: &str) -> Result<Reply, Refusal> {
        let file = store.files.iter().find(|file| file.id == id);
        let file = file.ok_or_else(|| not_found(&format!("File: {id}")))?;
        if !file.is_produced {
            return Err(Refusal::invalid(format!("File '{id}' is not downloadable")));
        }
        Ok(content(&file.media_type, file.content.clone()))
    }

    fn download_version(&self, store: &Store, id: &str, version: &str) -> Result<Reply, Refusal> {
        let skill = self.skill(store, id)?;
        let found = skill.versions.iter().find(|known| known.is(version));
        let found = found.ok_or_else(|| not_found(&format!("version: {version}")))?;
        if skill.owner == SkillOwner::Anthropic {
            return Err(Refusal::new(ApiErrorKind::Permission, "this skill cannot be downloaded"));
        }
        let files = found.files.iter().map(|(name, content)| (name.as_str(), &content[..]));
        Ok(content("application/zip", zip::archive(files).into()))
    }

    /// The value of a query field.
    fn field(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        let mut values = pairs.filter(|(known, _)| *known == name).map(|(_, value)| value);
        values.next().map(|value| decoded(&value.replace('+', " ")))
    }
}

fn content(media_type: &str, content: Bytes) -> Reply {
    let length = content.len().to_string();
    Reply::raw(200, media_type, content).with_header("content-length", length)
}

/// Decodes the percent-encoding of a text.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte = hex
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
