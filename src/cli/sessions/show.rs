//! `conjure sessions show`: prints the settings and the history of a session.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use conjure::artifact::{Artifact, FileSource, ProducedFiles, SessionFile};
use conjure::session::{ContextOptions, SessionBody, SessionProfile, SessionSummary};
use conjure::{ProcessEnv, SessionId};
use serde_json::{Value, json};

use crate::cli::approvals::input_lines;
use crate::cli::args::{Format, Variable};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::CommandRuntime;
use crate::cli::run::{hosted_line, human_size, sort_by_events, variables};
use crate::cli::sessions::find::find;
use crate::cli::sessions::list::{format_time, json_entry, shorten, status};
use crate::cli::sessions::turn_list::{History, PendingCall, end_text, pending_calls};
use crate::cli::terminal::{Terminal, printable};

/// The maximum number of files that are printed.
const MAX_FILES: usize = 50;

/// The number of digits of a digest that are printed.
const DIGEST: usize = 12;

/// The data of a session that is printed.
struct SessionReport {
    summary: SessionSummary,
    profile: SessionProfile,
    history: History,
    pending: Vec<PendingCall>,
    workspace: Option<std::path::PathBuf>,
    files: ProducedFiles,
    /// The number of other files, whose names may contain secrets.
    unnamed: usize,
    artifacts: Vec<Artifact>,
    produced: Vec<SessionFile>,
}

/// Prints the session.
pub(super) async fn show(
    host: &CommandRuntime,
    id: &str,
    format: Format,
    given: &[Variable],
    process: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    let report = load_report(host, find(host, id).await?, terminal).await?;
    redact(&report.profile, given, process, terminal)?;
    match format {
        Format::Json => terminal.output(&format!("{:#}", value(&report))),
        Format::Text => terminal.output(&text(&report, host, terminal)),
    }
    Ok(ExitStatus::Success)
}

async fn load_report(
    host: &CommandRuntime,
    id: SessionId,
    terminal: &Terminal,
) -> Result<SessionReport, CliError> {
    let (runtime, tenant) = (&host.runtime, &host.tenant);
    let profile = runtime.profile(tenant, id).await?;
    let events = runtime.events(tenant, id, 0).await?;
    let workspace = runtime.workspace(tenant, id).await?;
    let files = runtime.files(tenant, id).await.unwrap_or_else(|error| {
        terminal.warning(&error.to_string());
        ProducedFiles { files: Vec::new(), complete: true }
    });
    let summary = runtime.summary(tenant, id).await?;
    let (artifacts, mut produced) = runtime.artifacts_and_files(tenant, id).await?;
    sort_by_events(&mut produced, &events);
    let (files, unnamed) = nameable_files(files, &produced, &profile);
    let (history, pending) = (History::from_events(&events), pending_calls(&events));
    Ok(SessionReport { summary, profile, history, pending, workspace, files, unnamed, artifacts, produced })
}

/// The files whose names may be printed, and the number of the others. If some secrets of the session are not known now, only recorded
/// names are printed.
fn nameable_files(
    found: ProducedFiles,
    recorded: &[SessionFile],
    profile: &SessionProfile,
) -> (ProducedFiles, usize) {
    let has_secrets = !profile.secret_names.environment.is_empty()
        || !profile.secret_names.secrets.is_empty()
        || !profile.secret_names.inputs.is_empty();
    if !has_secrets {
        return (found, 0);
    }
    let recorded: HashSet<&Path> = recorded.iter().map(|file| Path::new(&file.id)).collect();
    let count = found.files.len();
    let files: Vec<_> =
        found.files.into_iter().filter(|file| recorded.contains(file.path.as_path())).collect();
    let unnamed = count - files.len();
    (ProducedFiles { files, ..found }, unnamed)
}

fn text(report: &SessionReport, host: &CommandRuntime, terminal: &Terminal) -> String {
    let SessionReport { summary, profile, history, pending, workspace, files, unnamed, artifacts, produced } =
        report;
    let mut lines = Vec::new();
    let mut line = |name: &str, value: &str| lines.push(format!("{name:<10} {}", printable(value)));
    line("session", &summary.id.to_string());
    line("opened", &format_time(summary.opened));
    line("updated", &format_time(summary.updated));
    match (&summary.body, &summary.lease_owner) {
        (SessionBody::Ok(contents), Some(owner)) => {
            line("status", &format!("{}; `{owner}` has it", status(&contents.status)));
        }
        (SessionBody::Ok(contents), None) => line("status", status(&contents.status)),
        (SessionBody::Corrupt { reason }, _) => line("status", &format!("unreadable: {reason}")),
        _ => {}
    }
    line("model", profile.model.as_deref().unwrap_or("unknown"));
    line("sandbox", profile.executor.as_deref().unwrap_or("unknown"));
    if let Some(dir) = workspace {
        line("workspace", &dir.to_string_lossy());
    }
    let withheld: Vec<&str> = profile
        .secret_names
        .environment
        .iter()
        .chain(&profile.secret_names.secrets)
        .map(String::as_str)
        .collect();
    if !withheld.is_empty() {
        line("withheld", &withheld.join(", "));
    }
    if let SessionBody::Ok(contents) = &summary.body
        && contents.usage.total() > 0
    {
        let usage = &contents.usage;
        line("used", &format!("{} tokens in, {} out", usage.total_input(), usage.output_tokens));
    }
    for (place, skill) in profile.hosted.iter().enumerate() {
        line(if place == 0 { "hosted" } else { "" }, &format!("{} {}", skill.id, skill.version));
    }
    for (place, skill) in profile.skills.iter().enumerate() {
        let digest = skill.digest.to_hex();
        let name = if place == 0 { "skills" } else { "" };
        line(name, &format!("{} {}", skill.name, &digest[..DIGEST.min(digest.len())]));
    }
    lines.push("turns:".to_owned());
    for (place, turn) in history.turns.iter().enumerate() {
        lines.push(format!(
            "  {:>3}  {}  {}; {} model call{}, {} tool call{}",
            place + 1,
            format_time(turn.at),
            end_text(turn.stop.as_ref()),
            turn.model_calls,
            plural(turn.model_calls),
            turn.tool_calls,
            plural(turn.tool_calls),
        ));
        lines.push(format!("       {}", shorten(&turn.prompt)));
    }
    if !pending.is_empty() {
        lines.push("waiting for a person:".to_owned());
    }
    for PendingCall { call, reason } in pending {
        lines.push(format!("  {}  {}", printable(call.id.as_str()), shorten(reason)));
        let input = input_lines(call, |text| terminal.redacted(text).into_owned());
        lines.extend(input.into_iter().map(|line| format!("    {line}")));
    }
    if let Some(first) = pending.first() {
        lines.push(format!("  {}", host.decide_hint(summary.id, &first.call.id)));
    }
    if !artifacts.is_empty() {
        lines.push("artifacts:".to_owned());
    }
    for artifact in artifacts.iter().take(MAX_FILES) {
        let known = artifact.size().map_or_else(|| "not fetched".to_owned(), human_size);
        let (name, kind) = (printable(artifact.name.as_str()), printable(&artifact.content_type));
        lines.push(format!("  {known:>11}  file://{name}  {kind}"));
    }
    if artifacts.len() > MAX_FILES {
        lines.push(format!("  … and {} more", artifacts.len() - MAX_FILES));
    }
    if !files.files.is_empty() || *unnamed > 0 {
        lines.push("files:".to_owned());
    }
    for file in files.files.iter().take(MAX_FILES) {
        lines.push(format!("  {:>9}  {}", human_size(file.size), printable(&file.path.to_string_lossy())));
    }
    if files.files.len() > MAX_FILES {
        lines.push(format!("  … and {} more", files.files.len() - MAX_FILES));
    }
    if *unnamed > 0 {
        lines.push(format!("  … and {unnamed} whose names may contain secrets"));
    }
    if !files.complete {
        lines.push("  … too many files to list; there may be more".to_owned());
    }
    let of_service: Vec<_> = produced.iter().filter(|file| file.source == FileSource::Hosted).collect();
    if !of_service.is_empty() {
        lines.push("files with the model's service:".to_owned());
    }
    lines.extend(of_service.iter().take(MAX_FILES).map(|file| format!("  {}", hosted_line(file))));
    if of_service.len() > MAX_FILES {
        lines.push(format!("  … and {} more", of_service.len() - MAX_FILES));
    }
    lines.join("\n")
}

const fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn value(report: &SessionReport) -> Value {
    let SessionReport {
        summary,
        profile,
        history,
        pending,
        workspace,
        files,
        unnamed: _,
        artifacts,
        produced,
    } = report;
    let mut value = json_entry(summary);
    value["sandbox"] = profile.executor.clone().into();
    value["workspace"] = workspace.as_ref().map(|dir| dir.to_string_lossy().into_owned()).into();
    value["withheld"] = serde_json::to_value(&profile.secret_names).unwrap_or_default();
    let skills =
        profile.skills.iter().map(|skill| json!({"name": skill.name, "digest": skill.digest.to_hex()}));
    value["skills"] = skills.collect();
    let turns = history.turns.iter().map(|turn| {
        json!({
            "started_at": turn.at.to_string(),
            "prompt": turn.prompt,
            "model_calls": turn.model_calls,
            "tool_calls": turn.tool_calls,
            "stop_reason": turn.stop,
            "usage": turn.usage,
        })
    });
    value["turn_list"] = turns.collect();
    let waiting = pending.iter().map(|PendingCall { call, reason }| {
        json!({"tool_use_id": call.id.as_str(), "name": call.name, "input": call.input_value(), "reason": reason})
    });
    value["approvals"] = waiting.collect();
    let listed =
        files.files.iter().map(|file| json!({"path": file.path.to_string_lossy(), "size": file.size}));
    value["files"] = listed.collect();
    let given = artifacts.iter().map(|artifact| {
        json!({
            "name": artifact.name.as_str(),
            "content_type": artifact.content_type,
            "size": artifact.size(),
            "digest": artifact.content.as_ref().map(|content| content.digest.to_hex()),
        })
    });
    value["artifacts"] = given.collect();
    value["produced"] = serde_json::to_value(produced).unwrap_or_default();
    value
}

/// Redacts the session's secrets in everything that is printed from now on: the API key, the `given` variables, and the recorded variables
/// that this process has.
///
/// Tool results were redacted when they were recorded. The model's text was not.
pub(super) fn redact(
    profile: &SessionProfile,
    given: &[Variable],
    process: &ProcessEnv,
    terminal: &Terminal,
) -> Result<(), CliError> {
    let known = profile.secret_names.environment.iter().chain(&profile.secret_names.secrets);
    let mut secrets: BTreeMap<String, String> =
        known.filter_map(|name| Some((name.clone(), ProcessEnv::var(name)?))).collect();
    secrets.extend(variables(given)?);
    let keys = process.model_keys().filter_map(|name| Some((name.to_owned(), ProcessEnv::var(name)?)));
    secrets.extend(keys);
    terminal.redact(ContextOptions { secrets, ..ContextOptions::default() }.redactor());
    Ok(())
}
