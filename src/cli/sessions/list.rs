//! `conjure sessions list`: the sessions that are kept, the newest first.

use conjure::{Contents, ListCursor, SessionStatus, SessionSummary, Timestamp};
use serde_json::{Value, json};

use crate::cli::args::Format;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::host::Host;
use crate::cli::terminal::{Terminal, printable};

/// The most characters of a text in a line for people.
const TEXT: usize = 60;

/// Prints a page of sessions.
pub(super) async fn list(
    host: &Host,
    after: Option<ListCursor>,
    limit: u32,
    format: Format,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let page = host.runtime.sessions(&host.tenant, after, limit).await?;
    let next = page.next.map(ListCursor::number);
    match format {
        Format::Json => {
            let sessions: Vec<Value> = page.sessions.iter().map(entry).collect();
            terminal.output(&format!("{:#}", json!({"sessions": sessions, "next": next})));
        }
        Format::Text => {
            if page.sessions.is_empty() {
                terminal.note("no sessions");
            }
            for session in &page.sessions {
                terminal.output(&line(session));
            }
            if let Some(next) = next {
                terminal.note(&format!("there are more: `--after {next}` lists those that come next"));
            }
        }
    }
    Ok(Exit::Done)
}

fn line(session: &SessionSummary) -> String {
    let (status, turns, text) = match &session.contents {
        Contents::Read(contents) => (status(&contents.status), contents.turns, short(&contents.last_text)),
        Contents::Unreadable { reason } => ("unreadable", 0, short(reason)),
        _ => ("unknown", 0, String::new()),
    };
    let plural = if turns == 1 { " " } else { "s" };
    let line =
        format!("{}  {}  {status:<11}  {turns:>3} turn{plural}  {text}", session.id, when(session.updated));
    line.trim_end().to_owned()
}

/// A session for programs.
pub(super) fn entry(session: &SessionSummary) -> Value {
    let mut entry = json!({
        "id": session.id.to_string(),
        "opened": session.opened.to_string(),
        "updated": session.updated.to_string(),
        "events": session.events,
        "held_by": session.held_by.as_ref().map(ToString::to_string),
    });
    match &session.contents {
        Contents::Read(contents) => {
            entry["status"] = status(&contents.status).into();
            entry["turns"] = contents.turns.into();
            entry["last_text"] = contents.last_text.clone().into();
            entry["model"] = contents.model.clone().into();
            entry["usage"] = serde_json::to_value(contents.usage).unwrap_or_default();
        }
        Contents::Unreadable { reason } => {
            entry["status"] = "unreadable".into();
            entry["reason"] = reason.clone().into();
        }
        _ => {}
    }
    entry
}

/// What a session does, in a word.
pub(super) const fn status(status: &SessionStatus) -> &'static str {
    match status {
        SessionStatus::Idle => "idle",
        SessionStatus::Running(_) => "running",
        SessionStatus::AwaitingApproval(_) => "waiting",
        SessionStatus::Interrupted(_) => "interrupted",
    }
}

/// To the second.
pub(super) fn when(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}

/// The first words of a text, on one line.
pub(super) fn short(text: &str) -> String {
    let line = printable(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    if line.chars().count() <= TEXT {
        return line;
    }
    let cut: String = line.chars().take(TEXT).collect();
    format!("{cut}…")
}
