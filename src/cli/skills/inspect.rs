//! `conjure skills inspect`: prints everything about one skill.

use conjure::Skill;
use conjure::skill::{Resource, Resources, SkillDigests};
use serde_json::{Value, json};

use crate::cli::args::Format;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::skills::load::display_path;
use crate::cli::terminal::{Terminal, printable};

/// Prints the skill's fields, files, digests and diagnostics.
pub(super) fn inspect(skill: &Skill, format: Format, terminal: &Terminal) -> Result<ExitStatus, CliError> {
    let resources = skill.resources().map_err(conjure::Error::from)?;
    let digests = skill.digests().map_err(conjure::Error::from)?;
    let body = skill.body().map_err(conjure::Error::from)?;
    match format {
        Format::Json => terminal.output(&json(skill, &resources, &digests, &body)),
        Format::Text => terminal.output(&text(skill, &resources, &digests, &body)),
    }
    Ok(ExitStatus::Success)
}

fn groups(resources: &Resources) -> [(&'static str, &[Resource]); 4] {
    [
        ("scripts", &resources.scripts),
        ("references", &resources.references),
        ("assets", &resources.assets),
        ("other", &resources.other),
    ]
}

fn text(skill: &Skill, resources: &Resources, digests: &SkillDigests, body: &str) -> String {
    let mut lines = Vec::new();
    let mut field = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            lines.push(format!("{name:<15}{}", printable(value)));
        }
    };
    field("name", Some(skill.name().as_str()));
    field("description", Some(skill.description()));
    field("license", skill.license());
    field("compatibility", skill.compatibility());
    field("allowed-tools", skill.allowed_tools());
    for (key, value) in skill.metadata().iter() {
        field("metadata", Some(&format!("{key}: {value}")));
    }
    field("location", Some(&display_path(skill).to_string_lossy()));
    field("digest", Some(&digests.skill().to_string()));
    field("body", Some(&format!("{} lines, {} bytes", body.lines().count(), body.len())));
    for (group, files) in groups(resources) {
        for file in files {
            let digest = digests.files().get(file.path()).map(ToString::to_string).unwrap_or_default();
            let path = file.path().to_string_lossy();
            field(group, Some(&format!("{path}  {} bytes  {digest}", file.size())));
        }
    }
    for finding in skill.diagnostics() {
        field("diagnostic", Some(&finding.to_string()));
    }
    lines.join("\n")
}

fn json(skill: &Skill, resources: &Resources, digests: &SkillDigests, body: &str) -> String {
    let files = |files: &[Resource]| -> Vec<Value> {
        let file = |file: &Resource| {
            json!({
                "path": file.path().to_string_lossy(),
                "size": file.size(),
                "digest": digests.files().get(file.path()).map(ToString::to_string),
            })
        };
        files.iter().map(file).collect()
    };
    let resources: serde_json::Map<String, Value> = groups(resources)
        .into_iter()
        .map(|(group, list)| (group.to_owned(), Value::from(files(list))))
        .collect();
    let value = json!({
        "name": skill.name().as_str(),
        "description": skill.description(),
        "license": skill.license(),
        "compatibility": skill.compatibility(),
        "allowed_tools": skill.allowed_tools(),
        "metadata": skill.metadata(),
        "location": display_path(skill).to_string_lossy(),
        "digest": digests.skill().to_string(),
        "body": {"lines": body.lines().count(), "bytes": body.len()},
        "resources": resources,
        "diagnostics": skill.diagnostics(),
    });
    format!("{value:#}")
}
