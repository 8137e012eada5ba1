//! The options and arguments of the command line.

mod command;
mod shared;

mod acp;
mod chat;
mod hosted;
#[cfg(feature = "docker")]
mod image;
mod mcp;
#[cfg(feature = "model-http")]
mod models;
mod run;
mod serve;
mod sessions;
mod skills;

#[cfg(feature = "acp")]
pub(crate) use acp::AcpArgs;
pub(crate) use chat::ChatArgs;
pub(crate) use command::{Args, DoctorArgs, Subcommand};
#[cfg(feature = "anthropic")]
pub(crate) use hosted::{PushArgs, RemoteCommand, RemoteSource};
#[cfg(feature = "docker")]
pub(crate) use image::{ImageBuildArgs, ImageCommand, ImageFrom, PackageSet};
#[cfg(feature = "mcp")]
pub(crate) use mcp::{McpCommand, McpLoginArgs, McpLogoutArgs, McpServeArgs};
#[cfg(feature = "model-http")]
pub(crate) use models::ModelsArgs;
pub(crate) use run::RunArgs;
#[cfg(feature = "serve")]
pub(crate) use serve::{ListenAt, ServeArgs};
pub(crate) use sessions::{
    ContinueArgs, DataArgs, DecideArgs, ExportFormat, ForkArgs, LOCAL_TENANT, ResumeArgs, SessionsCommand,
};
pub(crate) use shared::format::Format;
#[cfg(feature = "serve")]
pub(crate) use shared::keys::KeysCommand;
pub(crate) use shared::mcp_servers::McpServerArgs;
pub(crate) use shared::new_session::NewSessionArgs;
pub(crate) use shared::values::{Attachment, InputArg, Variable, parse_attachment};
pub(crate) use skills::{CheckArgs, SkillsCommand, ValidateArgs};
