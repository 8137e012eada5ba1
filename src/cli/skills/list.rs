//! `conjure skills list`: the skills that a session would have.

use conjure::{Config, Skill};
use serde_json::{Value, json};

use crate::cli::args::Format;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::skills::{found, place};
use crate::cli::terminal::{Terminal, printable};

/// The most characters of a description in a line for people.
const DESCRIPTION: usize = 100;

/// Prints the skills, by name.
pub(super) fn list(config: &Config, format: Format, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut skills = found(config, terminal)?;
    skills.sort_by(|a, b| a.name().cmp(b.name()));
    match format {
        Format::Json => {
            let list: Vec<Value> = skills.iter().map(|skill| entry(skill)).collect();
            terminal.output(&format!("{:#}", Value::from(list)));
        }
        Format::Text if skills.is_empty() => {
            terminal.note("no skills found");
            for scope in config.skill_scopes(None) {
                terminal.note(&format!("  looked in {}", scope.path.display()));
            }
        }
        Format::Text => {
            let width = skills.iter().map(|skill| skill.name().as_str().chars().count()).max().unwrap_or(0);
            for skill in &skills {
                let name = printable(skill.name().as_str());
                terminal.output(&format!("{name:<width$}  {}", short(skill.description())));
            }
        }
    }
    Ok(Exit::Done)
}

fn entry(skill: &Skill) -> Value {
    json!({
        "name": skill.name().as_str(),
        "description": skill.description(),
        "location": place(skill).to_string_lossy(),
    })
}

fn short(description: &str) -> String {
    let line = printable(&description.split_whitespace().collect::<Vec<_>>().join(" "));
    if line.chars().count() <= DESCRIPTION {
        return line;
    }
    let cut: String = line.chars().take(DESCRIPTION).collect();
    format!("{cut}…")
}
