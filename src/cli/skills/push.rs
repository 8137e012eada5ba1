//! `conjure skills push`: uploads a directory of skills to the model's service.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::anthropic::hosted::{
    MissingLocally, PlannedAction, PushResult, SkillFailure, SkillId, SkillSync, SyncEvent, VersionId,
};
use conjure::skill::{Diagnostic, Severity};
use conjure::{Config, ProcessEnv, Settings};
use serde_json::{Value, json};

use crate::cli::args::PushArgs;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::hosted_client;
use crate::cli::skills::load::diagnostic_line;
use crate::cli::terminal::{Style, Terminal, printable};

/// The hint if the list of skills cannot be fetched.
pub(super) const NO_SERVICE: &str =
    "does the service at `ANTHROPIC_BASE_URL` keep skills, in the form of `CONJURE_PROFILE`?";

/// A skill in the result.
struct PushLine<'a> {
    name: &'a str,
    path: &'a Path,
    word: &'static str,
    end: Result<(Option<&'a SkillId>, Option<&'a VersionId>), &'a SkillFailure>,
}

/// Uploads new and changed skills, or prints what would be uploaded. Exit code 0: everything is up to date. 1: something is not. 2: nothing
/// could be tried.
pub(super) async fn push(
    args: &PushArgs,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    let client = hosted_client::client(config, environment, terminal)?;
    let teller = Arc::clone(terminal);
    let sync = SkillSync::new(client.skills(), index_dir(args.data.as_ref(), config, environment)?);
    let sync = sync.on_event(move |event| {
        if let SyncEvent::Started { name, bytes } = event {
            teller.styled(Style::Dim, &format!("uploading {}: {bytes} bytes", printable(name)));
        }
    });
    let refused = |error| hosted_client::sync_error(error, NO_SERVICE);
    if args.dry_run {
        let plan = sync.plan(&args.dir).await.map_err(refused)?;
        let lines: Vec<PushLine<'_>> = plan
            .skills
            .iter()
            .map(|skill| {
                let (word, end) = match skill.step() {
                    Ok(PlannedAction::Create) => ("create", Ok((None, None))),
                    Ok(PlannedAction::Update { skill }) => ("update", Ok((Some(skill), None))),
                    Ok(PlannedAction::Keep { skill, version }) => {
                        ("unchanged", Ok((Some(skill), Some(version))))
                    }
                    Err(failure) => ("failed", Err(failure)),
                };
                PushLine { name: skill.name(), path: skill.path(), word, end }
            })
            .collect();
        print_result(args, &lines, &plan.absent, &plan.notes, terminal);
        return Ok(if plan.is_possible() { ExitStatus::Success } else { ExitStatus::Failed });
    }
    let report = sync.push(&args.dir).await.map_err(refused)?;
    let lines: Vec<PushLine<'_>> = report
        .skills
        .iter()
        .map(|skill| {
            let word = match skill.result() {
                Ok(PushResult::Created { .. }) => "created",
                Ok(PushResult::Updated { .. }) => "updated",
                Ok(PushResult::Unchanged { .. }) => "unchanged",
                Err(_) => "failed",
            };
            let end = skill.result().map(|pushed| (Some(pushed.skill()), pushed.version()));
            PushLine { name: skill.name(), path: skill.path(), word, end }
        })
        .collect();
    print_result(args, &lines, &report.absent, &report.notes, terminal);
    if let Some(error) = &report.record_error {
        terminal.warning(&format!(
            "{}; the next push finds at the service what this one has uploaded",
            printable(&error.to_string())
        ));
    }
    Ok(if report.is_complete() { ExitStatus::Success } else { ExitStatus::Failed })
}

/// The directory of the upload index.
pub(super) fn index_dir(
    data: Option<&PathBuf>,
    config: &Config,
    environment: &ProcessEnv,
) -> Result<PathBuf, CliError> {
    let config = config.with(Settings { data: data.cloned(), ..Settings::default() })?;
    let dir = config.data().map(Path::to_owned).or_else(|| environment.data_dir());
    let dir = dir.ok_or_else(|| {
        CliError::usage("no data directory is known: neither `XDG_DATA_HOME` nor `HOME` is set")
            .with_hint("`--data DIR` names one, as does `CONJURE_DATA`")
    })?;
    Ok(dir.join("hosted"))
}

fn print_result(
    args: &PushArgs,
    lines: &[PushLine<'_>],
    absent: &[MissingLocally],
    notes: &[Diagnostic],
    terminal: &Terminal,
) {
    for note in notes {
        match note.severity() {
            Severity::Info => terminal.note(&format!("note: {}", diagnostic_line(note))),
            _ => terminal.warning(&diagnostic_line(note)),
        }
    }
    if args.json {
        terminal.output(&format!("{:#}", to_json(args, lines, absent)));
    } else {
        print_lines(args, lines, absent, terminal);
    }
    let mut hints: Vec<String> = Vec::new();
    for line in lines {
        let hint = match line.end {
            Err(SkillFailure::Service(error)) => hosted_client::hint(error, hosted_client::REMOTE_LIST_HINT),
            Err(SkillFailure::Ambiguous { .. }) => {
                Some("`conjure skills remote delete ID` deletes one".to_owned())
            }
            _ => None,
        };
        hints.extend(hint.filter(|hint| !hints.contains(hint)));
    }
    for hint in hints {
        terminal.marked(Style::Good, "hint", &format!(": {hint}"));
    }
}

fn print_lines(args: &PushArgs, lines: &[PushLine<'_>], absent: &[MissingLocally], terminal: &Terminal) {
    if lines.is_empty() && absent.is_empty() {
        terminal.note(&format!("no skills found in {}", printable(&args.dir.to_string_lossy())));
    }
    let names = lines.iter().map(|line| line.name).chain(absent.iter().map(|absent| absent.name.as_str()));
    let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
    let say = |name: &str, word: &str, rest: &str| {
        terminal.output(format!("{:<width$}  {word:<9}  {rest}", printable(name)).trim_end());
    };
    for line in lines {
        let rest = match line.end {
            Ok((skill, version)) => {
                let skill = skill.map(|skill| printable(skill.as_str())).unwrap_or_default();
                let version = version.map(|version| format!("  version {}", printable(version.as_str())));
                format!("{skill}{}", version.unwrap_or_default())
            }
            Err(failure) => printable(&failure.to_string().replace('\n', " ")),
        };
        say(line.name, line.word, &rest);
    }
    for MissingLocally { name, skill, .. } in absent {
        let skill = printable(skill.as_str());
        say(name, "absent", &format!("{skill}  not in the directory any more; the service keeps it"));
    }
}

fn to_json(args: &PushArgs, lines: &[PushLine<'_>], absent: &[MissingLocally]) -> Value {
    let skills: Vec<Value> = lines
        .iter()
        .map(|line| {
            let (skill, version) = line.end.unwrap_or_default();
            json!({
                "name": line.name,
                "path": line.path.to_string_lossy(),
                "status": line.word,
                "id": skill.map(SkillId::as_str),
                "version": version.map(VersionId::as_str),
                "error": line.end.err().map(ToString::to_string),
            })
        })
        .collect();
    let absent: Vec<Value> = absent
        .iter()
        .map(|MissingLocally { name, skill, .. }| json!({"name": name, "id": skill.as_str()}))
        .collect();
    json!({"dry_run": args.dry_run, "skills": skills, "absent": absent})
}
