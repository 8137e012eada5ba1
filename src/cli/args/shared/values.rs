//! The values of options: their types and their parsers.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conjure::ProcessEnv;
use conjure::config::McpServerSpec;
use conjure::config::parse_network;
use conjure::hosted::HostedSkill;
use conjure::sandbox::NetworkPolicy;

use crate::cli::cli_error::CliError;
use crate::cli::destination::{self, DestinationError, ToolDirs};
use crate::cli::terminal::printable;

/// A value of `--input`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct InputArg {
    pub(crate) name: String,
    value: InputValue,
}

#[derive(Clone, PartialEq, Eq)]
enum InputValue {
    Text(String),
    /// The content of this file, which is read when the directories that tools write to are known.
    File(PathBuf),
}

impl InputArg {
    /// The value as text. Links that tools may have created are not followed. Blocks.
    pub(crate) fn text(&self, tools: &ToolDirs) -> Result<String, CliError> {
        match &self.value {
            InputValue::Text(text) => Ok(text.clone()),
            InputValue::File(path) => read_input_file(path, tools).map_err(|reason| {
                CliError::usage(format!("`--input {}`: {}", self.name, printable(&reason)))
            }),
        }
    }
}

fn read_input_file(path: &Path, tools: &ToolDirs) -> Result<String, String> {
    let name = path.to_string_lossy();
    // A shell names a pipe below `/dev/fd` (`<(…)`). Everybody may write to `/dev/shm`; no tool can create links in the rest.
    let is_device =
        path.starts_with("/proc/self/fd") || path.starts_with("/dev") && !path.starts_with("/dev/shm");
    let file = if is_device {
        File::open(path).map_err(|error| format!("`{name}` cannot be opened: {error}"))?
    } else {
        destination::open_file(path, tools).map_err(|error| match error {
            DestinationError::Failed { source, .. } => format!("`{name}` cannot be opened: {source}"),
            link @ DestinationError::Link { .. } => link.to_string(),
        })?
    };
    if !is_device && !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err(format!("`{name}` is not a regular file"));
    }
    read_input(file, &name)
}

/// The name only: the value may be a secret.
impl std::fmt::Debug for InputArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// `NAME=VALUE`, `NAME=@FILE` or `NAME=-`. Reads standard input.
pub(crate) fn parse_input(text: &str) -> Result<InputArg, String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("an input is NAME=VALUE, NAME=@FILE, or NAME=- for standard input")?;
    let value = match (value, value.strip_prefix('@')) {
        ("-", _) => InputValue::Text(from_standard_input()?),
        (_, Some(literal)) if literal.starts_with('@') => InputValue::Text(literal.to_owned()),
        (_, Some(path)) => InputValue::File(PathBuf::from(path)),
        (value, None) => InputValue::Text(value.to_owned()),
    };
    Ok(InputArg { name: name.to_owned(), value })
}

/// The maximum size of an input.
const MAX_INPUT_BYTES: u64 = 1024 * 1024;

fn from_standard_input() -> Result<String, String> {
    static IS_READ: AtomicBool = AtomicBool::new(false);
    if IS_READ.swap(true, Ordering::Relaxed) {
        return Err("standard input is the value of one input alone; give others by NAME=@FILE".to_owned());
    }
    read_input(io::stdin(), "standard input")
}

/// Reads everything, without the line end that editors and `echo` add.
fn read_input(source: impl Read, name: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = source.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("`{name}` cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err(format!("`{name}` is larger than 1 MiB, which no input is"));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| format!("`{name}` is not UTF-8 text"))?;
    if text.ends_with('\n') {
        text.pop();
        text.truncate(text.trim_end_matches('\r').len());
    }
    Ok(text)
}

/// A file or a URL for a session, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) name: String,
    pub(crate) location: String,
}

impl Attachment {
    /// Whether it is a URL.
    pub(crate) fn is_url(&self) -> bool {
        is_url(&self.location)
    }
}

fn is_url(location: &str) -> bool {
    let scheme = location.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https"))
}

/// A hosted skill: `ID` or `ID@VERSION`.
pub(crate) fn parse_hosted(text: &str) -> Result<HostedSkill, String> {
    let (id, version) = match text.split_once('@') {
        Some((id, version)) => (id.trim(), Some(version.trim())),
        None => (text.trim(), None),
    };
    let is_word = |text: &str| {
        !text.is_empty()
            && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
    };
    if !is_word(id) || !version.is_none_or(is_word) {
        return Err(
            "a hosted skill is `ID` or `ID@VERSION`, such as `xlsx` or `skill_01AbCdEf@latest`".to_owned()
        );
    }
    let skill = if id.starts_with("skill_") { HostedSkill::custom(id) } else { HostedSkill::anthropic(id) };
    Ok(match version {
        Some(version) => skill.with_version(version),
        None => skill,
    })
}

pub(crate) fn parse_attachment(text: &str) -> Result<Attachment, String> {
    if let Some((name, location)) = text.split_once('=')
        && !name.is_empty()
        && !name.contains('/')
    {
        if location.is_empty() {
            return Err("behind `NAME=` stands a path or a URL".to_owned());
        }
        return Ok(Attachment { name: name.to_owned(), location: location.to_owned() });
    }
    let last = if is_url(text) {
        let path = text.split(['?', '#']).next().unwrap_or_default();
        path.splitn(4, '/').nth(3).and_then(|path| path.rsplit('/').next())
    } else {
        Path::new(text).file_name().and_then(std::ffi::OsStr::to_str)
    };
    match last.filter(|name| !name.is_empty()) {
        Some(name) => Ok(Attachment { name: name.to_owned(), location: text.to_owned() }),
        None => Err("it has no name by itself: write `NAME=PATH` or `NAME=URL`".to_owned()),
    }
}

/// A variable of `--env`, with its value or by name only.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// `None`: the value from this process.
    pub(crate) value: Option<String>,
}

/// The name only: the value may be a secret.
impl std::fmt::Debug for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

pub(crate) fn parse_variable(text: &str) -> Result<Variable, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let starts = name.chars().next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    if starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        Ok(Variable { name: name.to_owned(), value })
    } else {
        Err("a variable is NAME=VALUE, its name of letters, digits and `_`".to_owned())
    }
}

pub(crate) fn parse_network_arg(text: &str) -> Result<NetworkPolicy, String> {
    parse_network(text.split(',').map(str::trim).filter(|word| !word.is_empty()))
}

pub(crate) fn parse_mcp_server(text: &str) -> Result<McpServerSpec, String> {
    // The shell has replaced `${VAR}`; a line of Docker names variables in its own way.
    McpServerSpec::from_argument(text).map(|server| server.with_named_variables(&ProcessEnv::var))
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    const YEAR: f64 = 365.0 * 24.0 * 3600.0;
    text.parse::<f64>()
        .ok()
        .filter(|seconds| *seconds > 0.0 && *seconds <= YEAR)
        .map(Duration::from_secs_f64)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| {
            "a number of seconds more than 0 and up to a year is needed, such as `30` or `0.5`".to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosted_skills_are_the_services_own_or_uploaded_ones() {
        assert_eq!(parse_hosted("xlsx").unwrap(), HostedSkill::anthropic("xlsx"));
        assert_eq!(parse_hosted(" pptx ").unwrap(), HostedSkill::anthropic("pptx"));
        assert_eq!(parse_hosted("skill_01@17").unwrap(), HostedSkill::custom("skill_01").with_version("17"));
        for text in ["", "@1", "a@", "a b", "a/b", "a@b@c", "{}"] {
            assert!(parse_hosted(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_input_is_read_through_no_link_of_a_tool_and_from_no_pipe() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("work")).unwrap();
        std::fs::write(top.join("key"), "s3cret\n").unwrap();
        for link in ["link", "work/planted"] {
            std::os::unix::fs::symlink(top.join("key"), top.join(link)).unwrap();
        }
        let mode = rustix::fs::Mode::RUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, top.join("work/pipe"), kind, mode, 0).unwrap();
        let tools = ToolDirs::new([&*top.join("work")]);
        let read =
            |path: &str| parse_input(&format!("a=@{}", top.join(path).display())).unwrap().text(&tools);
        assert_eq!(read("key").unwrap(), "s3cret");
        assert_eq!(read("link").unwrap(), "s3cret");
        assert!(read("work/planted").unwrap_err().message.contains("is a link"));
        assert!(read("work/pipe").unwrap_err().message.contains("is not a regular file"));
        assert!(read("none").unwrap_err().message.contains("cannot be opened"));
        assert_eq!(parse_input("a=@@b").unwrap().text(&tools).unwrap(), "@b");
    }

    #[test]
    fn attachments_have_the_name_that_was_given_or_that_of_the_file() {
        for (text, expected) in [
            ("sales=data/sales.csv", Some(("sales", "data/sales.csv"))),
            ("data/sales.csv", Some(("sales.csv", "data/sales.csv"))),
            ("data/a=b.csv", Some(("a=b.csv", "data/a=b.csv"))),
            ("https://a.example/data/x.json?a=b#c", Some(("x.json", "https://a.example/data/x.json?a=b#c"))),
            ("api=https://a.example/?a=b", Some(("api", "https://a.example/?a=b"))),
            ("https://a.example", None),
            ("https://a.example/", None),
            ("..", None),
            ("name=", None),
            ("", None),
        ] {
            let parsed = parse_attachment(text).ok();
            let parsed = parsed.as_ref().map(|parsed| (parsed.name.as_str(), parsed.location.as_str()));
            assert_eq!(parsed, expected, "{text}");
        }
        assert!(parse_attachment("api=HTTPS://a.example/x").unwrap().is_url());
        assert!(!parse_attachment("x=https:/a").unwrap().is_url());
    }
}
