//! The API's objects as records: storing, finding and listing agents, environments, files and skills.
//!
//! A store borrows the records and the tenant of one request. It knows nothing about HTTP.

mod agent_parts;
mod agents;
mod credentials;
mod environment_config;
mod environments;
mod files;
mod model_names;
mod rows;
mod skill_upload;
mod skills;
mod vaults;

pub(crate) use agent_parts::AgentParts;
pub(crate) use agents::Agents;
pub(crate) use credentials::Credentials;
pub(crate) use environment_config::python_packages;
pub(crate) use environments::Environments;
pub(crate) use files::Files;
pub(crate) use model_names::ModelNames;
pub(crate) use rows::{
    ARCHIVED, Rows, archived, busy, created_at, decode, delete_all, encode, now, with_archived,
};
pub(crate) use skill_upload::{SkillPackage, UploadedFile, package as package_skill};
pub(crate) use skills::Skills;
pub(crate) use vaults::Vaults;
