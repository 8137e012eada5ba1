//! The options and arguments of the command line.

mod command;
mod format;
mod values;

mod acp;
mod chat;
mod hosted;
#[cfg(feature = "docker")]
mod image;
mod keys;
mod mcp;
mod mcp_servers;
#[cfg(feature = "model-http")]
mod models;
mod open;
mod run;
mod serve;
mod sessions;
mod skills;

pub(crate) use acp::AcpArgs;
pub(crate) use chat::ChatArgs;
pub(crate) use command::{Args, DoctorArgs, Subcommand};
pub(crate) use format::Format;
#[cfg(feature = "anthropic")]
pub(crate) use hosted::{PushArgs, RemoteCommand, RemoteSource};
#[cfg(feature = "docker")]
pub(crate) use image::{ImageBuildArgs, ImageCommand, ImageFrom, PackageSet};
pub(crate) use keys::KeysCommand;
pub(crate) use mcp::{McpCommand, McpLoginArgs, McpLogoutArgs, McpServeArgs};
pub(crate) use mcp_servers::McpServerArgs;
#[cfg(feature = "model-http")]
pub(crate) use models::ModelsArgs;
pub(crate) use open::OpenArgs;
pub(crate) use run::RunArgs;
#[cfg(feature = "serve")]
pub(crate) use serve::ListenAt;
pub(crate) use serve::ServeArgs;
pub(crate) use sessions::{
    ContinueArgs, DataArgs, DecideArgs, ExportFormat, ForkArgs, LOCAL_TENANT, ResumeArgs, SessionsCommand,
};
pub(crate) use skills::{CheckArgs, SkillsCommand, ValidateArgs};
pub(crate) use values::{Attachment, InputArg, Variable, parse_attachment};
