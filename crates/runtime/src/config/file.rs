//! The configuration file: TOML, in which every unknown key is an error.

use std::path::{Path, PathBuf};

use conjure_skill::closest_match;
use serde::Deserialize;
use toml::{Table, Value};

use crate::config::error::ConfigError;
use crate::config::keys;
use crate::config::sections::artifacts;
use crate::config::sections::compaction;
use crate::config::sections::mcp;
use crate::config::sections::models;
use crate::config::sections::pool;
use crate::config::sections::sandbox::{
    ExecutorKind, parse_disk_limit, parse_floor, parse_network, parse_range, parse_size,
};
use crate::config::sections::serve;
use crate::config::sections::skills;
use crate::config::settings::{ApiProfile, Settings, parse_seconds};

/// The largest configuration file that is read. No person writes a larger one.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

#[derive(Deserialize)]
struct File {
    skill_paths: Option<Vec<PathBuf>>,
    trusted_projects: Option<Vec<PathBuf>>,
    executor: Option<String>,
    image: Option<String>,
    runtime: Option<String>,
    container_user: Option<String>,
    volumes: Option<Vec<String>>,
    engine: Option<String>,
    tool_timeout: Option<Value>,
    max_iterations: Option<u32>,
    network: Option<Network>,
    private_addresses: Option<Vec<String>>,
    allowed_paths: Option<Vec<PathBuf>>,
    data: Option<PathBuf>,
    memory: Option<Size>,
    cpus: Option<Value>,
    disk_limit: Option<String>,
    require: Option<Vec<String>>,
    model: Option<String>,
    base_url: Option<String>,
    profile: Option<String>,
    max_tokens: Option<u32>,
    model_timeout: Option<Value>,
    pool: Option<Table>,
    compaction: Option<Table>,
    skills: Option<Table>,
    artifacts: Option<Table>,
    models: Option<Table>,
    mcp: Option<Table>,
    serve: Option<Table>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`none`, `full` or a list of names of hosts is needed")]
enum Network {
    Word(String),
    Hosts(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a size such as \"512m\" or a number of bytes is needed")]
enum Size {
    Bytes(u64),
    Text(String),
}

/// Reads the file at `path`. Relative paths in it are relative to its folder. A leading `~` is expanded later.
pub(crate) fn read(path: &Path) -> Result<Settings, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(unreadable)?;
    if !size.is_file() || size.len() > MAX_FILE_BYTES {
        let reason = "it must be a regular file of at most 1 MiB".to_owned();
        return Err(ConfigError::Invalid { path: path.to_owned(), reason });
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Settings, ConfigError> {
    let invalid = |reason: String| ConfigError::Invalid { path: path.to_owned(), reason };
    let in_key = |key: &'static str| move |reason: String| invalid(format!("`{key}`: {reason}"));
    let table: Table =
        toml::from_str(text).map_err(|error| invalid(error.to_string().trim_end().to_owned()))?;
    if let Some(key) = table.keys().find(|key| !keys::names("").any(|known| known == key.as_str())) {
        return Err(ConfigError::UnknownKey {
            path: path.to_owned(),
            key: key.clone(),
            suggestion: closest_match(key, keys::names("")),
            known: keys::names("").collect(),
        });
    }
    // Parses the text once more, so that the error for a wrong type contains the line.
    let file: File =
        toml::from_str(text).map_err(|error| invalid(error.to_string().trim_end().to_owned()))?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let place = |path: PathBuf| if path.starts_with("~") { path } else { folder.join(path) };
    let beside = |paths: Option<Vec<PathBuf>>| paths.map(|paths| paths.into_iter().map(place).collect());
    let network = file.network.map(|network| match network {
        Network::Word(word) => parse_network([word.as_str()].into_iter()),
        Network::Hosts(hosts) => parse_network(hosts.iter().map(String::as_str)),
    });
    Ok(Settings {
        skill_paths: beside(file.skill_paths),
        trusted_projects: beside(file.trusted_projects),
        executor: file
            .executor
            .map(|text| text.parse::<ExecutorKind>())
            .transpose()
            .map_err(in_key("executor"))?,
        image: file.image,
        runtime: file.runtime,
        container_user: file.container_user,
        volumes: file.volumes,
        engine: file.engine,
        tool_timeout: file
            .tool_timeout
            .map(|value| seconds(&value))
            .transpose()
            .map_err(in_key("tool_timeout"))?,
        max_iterations: file.max_iterations,
        network: network.transpose().map_err(in_key("network"))?,
        private_addresses: file
            .private_addresses
            .map(|ranges| ranges.iter().map(|range| parse_range(range)).collect())
            .transpose()
            .map_err(in_key("private_addresses"))?,
        allowed_paths: beside(file.allowed_paths),
        data: file.data.map(place),
        memory: file
            .memory
            .map(|size| match size {
                Size::Bytes(bytes) => Ok(bytes),
                Size::Text(text) => parse_size(&text),
            })
            .transpose()
            .map_err(in_key("memory"))?,
        cpus: file.cpus.map(|value| number(&value, "processors")).transpose().map_err(in_key("cpus"))?,
        disk_limit: file
            .disk_limit
            .as_deref()
            .map(parse_disk_limit)
            .transpose()
            .map_err(in_key("disk_limit"))?,
        floor: file
            .require
            .map(|names| parse_floor(names.iter().map(String::as_str)))
            .transpose()
            .map_err(in_key("require"))?,
        model: file.model,
        base_url: file.base_url,
        profile: file
            .profile
            .map(|text| text.parse::<ApiProfile>())
            .transpose()
            .map_err(in_key("profile"))?,
        max_tokens: file.max_tokens,
        model_timeout: file
            .model_timeout
            .map(|value| seconds(&value))
            .transpose()
            .map_err(in_key("model_timeout"))?,
        pool: file.pool.as_ref().map(pool::parse).transpose().map_err(in_key("pool"))?,
        compaction: file
            .compaction
            .as_ref()
            .map(compaction::parse)
            .transpose()
            .map_err(in_key("compaction"))?,
        skills: file.skills.as_ref().map(skills::parse).transpose().map_err(in_key("skills"))?,
        artifacts: file
            .artifacts
            .as_ref()
            .map(|table| artifacts::parse(table, folder))
            .transpose()
            .map_err(in_key("artifacts"))?,
        models: file
            .models
            .as_ref()
            .map(models::parse)
            .transpose()
            .map_err(in_key("models"))?
            .unwrap_or_default(),
        mcp: file.mcp.as_ref().map(mcp::parse).transpose().map_err(in_key("mcp"))?.unwrap_or_default(),
        serve: file
            .serve
            .as_ref()
            .map(|table| serve::parse(table, folder))
            .transpose()
            .map_err(in_key("serve"))?
            .unwrap_or_default(),
    })
}

/// A number of seconds, whole or fractional.
pub(super) fn seconds(value: &Value) -> Result<std::time::Duration, String> {
    parse_seconds(number(value, "seconds")?)
}

/// A whole or fractional number. `of_what` names it in the error.
fn number(value: &Value, of_what: &str) -> Result<f64, String> {
    #[expect(clippy::cast_precision_loss, reason = "a number that is so large is refused anyway")]
    match value {
        Value::Integer(number) => Ok(*number as f64),
        Value::Float(number) => Ok(*number),
        other => Err(format!("a number of {of_what} is needed, not a {}", other.type_str())),
    }
}
