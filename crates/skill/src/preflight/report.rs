//! The report of a preflight.

use std::fmt;

use serde::Serialize;

use super::inputs::Inputs;
use crate::diagnostic::Severity;
use crate::error::SkillError;

/// One of the eight rules, in the order in which they are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreflightRule {
    /// The skill exists and can be read.
    SkillExists,
    /// The version of its manifest is supported.
    ManifestVersion,
    /// Every required input has a value.
    RequiredInputs,
    /// Every value matches its schema.
    InputSchemas,
    /// The commands and files are there.
    Preconditions,
    /// The required variables are set.
    Environment,
    /// Optional inputs have values. Missing ones are warnings.
    OptionalInputs,
    /// Lists what is redacted in all records and output.
    Redaction,
}

impl PreflightRule {
    /// All of them, in their order.
    pub const ALL: [Self; 8] = [
        Self::SkillExists,
        Self::ManifestVersion,
        Self::RequiredInputs,
        Self::InputSchemas,
        Self::Preconditions,
        Self::Environment,
        Self::OptionalInputs,
        Self::Redaction,
    ];

    /// A short title.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::SkillExists => "the skill exists",
            Self::ManifestVersion => "its manifest is supported",
            Self::RequiredInputs => "required inputs are given",
            Self::InputSchemas => "inputs are as their schemas say",
            Self::Preconditions => "commands and files are there",
            Self::Environment => "required variables are set",
            Self::OptionalInputs => "optional inputs are given",
            Self::Redaction => "sensitive values are kept out of records",
        }
    }
}

/// A finding of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PreflightFinding {
    /// An error keeps the skill from running.
    pub severity: Severity,
    /// Its subject: the name of an input, command or variable, or a path.
    pub subject: String,
    /// The problem and its solution. Never contains a sensitive value.
    pub message: String,
}

impl fmt::Display for PreflightFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.message)
    }
}

/// The result of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleOutcome {
    /// Passed.
    Passed,
    /// Passed, with a warning.
    Warned,
    /// Failed.
    Failed,
    /// Not checked: the skill has no manifest, or could not be read.
    Skipped,
}

/// A rule with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleReport {
    /// The rule.
    pub rule: PreflightRule,
    /// Its result.
    pub outcome: RuleOutcome,
    /// Its findings.
    pub findings: Vec<PreflightFinding>,
}

/// The result of a preflight, rule by rule. Its text form is for people, its JSON form for programs. Neither
/// contains an input value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PreflightReport {
    skill: String,
    ready: bool,
    rules: Vec<RuleReport>,
    #[serde(skip)]
    inputs: Inputs,
}

impl PreflightReport {
    /// Creates the report about a skill that could not be loaded.
    #[must_use]
    pub fn refused(skill: impl Into<String>, error: SkillError) -> Self {
        let rule = match error {
            SkillError::InvalidManifest { .. } | SkillError::UnsupportedManifest { .. } => {
                PreflightRule::ManifestVersion
            }
            _ => PreflightRule::SkillExists,
        };
        let mut report = ReportBuilder::default();
        if rule == PreflightRule::ManifestVersion {
            report.rule(PreflightRule::SkillExists);
        }
        report.rule(rule);
        for diagnostic in error.into_diagnostics() {
            let place = diagnostic.position().map(|at| format!("line {}: ", at.line)).unwrap_or_default();
            let subject = diagnostic.path().to_string_lossy().into_owned();
            report.add(diagnostic.severity(), subject, format!("{place}{}", diagnostic.message()));
        }
        report.finish(skill.into(), Inputs::new())
    }

    /// The skill's name, or the name that was requested.
    #[must_use]
    pub fn skill(&self) -> &str {
        &self.skill
    }

    /// Whether the skill can run.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.ready
    }

    /// All eight rules, in their order.
    #[must_use]
    pub fn rules(&self) -> &[RuleReport] {
        &self.rules
    }

    /// The values of the inputs, including defaults. Some may be sensitive.
    #[must_use]
    pub const fn inputs(&self) -> &Inputs {
        &self.inputs
    }
}

/// Builds a report, rule by rule.
#[derive(Default)]
pub(super) struct ReportBuilder {
    rules: Vec<RuleReport>,
}

impl ReportBuilder {
    /// Starts the next rule.
    pub(super) fn rule(&mut self, rule: PreflightRule) {
        self.rules.push(RuleReport { rule, outcome: RuleOutcome::Passed, findings: Vec::new() });
    }

    /// Adds a finding to the current rule.
    pub(super) fn add(&mut self, severity: Severity, subject: impl Into<String>, message: impl Into<String>) {
        let Some(rule) = self.rules.last_mut() else { return };
        rule.findings.push(PreflightFinding { severity, subject: subject.into(), message: message.into() });
        rule.outcome = match severity {
            Severity::Error => RuleOutcome::Failed,
            Severity::Warning if rule.outcome == RuleOutcome::Passed => RuleOutcome::Warned,
            Severity::Warning | Severity::Info => rule.outcome,
        };
    }

    pub(super) fn finish(mut self, skill: String, inputs: Inputs) -> PreflightReport {
        for rule in PreflightRule::ALL.into_iter().skip(self.rules.len()) {
            self.rules.push(RuleReport { rule, outcome: RuleOutcome::Skipped, findings: Vec::new() });
        }
        let ready = self.rules.iter().all(|rule| rule.outcome != RuleOutcome::Failed);
        PreflightReport { skill, ready, rules: self.rules, inputs }
    }
}
