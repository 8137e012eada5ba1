//! `conjure sessions export`: prints a session as events, or as Markdown.

use conjure::model::BlockKind;
use conjure::{ProcessEnv, SessionEvent, SessionEventKind, SessionId};

use crate::cli::approvals::grant_text;
use crate::cli::args::ExportFormat;
use crate::cli::args::Variable;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::CommandRuntime;
use crate::cli::run::skill_names;
use crate::cli::sessions::find::find;
use crate::cli::sessions::show::redact;
use crate::cli::sessions::turn_list::{end_text, text_of};
use crate::cli::terminal::Terminal;

/// Prints the session.
pub(super) async fn export(
    host: &CommandRuntime,
    id: &str,
    format: ExportFormat,
    given: &[Variable],
    process: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    let id = find(host, id).await?;
    let profile = host.runtime.profile(&host.tenant, id).await?;
    redact(&profile, given, process, terminal)?;
    let events = host.runtime.events(&host.tenant, id, 0).await?;
    match format {
        ExportFormat::Jsonl => {
            for event in &events {
                terminal.output(&event.to_line());
            }
        }
        ExportFormat::Markdown => terminal.output(&markdown(&id.to_string(), &events)),
    }
    Ok(ExitStatus::Success)
}

/// The session as text.
pub(crate) fn session_text(id: SessionId, events: &[SessionEvent], format: ExportFormat) -> String {
    match format {
        ExportFormat::Jsonl => {
            events.iter().map(|event| format!("{}\n", event.to_line().trim_end())).collect()
        }
        ExportFormat::Markdown => format!("{}\n", markdown(&id.to_string(), events)),
    }
}

/// The conversation as Markdown.
fn markdown(id: &str, events: &[SessionEvent]) -> String {
    use SessionEventKind as Kind;
    let mut parts = vec![format!("# Session {id}")];
    for event in events {
        match &event.kind {
            Kind::UserMessage { content, .. } => parts.push(format!("## User\n\n{}", text_of(content))),
            Kind::AgentMessage { content } => {
                let text = text_of(content);
                if !text.trim().is_empty() {
                    parts.push(format!("## Model\n\n{text}"));
                }
            }
            Kind::AgentToolUse { name, input, .. } | Kind::AgentCustomToolUse { name, input, .. } => {
                parts.push(format!("### Calls {name}\n\n{}", fenced("json", input.get())));
            }
            Kind::AgentInputRequest { asked_by, questions, .. } => {
                let asked = questions.values().map(|question| question.message.as_str());
                parts.push(format!("### {asked_by} asks\n\n{}", asked.collect::<Vec<_>>().join("\n\n")));
            }
            Kind::UserInputResponse { answers, .. } => {
                let answers = serde_json::json!(answers).to_string();
                parts.push(format!("### Answer\n\n{}", fenced("json", &answers)));
            }
            Kind::AgentToolResult { result, is_error, .. }
            | Kind::UserCustomToolResult { result, is_error, .. }
            | Kind::UserToolResult { result, is_error, .. } => {
                let told = if *is_error { "### Error" } else { "### Result" };
                let text = match result.kind() {
                    BlockKind::ToolResult { text, .. } => text.as_str(),
                    _ => "",
                };
                parts.push(format!("{told}\n\n{}", fenced("", text)));
            }
            Kind::UserToolConfirmation { call_id, result, deny_message, grant, .. } => {
                let reason = deny_message.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
                let always = grant_text(grant.as_ref());
                let call = call_id.as_str();
                parts.push(format!("*The user's decision on {call}: {result}{reason}{always}*"));
            }
            Kind::SessionCompacted { kept_messages, content } => parts.push(format!(
                "*From here on the model reads a summary in place of all but the last {kept_messages} messages:*\n\n{}",
                text_of(content)
            )),
            Kind::SessionSkillsChanged { active_skills, .. } => {
                parts.push(format!("*Active skills: {}*", skill_names(active_skills)));
            }
            Kind::SessionError { error } => parts.push(format!("*The model call failed: {error}*")),
            Kind::SessionStatusIdle { stop_reason, .. } => {
                parts.push(format!("*{}*", end_text(Some(stop_reason))));
            }
            _ => {}
        }
    }
    parts.join("\n\n")
}

/// A code block whose fence is longer than any in it.
fn fenced(language: &str, text: &str) -> String {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(3.max(longest + 1));
    format!("{fence}{language}\n{}\n{fence}", text.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_longer_than_those_in_it() {
        assert_eq!(fenced("", "x\n"), "```\nx\n```");
        assert_eq!(fenced("json", "a ```` b"), "`````json\na ```` b\n`````");
    }
}
