//! What a preflight has found.

use std::fmt;

use serde::Serialize;

use super::inputs::Inputs;
use crate::diagnostic::Severity;
use crate::error::SkillError;

/// One of the eight rules, in the order in which they are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreflightRule {
    /// The skill exists and can be read.
    SkillExists,
    /// Its manifest is of a version that is supported.
    ManifestVersion,
    /// Every required input has a value.
    RequiredInputs,
    /// Every value is as its schema says.
    InputSchemas,
    /// The commands and files are there.
    Preconditions,
    /// The required variables are set.
    Environment,
    /// Optional inputs have values: a warning where not.
    OptionalInputs,
    /// What is kept out of everything that is recorded or shown.
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

    /// What it asks, in a few words.
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

/// Something that a rule has to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PreflightFinding {
    /// An error keeps the skill from running.
    pub severity: Severity,
    /// What it is about: the name of an input, a command, a variable; a path.
    pub subject: String,
    /// What is the matter, and what to do. Never a value that is sensitive.
    pub message: String,
}

impl fmt::Display for PreflightFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.message)
    }
}

/// How a rule came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It holds, and something about it is worth knowing.
    Warned,
    /// It does not.
    Failed,
    /// It was not looked at: the skill has no manifest, or could not be read.
    Skipped,
}

/// A rule with what it has to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleReport {
    /// The rule.
    pub rule: PreflightRule,
    /// How it came out.
    pub outcome: Outcome,
    /// Why.
    pub findings: Vec<PreflightFinding>,
}

/// What a preflight has found, rule by rule. Its text form is for people, its JSON for programs; neither has a value of an
/// input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PreflightReport {
    skill: String,
    ready: bool,
    rules: Vec<RuleReport>,
    #[serde(skip)]
    inputs: Inputs,
}

impl PreflightReport {
    /// The report about a skill that could not be loaded.
    #[must_use]
    pub fn refused(skill: impl Into<String>, error: SkillError) -> Self {
        let rule = match error {
            SkillError::InvalidManifest { .. } | SkillError::UnsupportedManifest { .. } => {
                PreflightRule::ManifestVersion
            }
            _ => PreflightRule::SkillExists,
        };
        let mut report = Building::default();
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

    /// The skill's name, or how it was asked for.
    #[must_use]
    pub fn skill(&self) -> &str {
        &self.skill
    }

    /// Whether nothing keeps the skill from running.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.ready
    }

    /// All eight rules, in their order.
    #[must_use]
    pub fn rules(&self) -> &[RuleReport] {
        &self.rules
    }

    /// The values of the inputs, defaults included. Some may be sensitive.
    #[must_use]
    pub const fn inputs(&self) -> &Inputs {
        &self.inputs
    }
}

/// A report that is being written, rule by rule.
#[derive(Default)]
pub(super) struct Building {
    rules: Vec<RuleReport>,
}

impl Building {
    /// Goes on to the next rule.
    pub(super) fn rule(&mut self, rule: PreflightRule) {
        self.rules.push(RuleReport { rule, outcome: Outcome::Passed, findings: Vec::new() });
    }

    /// Adds a finding to the rule that is looked at.
    pub(super) fn add(&mut self, severity: Severity, subject: impl Into<String>, message: impl Into<String>) {
        let Some(rule) = self.rules.last_mut() else { return };
        rule.findings.push(PreflightFinding { severity, subject: subject.into(), message: message.into() });
        rule.outcome = match severity {
            Severity::Error => Outcome::Failed,
            Severity::Warning if rule.outcome == Outcome::Passed => Outcome::Warned,
            Severity::Warning | Severity::Info => rule.outcome,
        };
    }

    pub(super) fn finish(mut self, skill: String, inputs: Inputs) -> PreflightReport {
        for rule in PreflightRule::ALL.into_iter().skip(self.rules.len()) {
            self.rules.push(RuleReport { rule, outcome: Outcome::Skipped, findings: Vec::new() });
        }
        let ready = self.rules.iter().all(|rule| rule.outcome != Outcome::Failed);
        PreflightReport { skill, ready, rules: self.rules, inputs }
    }
}
