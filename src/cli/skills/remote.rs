//! `conjure skills remote …`: lists and deletes skills at the model's service.

use std::path::PathBuf;

use conjure::anthropic::hosted::{Deleted, SkillId, SkillMetadata, SkillSource, SkillSync, VersionId};
use conjure::{Config, ProcessEnv};
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};

use crate::cli::args::{RemoteCommand, RemoteSource};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::hosted_client;
use crate::cli::skills::push::{NO_SERVICE, index_dir};
use crate::cli::terminal::{Terminal, printable};

/// Runs the subcommand.
pub(super) async fn remote(
    command: &RemoteCommand,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    match command {
        RemoteCommand::List { source, json } => {
            list(source.map(SkillSource::from), *json, config, environment, terminal).await
        }
        RemoteCommand::Delete { ids, data } => {
            delete(ids, data.as_ref(), config, environment, terminal).await
        }
    }
}

impl From<RemoteSource> for SkillSource {
    fn from(source: RemoteSource) -> Self {
        match source {
            RemoteSource::Anthropic => Self::Anthropic,
            RemoteSource::Custom => Self::Custom,
        }
    }
}

/// Prints the service's skills, the newest first.
async fn list(
    source: Option<SkillSource>,
    json: bool,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    let client = hosted_client::client(config, environment, terminal)?;
    let listed: Result<Vec<SkillMetadata>, _> = client.skills().list(source).try_collect().await;
    let skills = listed.map_err(|error| hosted_client::service_error(&error, NO_SERVICE))?;
    if json {
        let list: Vec<Value> = skills.iter().map(entry).collect();
        terminal.output(&format!("{:#}", Value::from(list)));
        return Ok(ExitStatus::Success);
    }
    if skills.is_empty() {
        terminal.note("the service keeps no such skills; `conjure skills push DIR` uploads some");
    }
    let width = skills.iter().map(|skill| skill.id.as_str().chars().count()).max().unwrap_or(0);
    for skill in &skills {
        let version = skill.latest.as_ref().map_or("none", VersionId::as_str);
        let title = skill.title.as_deref().unwrap_or_default();
        let line = format!(
            "{:<width$}  {:<9}  version {}  {}",
            printable(skill.id.as_str()),
            printable(skill.source.as_wire()),
            printable(version),
            printable(&title.replace('\n', " ")),
        );
        terminal.output(line.trim_end());
    }
    Ok(ExitStatus::Success)
}

fn entry(skill: &SkillMetadata) -> Value {
    json!({
        "id": skill.id.as_str(),
        "title": skill.title,
        "source": skill.source.as_wire(),
        "version": skill.latest.as_ref().map(VersionId::as_str),
        "created_at": skill.created_at,
        "updated_at": skill.updated_at,
    })
}

/// Deletes the skills one by one. An error is printed, and the other skills are still deleted.
async fn delete(
    ids: &[String],
    data: Option<&PathBuf>,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    let client = hosted_client::client(config, environment, terminal)?;
    let sync = SkillSync::new(client.skills(), index_dir(data, config, environment)?);
    let mut exit = ExitStatus::Success;
    for id in ids {
        match sync.delete(&SkillId::new(id)).await {
            Ok(Deleted { title, versions, .. }) => {
                let title = title.map(|title| format!(" ({})", printable(&title))).unwrap_or_default();
                let plural = if versions == 1 { "" } else { "s" };
                terminal
                    .output(&format!("deleted {}{title}, with {versions} version{plural}", printable(id)));
            }
            Err(error) => {
                let mut failure = hosted_client::sync_error(error, hosted_client::REMOTE_LIST_HINT);
                failure.message = format!("`{}` is not deleted: {}", printable(id), failure.message);
                terminal.error(&failure);
                if failure.exit.code() > exit.code() {
                    exit = failure.exit;
                }
            }
        }
    }
    Ok(exit)
}
