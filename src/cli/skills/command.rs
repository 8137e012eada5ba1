//! `conjure skills …`: runs the subcommands.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use conjure::prompt::{SkillLocations, available_skills_block_at};
use conjure::skill::Mode;
use conjure::{Config, ProcessEnv, Settings};

use crate::cli::args::SkillsCommand;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::run::tool_dirs;
use crate::cli::skills::check;
use crate::cli::skills::inspect;
use crate::cli::skills::list;
use crate::cli::skills::load::{display_path, read, read_as_reference};
use crate::cli::skills::pack;
#[cfg(feature = "anthropic")]
use crate::cli::skills::push;
use crate::cli::skills::remote;
use crate::cli::skills::validate;
use crate::cli::terminal::Terminal;

/// Runs the subcommand.
pub(crate) async fn skills(
    command: SkillsCommand,
    config: Config,
    environment: ProcessEnv,
    terminal: Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    let (config, terminal) = (&config, &terminal);
    match &command {
        #[cfg(feature = "anthropic")]
        SkillsCommand::Push(args) => push::push(args, config, &environment, terminal).await,
        #[cfg(feature = "anthropic")]
        SkillsCommand::Remote { command } => remote::remote(command, config, &environment, terminal).await,
        SkillsCommand::List { skills, format } => {
            let skill_paths = (!skills.is_empty()).then(|| skills.clone());
            list::list(&config.with(Settings { skill_paths, ..Settings::default() })?, *format, terminal)
        }
        SkillsCommand::Validate(args) => validate::validate(args, terminal),
        SkillsCommand::Check(args) => check::check(args, config, &environment, terminal).await,
        SkillsCommand::Properties { path } => {
            terminal.output(&read_as_reference(path, terminal)?.properties().to_json());
            Ok(ExitStatus::Success)
        }
        SkillsCommand::Prompt { paths } => {
            let skills =
                paths.iter().map(|path| read_as_reference(path, terminal)).collect::<Result<Vec<_>, _>>()?;
            let places: HashMap<PathBuf, PathBuf> =
                skills.iter().map(|skill| (skill.location().to_owned(), display_path(skill))).collect();
            let locations = SkillLocations::mapped(move |path| places.get(path).cloned());
            terminal.output(&available_skills_block_at(&skills, &locations));
            Ok(ExitStatus::Success)
        }
        SkillsCommand::Pack { path, output } => {
            pack::pack(path, output.as_deref(), &tool_dirs(None, config, &environment), terminal)
        }
        SkillsCommand::Inspect { path, format } => {
            inspect::inspect(&read(path, Mode::Lenient)?, *format, terminal)
        }
    }
}
