//! The MCP servers of a command: those of `--mcp` and `--mcp-config`, and those of `.mcp.json` in a trusted project.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conjure::config::{McpServerSpec, parse_mcp_json};
use conjure::session::is_sensitive_variable;
use conjure::{Config, ProcessEnv};

use crate::cli::args::McpServerArgs;
use crate::cli::cli_error::CliError;
use crate::cli::terminal::{Terminal, printable};

/// The name of a project's file with MCP servers.
const PROJECT_FILE: &str = ".mcp.json";

/// The maximum size of such a file. It is larger than any file that a person writes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The servers of the command line, by name. They override the configured servers. `--mcp` overrides the files, and the project's file is
/// overridden by all others.
pub(crate) fn servers(
    args: &McpServerArgs,
    config: &Config,
    terminal: &Terminal,
) -> Result<BTreeMap<String, McpServerSpec>, CliError> {
    let mut servers = BTreeMap::new();
    let is_named = |file: &Path| {
        let real = file.canonicalize().ok();
        args.mcp_config.iter().any(|named| real.is_some() && named.canonicalize().ok() == real)
    };
    // A file that the user names is read below.
    if let Some((file, project)) = project_file().filter(|(file, _)| !is_named(file)) {
        if config.is_trusted_project(&project) {
            servers.extend(read(&file, FileOrigin::Project, terminal)?);
        } else {
            terminal.warning(&format!(
                "the MCP servers of `{PROJECT_FILE}` are not used: the project is not trusted; `--mcp-config {PROJECT_FILE}` uses them now, \
                 `trusted_projects` in the configuration always"
            ));
        }
    }
    for file in &args.mcp_config {
        servers.extend(read(file, FileOrigin::Named, terminal)?);
    }
    servers.extend(args.mcp.iter().map(|server| (server.name.to_string(), server.clone())));
    Ok(servers)
}

/// The file of the current directory's project, with the project's path. `None` if there is no file.
fn project_file() -> Option<(PathBuf, PathBuf)> {
    let project = std::env::current_dir().ok()?;
    let file = project.join(PROJECT_FILE);
    file.is_file().then_some((file, project))
}

/// Why a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileOrigin {
    /// The user named it.
    Named,
    /// It lies in a trusted project, where a tool may have written it. So it gets no secrets of the user.
    Project,
}

fn read(
    path: &Path,
    origin: FileOrigin,
    terminal: &Terminal,
) -> Result<impl Iterator<Item = (String, McpServerSpec)> + use<>, CliError> {
    let shown = printable(&path.to_string_lossy());
    let refused =
        |reason: String| CliError::usage(format!("the MCP servers of `{shown}` cannot be read: {reason}"));
    let found = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?;
    if !found.is_file() || found.len() > MAX_FILE_BYTES {
        return Err(refused("it must be a regular file of at most 1 MiB".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let withheld = RefCell::new(None);
    let lookup = |name: &str| {
        let value = ProcessEnv::var(name)?;
        if origin == FileOrigin::Project && is_sensitive_variable(name, &value) {
            withheld.borrow_mut().get_or_insert_with(|| name.to_owned());
            return None;
        }
        Some(value)
    };
    let file = parse_mcp_json(&text, &lookup).map_err(|error| refused(error.to_string()))?;
    if let Some(name) = withheld.take() {
        let name = printable(&name);
        return Err(refused(format!("it wants the variable `{name}`, which looks like a secret")).with_hint(
            "if you know the file: `--mcp-config .mcp.json` gives it all variables; or name the server as `[mcp.NAME]` in the \
             configuration",
        ));
    }
    for skipped in &file.skipped {
        terminal.warning(skipped);
    }
    Ok(file.servers.into_iter().map(|server| (server.name.to_string(), server)))
}
