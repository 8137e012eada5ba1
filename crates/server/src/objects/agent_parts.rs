//! Resolves the models, skills and tools that a client names to those of this server.

use conjure_api::{AgentSkill, BuiltinTool, ModelConfig, SkillKind, SkillRef, Tool};
use conjure_base::TenantId;

use crate::http::ApiError;
use crate::objects::{ModelNames, Skills};
use crate::state::ServerState;

/// Resolves the parts of an agent.
#[derive(Clone, Copy)]
pub(crate) struct AgentParts<'r> {
    state: &'r ServerState,
    tenant: &'r TenantId,
}

impl<'r> AgentParts<'r> {
    pub(crate) const fn new(state: &'r ServerState, tenant: &'r TenantId) -> Self {
        Self { state, tenant }
    }

    /// Resolves a model to the configured model that answers for it.
    pub(crate) fn model(&self, model: ModelConfig) -> Result<ModelConfig, ApiError> {
        self.model_names().resolve(model)
    }

    pub(crate) fn model_names(&self) -> ModelNames<'r> {
        ModelNames { runtime: &self.state.runtime, serve: self.state.settings.get(), tenant: self.tenant }
    }

    /// Resolves skills and their versions. Without a version, the latest one is used.
    pub(crate) async fn skills(&self, skills: Vec<SkillRef>) -> Result<Vec<AgentSkill>, ApiError> {
        let mut found = Vec::new();
        for (index, skill) in skills.into_iter().enumerate() {
            found.push(
                self.skill(skill)
                    .await
                    .map_err(|reason| ApiError::invalid(format!("skills.{index}: {reason}")))?,
            );
        }
        Ok(found)
    }

    async fn skill(&self, skill: SkillRef) -> Result<AgentSkill, String> {
        match skill.kind {
            SkillKind::Anthropic if self.state.settings.get().skills.contains_key(&skill.skill_id) => {
                Ok(AgentSkill {
                    skill_id: skill.skill_id,
                    r#type: SkillKind::Anthropic,
                    version: skill.version.unwrap_or_else(|| "latest".to_owned()),
                })
            }
            SkillKind::Anthropic => Err(format!(
                "this server has no skill `{0}` of the vendor's; set `{0}` in `[serve.skills]` of its configuration to the \
                 directory of the skill",
                skill.skill_id
            )),
            SkillKind::Custom => self.custom_skill(skill).await.map_err(|error| error.to_string()),
        }
    }

    async fn custom_skill(&self, skill: SkillRef) -> Result<AgentSkill, ApiError> {
        let skills = Skills::new(&*self.state.records, self.tenant);
        let version = skill.version.as_deref().unwrap_or("latest");
        let version = skills.version(skill.skill_id.parse()?, version).await?;
        Ok(AgentSkill {
            skill_id: skill.skill_id,
            r#type: SkillKind::Custom,
            version: version.id.to_string(),
        })
    }

    /// The tools, with those disabled that this server cannot run. Fails if the client names such a tool explicitly.
    pub(crate) fn tools(&self, mut tools: Vec<Tool>) -> Result<Vec<Tool>, ApiError> {
        for (index, tool) in tools.iter_mut().enumerate() {
            let Tool::Toolset(toolset) = tool else { continue };
            if toolset.names(BuiltinTool::WebSearch) {
                return Err(ApiError::invalid(format!(
                    "tools.{index}: this server has no provider for `web_search`; leave its entry out, or disable it"
                )));
            }
            if toolset.config(BuiltinTool::WebSearch).enabled {
                toolset.disable(BuiltinTool::WebSearch);
            }
        }
        Ok(tools)
    }
}
