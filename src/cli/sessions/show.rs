//! `conjure sessions show`: what a session is, and what it did.

use std::collections::HashSet;
use std::path::Path;

use conjure::{
    Artifact, Contents, Environment, FileSource, ProducedFiles, Profile, SessionFile, SessionId,
    SessionSummary,
};
use serde_json::{Value, json};

use crate::cli::approvals::input_lines;
use crate::cli::args::{Format, Variable};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::host::Host;
use crate::cli::run::{hosted_line, put_in_order, size};
use crate::cli::sessions::find::find;
use crate::cli::sessions::list::{entry, short, status, when};
use crate::cli::sessions::secrets::redact;
use crate::cli::sessions::turns::{History, Waiting, ended};
use crate::cli::terminal::{Terminal, printable};

/// More than anybody reads.
const MOST_FILES: usize = 50;

/// How much of a digest tells contents apart for people.
const DIGEST: usize = 12;

/// Everything that is shown.
struct Shown {
    summary: SessionSummary,
    profile: Profile,
    history: History,
    workspace: Option<std::path::PathBuf>,
    files: ProducedFiles,
    /// How many more there are, whose names may hold secrets.
    unnamed: usize,
    artifacts: Vec<Artifact>,
    produced: Vec<SessionFile>,
}

/// Prints it.
pub(super) async fn show(
    host: &Host,
    id: &str,
    format: Format,
    given: &[Variable],
    process: &Environment,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let shown = look(host, find(host, id).await?, terminal).await?;
    redact(&shown.profile, given, process, terminal)?;
    match format {
        Format::Json => terminal.output(&format!("{:#}", value(&shown))),
        Format::Text => terminal.output(&text(&shown, host, terminal)),
    }
    Ok(Exit::Done)
}

async fn look(host: &Host, id: SessionId, terminal: &Terminal) -> Result<Shown, Failure> {
    let (runtime, tenant) = (&host.runtime, &host.tenant);
    let profile = runtime.profile(tenant, id).await?;
    let events = runtime.events(tenant, id, 0).await?;
    let workspace = runtime.workspace(tenant, id).await?;
    let files = runtime.files(tenant, id).await.unwrap_or_else(|error| {
        terminal.warning(&error.to_string());
        ProducedFiles { files: Vec::new(), complete: true }
    });
    let summary = runtime.summary(tenant, id).await?;
    let (artifacts, mut produced) = runtime.belongings(tenant, id).await?;
    put_in_order(&mut produced, &events);
    let (files, unnamed) = named(files, &produced, &profile);
    let history = History::of(&events);
    Ok(Shown { summary, profile, history, workspace, files, unnamed, artifacts, produced })
}

/// The files whose names may be told, and how many others there are: where the session had secrets, which are not known now, only
/// names that are recorded, without them.
fn named(found: ProducedFiles, recorded: &[SessionFile], profile: &Profile) -> (ProducedFiles, usize) {
    let has_secrets = !profile.withheld.environment.is_empty()
        || !profile.withheld.secrets.is_empty()
        || !profile.withheld.inputs.is_empty();
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

fn text(shown: &Shown, host: &Host, terminal: &Terminal) -> String {
    let Shown { summary, profile, history, workspace, files, unnamed, artifacts, produced } = shown;
    let mut lines = Vec::new();
    let mut line = |name: &str, value: &str| lines.push(format!("{name:<10} {}", printable(value)));
    line("session", &summary.id.to_string());
    line("opened", &when(summary.opened));
    line("updated", &when(summary.updated));
    match (&summary.contents, &summary.held_by) {
        (Contents::Read(contents), Some(owner)) => {
            line("status", &format!("{}; `{owner}` has it", status(&contents.status)));
        }
        (Contents::Read(contents), None) => line("status", status(&contents.status)),
        (Contents::Unreadable { reason }, _) => line("status", &format!("unreadable: {reason}")),
        _ => {}
    }
    line("model", profile.model.as_deref().unwrap_or("unknown"));
    line("sandbox", profile.executor.as_deref().unwrap_or("unknown"));
    if let Some(folder) = workspace {
        line("workspace", &folder.to_string_lossy());
    }
    let withheld: Vec<&str> =
        profile.withheld.environment.iter().chain(&profile.withheld.secrets).map(String::as_str).collect();
    if !withheld.is_empty() {
        line("withheld", &withheld.join(", "));
    }
    if let Contents::Read(contents) = &summary.contents
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
            when(turn.at),
            ended(turn.stop.as_ref()),
            turn.model_calls,
            plural(turn.model_calls),
            turn.tool_calls,
            plural(turn.tool_calls),
        ));
        lines.push(format!("       {}", short(&turn.prompt)));
    }
    if !history.waiting.is_empty() {
        lines.push("waiting for a person:".to_owned());
    }
    for waiting in &history.waiting {
        let Waiting { call, reason } = waiting;
        lines.push(format!("  {}  {}", printable(call.id.as_str()), short(reason)));
        let input = input_lines(call, |text| terminal.redacted(text).into_owned());
        lines.extend(input.into_iter().map(|line| format!("    {line}")));
    }
    if let Some(first) = history.waiting.first() {
        lines.push(format!("  {}", host.how_to_decide(summary.id, &first.call.id)));
    }
    if !artifacts.is_empty() {
        lines.push("artifacts:".to_owned());
    }
    for artifact in artifacts.iter().take(MOST_FILES) {
        let known = artifact.size().map_or_else(|| "not fetched".to_owned(), size);
        let (name, kind) = (printable(artifact.name.as_str()), printable(&artifact.content_type));
        lines.push(format!("  {known:>11}  file://{name}  {kind}"));
    }
    if artifacts.len() > MOST_FILES {
        lines.push(format!("  … and {} more", artifacts.len() - MOST_FILES));
    }
    if !files.files.is_empty() || *unnamed > 0 {
        lines.push("files:".to_owned());
    }
    for file in files.files.iter().take(MOST_FILES) {
        lines.push(format!("  {:>9}  {}", size(file.size), printable(&file.path.to_string_lossy())));
    }
    if files.files.len() > MOST_FILES {
        lines.push(format!("  … and {} more", files.files.len() - MOST_FILES));
    }
    if *unnamed > 0 {
        lines.push(format!("  … and {unnamed} whose names are not recorded, or hold what was withheld"));
    }
    if !files.complete {
        lines.push("  … and more than can be looked at".to_owned());
    }
    let of_service: Vec<_> = produced.iter().filter(|file| file.source == FileSource::Hosted).collect();
    if !of_service.is_empty() {
        lines.push("files with the model's service:".to_owned());
    }
    lines.extend(of_service.iter().take(MOST_FILES).map(|file| format!("  {}", hosted_line(file))));
    if of_service.len() > MOST_FILES {
        lines.push(format!("  … and {} more", of_service.len() - MOST_FILES));
    }
    lines.join("\n")
}

const fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn value(shown: &Shown) -> Value {
    let Shown { summary, profile, history, workspace, files, unnamed: _, artifacts, produced } = shown;
    let mut value = entry(summary);
    value["sandbox"] = profile.executor.clone().into();
    value["workspace"] = workspace.as_ref().map(|folder| folder.to_string_lossy().into_owned()).into();
    value["withheld"] = serde_json::to_value(&profile.withheld).unwrap_or_default();
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
    let waiting = history.waiting.iter().map(|waiting| {
        let Waiting { call, reason } = waiting;
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
