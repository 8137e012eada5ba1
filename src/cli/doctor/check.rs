//! One check of the doctor: its finding, and how to mend it.

use serde_json::{Value, json};

/// One check.
#[derive(Debug)]
pub(super) struct Check {
    name: &'static str,
    finding: Finding,
    needed: bool,
    remedy: Option<String>,
}

/// The finding of a check.
#[derive(Debug)]
pub(super) enum Finding {
    /// Available.
    Good(String),
    /// Missing.
    Missing(String),
    /// Cannot be determined.
    Unknown(String),
}

impl Check {
    pub(super) const fn new(name: &'static str, finding: Finding) -> Self {
        Self { name, finding, needed: false, remedy: None }
    }

    /// Marks it as required by this version.
    pub(super) const fn needed(mut self) -> Self {
        self.needed = true;
        self
    }

    /// Sets how to fix it if it is missing.
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Whether it is missing and required.
    pub(super) const fn is_fatal(&self) -> bool {
        self.needed && matches!(self.finding, Finding::Missing(_))
    }

    /// One line, and a second one with the remedy if it applies.
    pub(super) fn text(&self) -> String {
        let (mark, found) = match &self.finding {
            Finding::Good(found) => ("ok", found),
            Finding::Missing(found) if self.needed => ("FAIL", found),
            Finding::Missing(found) => ("no", found),
            Finding::Unknown(found) => ("?", found),
        };
        let line = format!("{mark:<5}{:<18}{found}", self.name);
        match &self.remedy {
            Some(remedy) if !matches!(self.finding, Finding::Good(_)) => {
                format!("{line}\n     {:<18}hint: {remedy}", "")
            }
            _ => line,
        }
    }

    fn json(&self) -> Value {
        let (state, found) = match &self.finding {
            Finding::Good(found) => ("ok", found),
            Finding::Missing(found) => ("missing", found),
            Finding::Unknown(found) => ("unknown", found),
        };
        let remedy = self.remedy.as_ref().filter(|_| state != "ok");
        json!({"name": self.name, "state": state, "found": found, "needed": self.needed, "remedy": remedy})
    }
}

/// All checks as one JSON object.
pub(super) fn json(checks: &[Check]) -> String {
    let list: Vec<Value> = checks.iter().map(Check::json).collect();
    let fit = !checks.iter().any(Check::is_fatal);
    format!("{:#}", json!({"version": 1, "ok": fit, "checks": list}))
}
