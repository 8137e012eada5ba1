//! Checks the eight rules.

use super::inputs::Inputs;
use super::probe::{CommandProbe, Network, Probe, VersionQuery};
use super::report::{PreflightReport, PreflightRule, ReportBuilder};
use crate::diagnostic::Severity;
use crate::fields::version::Version;
use crate::manifest::{Manifest, RequiredCommand, Requirement};
use crate::skill::Skill;

/// The number of characters of a command's version output that a message shows.
const MAX_QUOTED_CHARS: usize = 80;

/// A skill with the inputs for it.
#[derive(Debug, Clone, Copy)]
pub struct Preflight<'a> {
    skill: &'a Skill,
    inputs: &'a Inputs,
}

impl<'a> Preflight<'a> {
    /// Creates a preflight of this skill with these inputs.
    #[must_use]
    pub const fn new(skill: &'a Skill, inputs: &'a Inputs) -> Self {
        Self { skill, inputs }
    }

    /// Checks all rules. What cannot be checked counts as missing, with the reason.
    pub async fn run(&self, probe: &dyn Probe) -> PreflightReport {
        let name = self.skill.name().to_string();
        let mut report = ReportBuilder::default();
        report.rule(PreflightRule::SkillExists);
        let Some(manifest) = self.skill.manifest() else {
            for input in self.inputs.keys() {
                let message = format!("the skill has no manifest, so it has no input `{input}`");
                report.add(Severity::Error, input, message);
            }
            return report.finish(name, Inputs::new());
        };
        report.rule(PreflightRule::ManifestVersion);
        for finding in self.skill.diagnostics().iter().filter(|finding| finding.rule().is_of_manifest()) {
            let subject = finding.path().to_string_lossy();
            report.add(finding.severity(), subject, finding.message());
        }
        self.check_provided_inputs(manifest, &mut report);
        report.rule(PreflightRule::Preconditions);
        commands(manifest, probe, &mut report).await;
        files(manifest, probe, &mut report).await;
        if manifest.execution().network && probe.network() == Network::None {
            let message = "the skill says that it needs the network, and has none here";
            report.add(Severity::Warning, "network", message);
        }
        report.rule(PreflightRule::Environment);
        variables(manifest, probe, &mut report).await;
        report.rule(PreflightRule::OptionalInputs);
        self.optional_inputs(manifest, &mut report);
        report.rule(PreflightRule::Redaction);
        redaction(manifest, &mut report);
        report.finish(name, manifest.resolve_inputs(self.inputs))
    }

    fn check_provided_inputs(&self, manifest: &Manifest, report: &mut ReportBuilder) {
        report.rule(PreflightRule::RequiredInputs);
        for problem in manifest.missing_inputs(self.inputs).chain(manifest.unknown_inputs(self.inputs)) {
            report.add(Severity::Error, problem.name(), problem.to_string());
        }
        report.rule(PreflightRule::InputSchemas);
        for problem in manifest.mismatched_inputs(self.inputs) {
            report.add(Severity::Error, problem.name(), problem.to_string());
        }
    }

    fn optional_inputs(&self, manifest: &Manifest, report: &mut ReportBuilder) {
        for input in manifest.inputs().iter().filter(|input| input.requirement() == Requirement::Optional) {
            if self.inputs.contains_key(input.name()) {
                continue;
            }
            let instead = match input.schema().default_value() {
                Some(_) if input.sensitive() => "; its default is used".to_owned(),
                Some(default) => format!("; its default is used: {default}"),
                None => "; the skill does without it".to_owned(),
            };
            let message = format!("the input `{}` was not given{instead}", input.name());
            report.add(Severity::Warning, input.name(), message);
        }
    }
}

async fn commands(manifest: &Manifest, probe: &dyn Probe, report: &mut ReportBuilder) {
    for need in manifest.commands() {
        let name = need.command();
        let query = if need.has_bounds() { VersionQuery::Yes } else { VersionQuery::No };
        let problem = match probe.command(name, query).await {
            Ok(CommandProbe::NotFound) => {
                Some(format!("the command `{name}` is not in the path: install it"))
            }
            Ok(CommandProbe::Found { version_output }) => version_problem(need, &version_output),
            Err(error) => Some(format!("cannot determine whether the command `{name}` exists: {error}")),
        };
        if let Some(problem) = problem {
            report.add(Severity::Error, name, problem);
        }
    }
}

/// Checks the version that a command prints.
fn version_problem(need: &RequiredCommand, version_output: &str) -> Option<String> {
    if !need.has_bounds() {
        return None;
    }
    let name = need.command();
    let Some(version) = Version::in_output(version_output) else {
        let line = version_output.lines().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
        let shown: String =
            line.chars().take(MAX_QUOTED_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
        return Some(format!("cannot determine the version of the command `{name}`; it prints: {shown}"));
    };
    let too_old = need.min_version().filter(|bound| version < **bound);
    let too_new = need.max_version().filter(|bound| version > **bound);
    match (too_old, too_new) {
        (Some(bound), _) => Some(format!(
            "the command `{name}` is of version {version}, and {bound} or later is needed: update it"
        )),
        (None, Some(bound)) => {
            Some(format!("the command `{name}` is of version {version}, and {bound} or earlier is needed"))
        }
        (None, None) => None,
    }
}

async fn files(manifest: &Manifest, probe: &dyn Probe, report: &mut ReportBuilder) {
    for need in manifest.files() {
        let (path, base) = (need.path(), need.base());
        let suffix = need.description().map(|text| format!(" ({text})")).unwrap_or_default();
        let problem = match probe.file(base, path).await {
            Ok(true) => continue,
            Ok(false) => format!("there is no `{path}` beneath {base}{suffix}"),
            Err(error) => format!("cannot determine whether `{path}` exists beneath {base}: {error}"),
        };
        report.add(Severity::Error, path, problem);
    }
}

async fn variables(manifest: &Manifest, probe: &dyn Probe, report: &mut ReportBuilder) {
    for variable in manifest.env() {
        let name = variable.name();
        let suffix = variable.description().map(|text| format!(": {text}")).unwrap_or_default();
        match (probe.variable(name).await, variable.requirement()) {
            (Ok(true), _) | (Ok(false), Requirement::Optional) => {}
            (Ok(false), Requirement::Required) => {
                report.add(
                    Severity::Error,
                    name,
                    format!("the variable `{name}` is required and not set{suffix}"),
                );
            }
            (Err(error), need) => {
                let severity =
                    if need == Requirement::Required { Severity::Error } else { Severity::Warning };
                report.add(
                    severity,
                    name,
                    format!("cannot determine whether the variable `{name}` is set: {error}"),
                );
            }
        }
    }
}

/// Lists what is redacted in records.
fn redaction(manifest: &Manifest, report: &mut ReportBuilder) {
    for input in manifest.inputs().iter().filter(|input| input.sensitive()) {
        let message =
            format!("the value of the input `{}` is kept out of everything that is recorded", input.name());
        report.add(Severity::Info, input.name(), message);
        if input.schema().default_value().is_some() {
            let message =
                format!("the input `{}` is sensitive, and its default is in the skill's files", input.name());
            report.add(Severity::Warning, input.name(), message);
        }
    }
    for variable in manifest.env().iter().filter(|variable| variable.sensitive()) {
        let message = format!(
            "the value of the variable `{}` is kept out of everything that is recorded",
            variable.name()
        );
        report.add(Severity::Info, variable.name(), message);
    }
    if manifest.sensitive() {
        let message =
            "the skill handles sensitive data: only a person allows it anything for longer than a call";
        report.add(Severity::Info, "sensitive", message);
    }
}
