//! The options and arguments of the command line.

mod command;
mod values;

mod hosted;
#[cfg(feature = "docker")]
mod image;
mod run;
mod sessions;
mod skills;

pub(crate) use command::{Args, DoctorArgs, Format, Subcommand};
#[cfg(feature = "anthropic")]
pub(crate) use hosted::{PushArgs, RemoteCommand, RemoteSource};
#[cfg(feature = "docker")]
pub(crate) use image::{ImageBuildArgs, ImageCommand, ImageFrom, PackageSet};
pub(crate) use run::RunArgs;
pub(crate) use sessions::{
    ContinueArgs, DataArgs, DecideArgs, ExportFormat, LOCAL_TENANT, ResumeArgs, SessionsCommand,
};
pub(crate) use skills::{CheckArgs, SkillsCommand, ValidateArgs};
pub(crate) use values::{InputArg, Variable};
