//! `conjure sessions list`: lists the recorded sessions, the newest first.

use conjure::journal::ListCursor;
use conjure::runtime::Timestamp;
use conjure::session::{SessionBody, SessionStatus, SessionSummary};
use conjure_base::text::truncate;
use serde_json::{Value, json};

use crate::cli::args::Format;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::CommandRuntime;
use crate::cli::terminal::{Terminal, printable};

/// The maximum length of a text in a line, in characters.
const MAX_TEXT_CHARS: usize = 60;

/// Prints a page of sessions.
pub(super) async fn list(
    host: &CommandRuntime,
    after: Option<ListCursor>,
    limit: u32,
    format: Format,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    let page = host.runtime.sessions(&host.tenant, after, limit).await?;
    let next = page.next.map(ListCursor::number);
    match format {
        Format::Json => {
            let sessions: Vec<Value> = page.sessions.iter().map(json_entry).collect();
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
    Ok(ExitStatus::Success)
}

fn line(session: &SessionSummary) -> String {
    let (status, turns, text) = match &session.body {
        SessionBody::Ok(contents) => (status(&contents.status), contents.turns, shorten(&contents.last_text)),
        SessionBody::Corrupt { reason } => ("unreadable", 0, shorten(reason)),
        _ => ("unknown", 0, String::new()),
    };
    let plural = if turns == 1 { " " } else { "s" };
    let line = format!(
        "{}  {}  {status:<11}  {turns:>3} turn{plural}  {text}",
        session.id,
        format_time(session.updated)
    );
    line.trim_end().to_owned()
}

/// A session as JSON.
pub(super) fn json_entry(session: &SessionSummary) -> Value {
    let mut entry = json!({
        "id": session.id.to_string(),
        "opened": session.opened.to_string(),
        "updated": session.updated.to_string(),
        "events": session.events,
        "held_by": session.lease_owner.as_ref().map(ToString::to_string),
    });
    match &session.body {
        SessionBody::Ok(contents) => {
            entry["status"] = status(&contents.status).into();
            entry["turns"] = contents.turns.into();
            entry["last_text"] = contents.last_text.clone().into();
            entry["model"] = contents.model.clone().into();
            entry["usage"] = serde_json::to_value(contents.usage).unwrap_or_default();
        }
        SessionBody::Corrupt { reason } => {
            entry["status"] = "unreadable".into();
            entry["reason"] = reason.clone().into();
        }
        _ => {}
    }
    entry
}

/// The status as a word.
pub(super) const fn status(status: &SessionStatus) -> &'static str {
    match status {
        SessionStatus::Idle => "idle",
        SessionStatus::Running(_) => "running",
        SessionStatus::AwaitingApproval(_) => "waiting",
        SessionStatus::Interrupted(_) => "interrupted",
    }
}

/// The time in seconds.
pub(super) fn format_time(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}

/// The beginning of a text on one line.
pub(super) fn shorten(text: &str) -> String {
    let line = printable(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    truncate(&line, MAX_TEXT_CHARS + 1).into_owned()
}
