//! `conjure skills push`: the model's service, in step with a folder of skills.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::anthropic::hosted::{
    Absent, Pushed, SkillFailure, SkillId, SkillSync, Step, SyncEvent, VersionId,
};
use conjure::{Config, Diagnostic, Environment, Settings, Severity};
use serde_json::{Value, json};

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::hosted_args::PushArgs;
use crate::cli::service;
use crate::cli::skills::told;
use crate::cli::terminal::{Style, Terminal, printable};

/// What helps where even the list of skills is not there.
pub(super) const NO_SERVICE: &str =
    "does the service at `ANTHROPIC_BASE_URL` keep skills, in the form of `CONJURE_PROFILE`?";

/// A skill in the result.
struct Line<'a> {
    name: &'a str,
    place: &'a Path,
    word: &'static str,
    end: Result<(Option<&'a SkillId>, Option<&'a VersionId>), &'a SkillFailure>,
}

/// Uploads what is new or has changed, or says what that is. Exit code 0: all is as it is here; 1: something is not; 2: nothing
/// could be tried.
pub(super) async fn push(
    args: &PushArgs,
    config: &Config,
    environment: &Environment,
    terminal: &Arc<Terminal>,
) -> Result<Exit, Failure> {
    let client = service::client(config, environment, terminal)?;
    let teller = Arc::clone(terminal);
    let sync = SkillSync::new(client.skills(), record(args.data.as_ref(), config, environment)?);
    let sync = sync.on_event(move |event| {
        if let SyncEvent::Started { name, bytes } = event {
            teller.styled(Style::Dim, &format!("uploading {}: {bytes} bytes", printable(name)));
        }
    });
    let refused = |error| service::failed(error, NO_SERVICE);
    if args.dry_run {
        let plan = sync.plan(&args.folder).await.map_err(refused)?;
        let lines: Vec<Line<'_>> = plan
            .skills
            .iter()
            .map(|skill| {
                let (word, end) = match skill.step() {
                    Ok(Step::Create) => ("create", Ok((None, None))),
                    Ok(Step::Update { skill }) => ("update", Ok((Some(skill), None))),
                    Ok(Step::Keep { skill, version }) => ("unchanged", Ok((Some(skill), Some(version)))),
                    Err(failure) => ("failed", Err(failure)),
                };
                Line { name: skill.name(), place: skill.place(), word, end }
            })
            .collect();
        tell(args, &lines, &plan.absent, &plan.notes, terminal);
        return Ok(if plan.is_good() { Exit::Done } else { Exit::Failed });
    }
    let report = sync.push(&args.folder).await.map_err(refused)?;
    let lines: Vec<Line<'_>> = report
        .skills
        .iter()
        .map(|skill| {
            let word = match skill.result() {
                Ok(Pushed::Created { .. }) => "created",
                Ok(Pushed::Updated { .. }) => "updated",
                Ok(Pushed::Unchanged { .. }) => "unchanged",
                Err(_) => "failed",
            };
            let end = skill.result().map(|pushed| (Some(pushed.skill()), pushed.version()));
            Line { name: skill.name(), place: skill.place(), word, end }
        })
        .collect();
    tell(args, &lines, &report.absent, &report.notes, terminal);
    if let Some(error) = &report.not_remembered {
        terminal.warning(&format!(
            "{}; the next push finds at the service what this one has uploaded",
            printable(&error.to_string())
        ));
    }
    Ok(if report.is_good() { Exit::Done } else { Exit::Failed })
}

/// The folder of the record of what was uploaded.
pub(super) fn record(
    data: Option<&PathBuf>,
    config: &Config,
    environment: &Environment,
) -> Result<PathBuf, Failure> {
    let config = config.with(Settings { data: data.cloned(), ..Settings::default() })?;
    let folder = config.data().map(Path::to_owned).or_else(|| environment.data_folder());
    let folder = folder.ok_or_else(|| {
        Failure::usage("no data folder is known: neither `XDG_DATA_HOME` nor `HOME` is set")
            .hint("`--data DIR` names one, as does `CONJURE_DATA`")
    })?;
    Ok(folder.join("hosted"))
}

fn tell(args: &PushArgs, lines: &[Line<'_>], absent: &[Absent], notes: &[Diagnostic], terminal: &Terminal) {
    for note in notes {
        match note.severity() {
            Severity::Info => terminal.note(&format!("note: {}", told(note))),
            _ => terminal.warning(&told(note)),
        }
    }
    if args.json {
        terminal.output(&format!("{:#}", json_of(args, lines, absent)));
    } else {
        tell_lines(args, lines, absent, terminal);
    }
    let mut hints: Vec<String> = Vec::new();
    for line in lines {
        let hint = match line.end {
            Err(SkillFailure::Service(error)) => service::hint(error, service::LISTED),
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

fn tell_lines(args: &PushArgs, lines: &[Line<'_>], absent: &[Absent], terminal: &Terminal) {
    if lines.is_empty() && absent.is_empty() {
        terminal.note(&format!("no skills found in {}", printable(&args.folder.to_string_lossy())));
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
    for Absent { name, skill, .. } in absent {
        let skill = printable(skill.as_str());
        say(name, "absent", &format!("{skill}  not in the folder any more; the service keeps it"));
    }
}

fn json_of(args: &PushArgs, lines: &[Line<'_>], absent: &[Absent]) -> Value {
    let skills: Vec<Value> = lines
        .iter()
        .map(|line| {
            let (skill, version) = line.end.unwrap_or_default();
            json!({
                "name": line.name,
                "path": line.place.to_string_lossy(),
                "status": line.word,
                "id": skill.map(SkillId::as_str),
                "version": version.map(VersionId::as_str),
                "error": line.end.err().map(ToString::to_string),
            })
        })
        .collect();
    let absent: Vec<Value> =
        absent.iter().map(|Absent { name, skill, .. }| json!({"name": name, "id": skill.as_str()})).collect();
    json!({"dry_run": args.dry_run, "skills": skills, "absent": absent})
}
