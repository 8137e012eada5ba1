//! `conjure skills list`: lists the skills that a session would have.

use conjure::skill::Trust;
use conjure::{Config, Skill};
use conjure_base::text::truncate;
use serde_json::{Value, json};

use crate::cli::args::Format;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::skills::load::{display_path, load_configured, project};
use crate::cli::terminal::{Terminal, printable};

/// The maximum length of a description in a line for people, in characters.
const DESCRIPTION: usize = 100;

/// Prints the skills, by name.
pub(super) fn list(config: &Config, format: Format, terminal: &Terminal) -> Result<ExitStatus, CliError> {
    let mut skills = load_configured(config, terminal)?;
    skills.sort_by(|a, b| a.name().cmp(b.name()));
    match format {
        Format::Json => {
            let list: Vec<Value> = skills.iter().map(|skill| json_entry(skill)).collect();
            terminal.output(&format!("{:#}", Value::from(list)));
        }
        Format::Text if skills.is_empty() => {
            terminal.note("no skills found");
            for scope in config.skill_scopes(project().as_deref()) {
                let path = scope.path.display();
                terminal.note(&match scope.trust {
                    Trust::Untrusted => format!("  not in {path}: the project is not in `trusted_projects`"),
                    Trust::Trusted => format!("  looked in {path}"),
                });
            }
        }
        Format::Text => {
            let width = skills.iter().map(|skill| skill.name().as_str().chars().count()).max().unwrap_or(0);
            for skill in &skills {
                let name = printable(skill.name().as_str());
                terminal.output(&format!("{name:<width$}  {}", shorten(skill.description())));
            }
        }
    }
    Ok(ExitStatus::Success)
}

fn json_entry(skill: &Skill) -> Value {
    json!({
        "name": skill.name().as_str(),
        "description": skill.description(),
        "location": display_path(skill).to_string_lossy(),
    })
}

fn shorten(description: &str) -> String {
    let line = printable(&description.split_whitespace().collect::<Vec<_>>().join(" "));
    truncate(&line, DESCRIPTION + 1).into_owned()
}
