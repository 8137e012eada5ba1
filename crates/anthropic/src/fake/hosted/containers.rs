//! The containers of the fake: which one a request runs in, and whether it still exists.

use std::sync::Mutex;
use std::time::Duration;

use conjure_base::{Timestamp, lock};
use conjure_conversation::ApiErrorKind;
use serde_json::{Map, Value, json};

use super::json;
use super::store::Store;
use crate::config::ApiProfile;
use crate::fake::refusal::Refusal;

/// The fake's simulation of containers, with the lifetime of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fake) struct Hosting {
    pub(in crate::fake) lifetime: Duration,
}

/// The container, skills and files that a request names.
#[derive(Debug, Default)]
pub(in crate::fake) struct RequestedContainer {
    container: Option<String>,
    /// Type, id and version of each skill.
    skills: Vec<(String, String, String)>,
    has_tool: bool,
    files: Vec<String>,
}

impl RequestedContainer {
    /// Reads the request's container from a body whose form was checked.
    pub(in crate::fake) fn of(body: &Map<String, Value>) -> Self {
        let container = body.get("container").unwrap_or(&Value::Null);
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let skill = |skill: &Value| {
            let version = skill["version"].as_str().unwrap_or("latest").to_owned();
            (text(skill, "type"), text(skill, "skill_id"), version)
        };
        let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
        let is_code = |tool: &Value| text(tool, "type").starts_with("code_execution_");
        let blocks = list(body.get("messages")).into_iter().flat_map(|message| list(message.get("content")));
        Self {
            container: container.as_str().or_else(|| container["id"].as_str()).map(str::to_owned),
            skills: list(container.get("skills")).iter().map(skill).collect(),
            has_tool: list(body.get("tools")).iter().any(is_code),
            files: blocks
                .filter(|block| block["type"] == "container_upload")
                .map(|block| text(&block, "file_id"))
                .collect(),
        }
    }

    /// The `container` of the response, if the request runs in one.
    pub(in crate::fake) fn enter(
        &self,
        hosting: Hosting,
        store: &Mutex<Store>,
        profile: ApiProfile,
        betas: &[String],
        now: Timestamp,
    ) -> Result<Option<Value>, Refusal> {
        let mut store = lock(store);
        if !self.skills.is_empty() && !self.has_tool {
            return Err(Refusal::invalid("container.skills: the code_execution tool is required"));
        }
        let is_beta = |beta: &str| profile == ApiProfile::Current || betas.iter().any(|named| named == beta);
        if self.has_tool && !is_beta("code-execution-2025-08-25") {
            return Err(Refusal::invalid("tools: needs `anthropic-beta: code-execution-2025-08-25`"));
        }
        if !self.skills.is_empty() && !is_beta("skills-2025-10-02") {
            return Err(Refusal::invalid("container: needs `anthropic-beta: skills-2025-10-02`"));
        }
        if let Some(id) = self.files.iter().find(|id| store.content(id).is_none()) {
            return Err(Refusal::new(ApiErrorKind::NotFound, format!("File not found: {id}")));
        }
        let mut loaded = Vec::new();
        for (index, (kind, id, version)) in self.skills.iter().enumerate() {
            let skill = store.skill(id).filter(|skill| skill.owner.name() == kind);
            let found = skill.and_then(|skill| match version.as_str() {
                "latest" => skill.versions.last(),
                wanted => skill.versions.iter().find(|known| known.is(wanted)),
            });
            let found = found.ok_or_else(|| {
                Refusal::invalid(format!(
                    "container.skills.{index}: skill `{id}` of version `{version}` not found"
                ))
            })?;
            loaded.push(json!({
                "type": kind, "skill_id": id, "version": json::address(found, profile),
            }));
        }
        if !self.has_tool && self.container.is_none() {
            return Ok(None);
        }
        let id = match &self.container {
            None => store.fresh("container"),
            Some(id) => match store.containers.get(id) {
                Some(ends) if *ends > now => id.clone(),
                Some(_) => {
                    return Err(Refusal::invalid(format!("Container {id} has expired. Begin a new one.")));
                }
                None => {
                    return Err(Refusal::new(ApiErrorKind::NotFound, format!("Container {id} not found")));
                }
            },
        };
        let ends = store.begin_container(id.clone(), hosting.lifetime, now);
        let skills = if loaded.is_empty() { Value::Null } else { Value::Array(loaded) };
        Ok(Some(json!({"id": id, "expires_at": ends.to_string(), "skills": skills})))
    }
}
