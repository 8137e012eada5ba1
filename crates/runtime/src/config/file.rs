//! The configuration file: TOML, in which every unknown key is an error.

use std::path::Path;

use toml::Table;

use crate::config::error::ConfigError;
use crate::config::keys;
use crate::config::settings::Settings;

/// The largest configuration file that is read. No person writes a larger one.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Reads the file at `path`. Relative paths in it are relative to its directory. A leading `~` is expanded later.
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
    let table: Table =
        toml::from_str(text).map_err(|error| invalid(error.to_string().trim_end().to_owned()))?;
    keys::check(path, &table)?;
    // Parses the text once more, so that the error for a wrong value contains the line.
    let mut settings: Settings = toml::from_str(text).map_err(|error| invalid(value_error(text, error)))?;
    settings.check().map_err(|(key, reason)| invalid(format!("`{key}`: {reason}")))?;
    let dir = path.parent().unwrap_or_else(|| Path::new(""));
    for (_, path) in settings.paths_mut().filter(|(_, path)| !path.starts_with("~")) {
        *path = dir.join(&path);
    }
    Ok(settings)
}

/// What is wrong with a value, with its line and its key. Does not show texts of the wrong type, since they may be
/// secrets. For the same reason it does not show the line itself.
fn value_error(text: &str, mut error: toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start);
    let line = text.get(..start).unwrap_or_default().matches('\n').count() + 1;
    // Without its input, the error consists of its message and its key.
    error.set_input(None);
    let shown = error.to_string();
    let (message, key) = shown.trim_end().rsplit_once("\nin ").unwrap_or((&shown, "the file"));
    let reason = match message.rsplit_once(", expected ") {
        Some((found, expected)) => {
            let found = if found.starts_with("invalid type: string ") { "it is a text" } else { found };
            format!("{found}, expected {}", in_words(expected))
        }
        None => message.to_owned(),
    };
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    let path = key.trim_matches('`');
    let example = missing.and_then(|name| keys::at_path(&format!("{path}.{name}"))).or(keys::at_path(path));
    let hint = example.map(|key| format!("; write it as in `{} = {}`", key.name, key.example));
    format!("line {line}: {key}: {reason}{}", hint.unwrap_or_default())
}

/// What a parser expected, in words for people.
fn in_words(expected: &str) -> &str {
    match expected {
        "f64" => "a number",
        "u16" | "u32" | "u64" | "usize" => "a whole number",
        "a nonzero u32" | "a nonzero usize" => "a whole number from 1",
        "a sequence" => "a list",
        "a map" => "a table",
        "path string" => "the name of a file",
        other => other,
    }
}
