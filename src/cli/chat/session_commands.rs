//! The chat commands about the session: `/skills`, `/files`, `/attach` and `/export`.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::artifact::{FileSource, SessionFile};
use conjure::{ProcessEnv, Skill};
use rustix::fs::{Mode, OFlags};

use crate::cli::args::{ExportFormat, parse_attachment};
use crate::cli::cli_error::CliError;
use crate::cli::destination::{self, ToolDirs};
use crate::cli::run::{
    CommandSession, hosted_line, human_size, list_outputs, registration_source, run_blocking, shorten_to,
    split_newest,
};
use crate::cli::sessions::session_text;
use crate::cli::terminal::{Terminal, printable};

/// The maximum number of files that are listed.
const MAX_LISTED: usize = 50;

/// The extension of an export as events.
const EVENTS_EXTENSION: &str = "jsonl";

/// Lists the skills of the session. `known` contains the skills with known descriptions.
pub(super) async fn list_skills(
    opened: &CommandSession,
    known: &[Arc<Skill>],
    terminal: &Terminal,
) -> Result<(), CliError> {
    let profile = opened.host.runtime.profile(&opened.host.tenant, opened.session.id()).await?;
    let active = opened.session.snapshot().await?.active_skills;
    if profile.skills.is_empty() && profile.hosted.is_empty() {
        terminal.note("this session has no skills; `--skills DIR` names a directory of them");
    }
    let width = profile.skills.iter().map(|skill| skill.name.chars().count()).max().unwrap_or_default();
    for skill in &profile.skills {
        let is_active = active.iter().any(|active| active.name == skill.name);
        let mark = if is_active { "*" } else { " " };
        let description =
            known.iter().find(|known| known.name().as_str() == skill.name).map(|known| known.description());
        let name = printable(&skill.name);
        let room = terminal.columns().saturating_sub(width + 6).max(20);
        let description = description.map_or_else(String::new, |text| shorten_to(text, room));
        terminal.note(format!(" {mark} {name:<width$}  {description}").trim_end());
    }
    for skill in &profile.hosted {
        terminal.note(&format!("   {}  (the model's service runs it)", printable(&skill.id)));
    }
    if !active.is_empty() {
        terminal.note("the model has loaded those with `*`");
    }
    Ok(())
}

/// Lists the files that the session produced. Of several files with the same name, only the newest is listed.
pub(super) async fn list_files(opened: &CommandSession, terminal: &Terminal) -> Result<(), CliError> {
    let produced = list_outputs(&opened.host, &opened.session).await?;
    let (newest, _) = split_newest(&produced);
    if newest.is_empty() {
        terminal.note("the session has produced no files yet");
        return Ok(());
    }
    for file in newest.iter().take(MAX_LISTED) {
        terminal.note(&format!("  {}", file_line(file)));
    }
    if newest.len() > MAX_LISTED {
        terminal.note(&format!("  … and {} more", newest.len() - MAX_LISTED));
    }
    if newest.iter().any(|file| file.source != FileSource::Hosted) {
        terminal.note(&format!("they are in {}", opened.workspace.path().display()));
    }
    Ok(())
}

fn file_line(file: &SessionFile) -> String {
    if file.source == FileSource::Hosted {
        return format!("{}  (with the model's service)", hosted_line(file));
    }
    let size = file.size.map_or_else(|| "unknown".to_owned(), human_size);
    format!("{size:>9}  {}", printable(&file.name))
}

/// Attaches a file or a URL to the session. Returns the name of the artifact.
pub(super) async fn attach(
    opened: &CommandSession,
    argument: &str,
    tools: &Arc<ToolDirs>,
    environment: &ProcessEnv,
) -> Result<String, CliError> {
    let refused = |reason: String| CliError::usage(format!("`/attach`: {}", printable(&reason)));
    let mut attached = parse_attachment(argument).map_err(refused)?;
    if !attached.is_url() {
        attached.location = in_home(&attached.location, environment).to_string_lossy().into_owned();
    }
    let (name, tools) = (attached.name.clone(), Arc::clone(tools));
    let source = run_blocking(move || registration_source(&attached, &tools).map_err(CliError::usage));
    let source = source.await.map_err(|error| refused(error.message))?;
    let registered = opened.session.artifacts().register(&name, source).await;
    let artifact = registered
        .map_err(|error| refused(error.to_string()).with_hint("`/attach NAME=PATH` gives it another name"))?;
    Ok(artifact.name.as_str().to_owned())
}

/// Writes the conversation to a new file. Returns its path.
pub(super) async fn export(
    opened: &CommandSession,
    argument: &str,
    tools: &Arc<ToolDirs>,
    environment: &ProcessEnv,
    terminal: &Arc<Terminal>,
) -> Result<PathBuf, CliError> {
    let path = in_home(argument, environment);
    let is_events = path.extension().is_some_and(|extension| extension == EVENTS_EXTENSION);
    let format = if is_events { ExportFormat::Jsonl } else { ExportFormat::Markdown };
    let id = opened.session.id();
    let events = opened.host.runtime.events(&opened.host.tenant, id, 0).await?;
    let text = terminal.redacted(&session_text(id, &events, format)).into_owned();
    let (written, tools) = (path.clone(), Arc::clone(tools));
    run_blocking(move || {
        write_new(&written, &text, &tools).map_err(|reason| {
            CliError::usage(format!("`/export`: {}", printable(&reason))).with_hint("name another file")
        })
    })
    .await?;
    Ok(path)
}

/// Writes a file that must not exist yet. Links that a tool may have created are not followed. Blocks.
fn write_new(path: &Path, text: &str, tools: &ToolDirs) -> Result<(), String> {
    let (dir, name) = destination::open_parent(path, tools).map_err(|error| error.to_string())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&dir.handle, &name, flags, Mode::from_raw_mode(0o666));
    let made = made.map_err(|errno| match errno {
        rustix::io::Errno::EXIST => {
            format!("`{}` exists, and is not overwritten", path.display())
        }
        other => format!("`{}` cannot be written: {}", path.display(), std::io::Error::from(other)),
    })?;
    let written = File::from(made).write_all(text.as_bytes());
    written.map_err(|error| format!("`{}` is not complete: {error}", path.display()))
}

/// The path, with a leading `~` replaced by the home directory.
fn in_home(path: &str, environment: &ProcessEnv) -> PathBuf {
    match (path.strip_prefix("~/"), environment.home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_overwrites_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chat.md");
        write_new(&path, "one", &ToolDirs::default()).unwrap();
        let refused = write_new(&path, "two", &ToolDirs::default()).unwrap_err();
        assert!(refused.contains("is not overwritten"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        std::os::unix::fs::symlink(dir.path().join("new"), dir.path().join("link")).unwrap();
        let tools = ToolDirs::new([dir.path()]);
        let refused = write_new(&dir.path().join("link"), "x", &tools).unwrap_err();
        assert!(refused.contains("is a link"), "{refused}");
        assert!(!dir.path().join("new").exists());
    }
}
