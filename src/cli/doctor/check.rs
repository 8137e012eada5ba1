//! One thing that was looked at, what was found, and what to do about it.

use serde_json::{Value, json};

/// One thing that was looked at.
#[derive(Debug)]
pub(super) struct Check {
    name: &'static str,
    finding: Finding,
    needed: bool,
    remedy: Option<String>,
}

/// What was found.
#[derive(Debug)]
pub(super) enum Finding {
    /// It is there.
    Good(String),
    /// It is not there.
    Missing(String),
    /// It cannot be told.
    Unknown(String),
}

impl Check {
    pub(super) const fn new(name: &'static str, finding: Finding) -> Self {
        Self { name, finding, needed: false, remedy: None }
    }

    /// This version does not work without it.
    pub(super) const fn needed(mut self) -> Self {
        self.needed = true;
        self
    }

    /// What to do when it is not there.
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Whether it is missing and needed.
    pub(super) const fn is_fatal(&self) -> bool {
        self.needed && matches!(self.finding, Finding::Missing(_))
    }

    /// One line, and the remedy on a second one where it applies.
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
