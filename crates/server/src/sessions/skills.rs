//! The skills of a session: uploaded skills from their packages, and the vendor's skills from the configured directories.
//!
//! The runtime pins the loaded skills, so a session keeps them even if they are changed or deleted later.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use conjure_api::{AgentSkill, SessionAgent, SkillKind};
use conjure_base::TenantId;
use conjure_skill::{Mode, Package, PackageLimits, Skill};

use crate::http::ApiError;
use crate::objects::Skills;
use crate::state::ServerState;

/// Loads the skills of an agent.
///
/// # Errors
/// 400 for a skill that no longer exists or cannot be loaded, and for two skills with the same name.
pub(super) async fn load_skills(
    state: &ServerState,
    tenant: &TenantId,
    agent: &SessionAgent,
) -> Result<Vec<Arc<Skill>>, ApiError> {
    let mut loaded: Vec<Arc<Skill>> = Vec::new();
    for (index, skill) in agent.skills.iter().enumerate() {
        let at =
            |reason: &dyn std::fmt::Display| ApiError::invalid(format!("agent.skills.{index}: {reason}"));
        let skill = match skill.r#type {
            SkillKind::Anthropic => configured(state, skill).await?.map_err(|reason| at(&reason))?,
            SkillKind::Custom => uploaded(state, tenant, skill).await?.map_err(|reason| at(&reason))?,
        };
        if loaded.iter().any(|other| other.name() == skill.name()) {
            return Err(at(&format!(
                "two skills of the agent have the name `{}`; leave one out",
                skill.name()
            )));
        }
        loaded.push(Arc::new(skill));
    }
    Ok(loaded)
}

async fn configured(state: &ServerState, skill: &AgentSkill) -> Result<Result<Skill, String>, ApiError> {
    let Some(dir) = state.settings.get().skills.get(&skill.skill_id).cloned() else {
        return Ok(Err(format!(
            "`{0}` is not in `[serve.skills]` any more; set it to the skill's directory",
            skill.skill_id
        )));
    };
    loading(move || Skill::load(Path::new(&dir), Mode::Lenient).map_err(|error| error.to_string())).await
}

async fn uploaded(
    state: &ServerState,
    tenant: &TenantId,
    skill: &AgentSkill,
) -> Result<Result<Skill, String>, ApiError> {
    let skills = Skills::new(&*state.records, tenant);
    let version = match skills.version(skill.skill_id.parse()?, &skill.version).await {
        Ok(version) => version,
        Err(error) if error.status() == axum::http::StatusCode::NOT_FOUND => {
            return Ok(Err(error.to_string()));
        }
        Err(error) => return Err(error),
    };
    let Some(mut package) = state.runtime.open_file(tenant, &version.id.to_string()).await? else {
        return Ok(Err(format!("the package of {} is gone", version.id)));
    };
    loading(move || {
        let mut bytes = Vec::new();
        package.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        let name = format!("{}.zip", version.name);
        let package = Package::from_bytes(bytes, name, PackageLimits::default());
        let skill = package.and_then(|package| package.extract(None)?.load(Mode::Lenient));
        skill.map_err(|error| error.to_string())
    })
    .await
}

async fn loading(
    load: impl FnOnce() -> Result<Skill, String> + Send + 'static,
) -> Result<Result<Skill, String>, ApiError> {
    tokio::task::spawn_blocking(load).await.map_err(|error| ApiError::internal(error.to_string()))
}
