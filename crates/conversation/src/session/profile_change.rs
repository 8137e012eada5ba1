//! A recorded change of a session's settings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::session::session_profile::SessionProfile;
use crate::state::limits::Limits;
use crate::tools::tool::ToolDefinition;

/// The settings of a session that change; each `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileChange {
    /// Its title; empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The new metadata of the embedder. It replaces all of the old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// The default limits of a turn. A turn that runs keeps its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// The maximum cost of all model calls of the session together, in millionths of a dollar; `u64::MAX`: unlimited. It applies
    /// from the next model call on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_micros: Option<u64>,
    /// The embedder's instructions. They cannot change while a turn runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_prompt: Option<String>,
    /// The tools whose results the client provides. They replace all of the old, and cannot change while a turn runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_tools: Option<Vec<ToolDefinition>>,
}

impl ProfileChange {
    /// Applies the change to the settings.
    pub fn apply_to(&self, profile: &mut SessionProfile) {
        if let Some(title) = &self.title {
            profile.title = (!title.is_empty()).then(|| title.clone());
        }
        if let Some(metadata) = &self.metadata {
            profile.metadata.clone_from(metadata);
        }
        if let Some(limits) = &self.limits {
            profile.limits = limits.clone();
        }
        if let Some(base_prompt) = &self.base_prompt {
            profile.base_prompt.clone_from(base_prompt);
        }
        if let Some(max_cost) = self.max_cost_micros {
            profile.max_cost_micros = (max_cost != u64::MAX).then_some(max_cost);
        }
        if let Some(client_tools) = &self.client_tools {
            profile.client_tools.clone_from(client_tools);
        }
    }

    /// Whether it changes the tools or the prompt, from which the requests to the model are composed.
    #[must_use]
    pub const fn changes_requests(&self) -> bool {
        self.base_prompt.is_some() || self.client_tools.is_some()
    }
}
