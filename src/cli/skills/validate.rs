//! `conjure skills validate`: checks skills against the format. In strict mode the messages are those of the format's
//! reference validator.

use std::path::Path;

use conjure::skill::{Diagnostic, Mode, RuleId, extract_skill_file};
use serde_json::{Value, json};

use crate::cli::args::{Format, ValidateArgs};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::skills::load::is_package;
use crate::cli::terminal::{Terminal, printable};

/// Checks each path. Exit code 0: all are valid; 1: at least one is not; 2: a path does not exist.
pub(super) fn validate(args: &ValidateArgs, terminal: &Terminal) -> Result<ExitStatus, CliError> {
    let mode = if args.lenient { Mode::Lenient } else { Mode::Strict };
    let mut exit = ExitStatus::Success;
    let mut report = Vec::new();
    for path in &args.paths {
        let findings = findings(path, mode);
        let outcome = match findings.iter().find(|finding| finding.is_error()) {
            None => ExitStatus::Success,
            Some(finding) if finding.rule() == RuleId::PathMissing => ExitStatus::Usage,
            Some(_) => ExitStatus::Failed,
        };
        // A missing path has priority over an invalid skill.
        if outcome.code() > exit.code() {
            exit = outcome;
        }
        match args.format {
            Format::Text => print_findings(path, &findings, mode, terminal),
            Format::Json => report.push(json!({
                "path": path.to_string_lossy(),
                "valid": outcome == ExitStatus::Success,
                "findings": findings,
            })),
        }
    }
    if args.format == Format::Json {
        terminal.output(&format!("{:#}", Value::from(report)));
    }
    Ok(exit)
}

/// The diagnostics of the skill at a path. A package is unpacked first.
fn findings(path: &Path, mode: Mode) -> Vec<Diagnostic> {
    if !is_package(path) {
        return conjure::skill::validate(path, mode);
    }
    match extract_skill_file(path) {
        Ok(unpacked) => unpacked.validate(mode),
        Err(error) => error.into_diagnostics(),
    }
}

/// Prints the diagnostics like the reference validator: success on standard output, errors on standard error.
fn print_findings(path: &Path, findings: &[Diagnostic], mode: Mode, terminal: &Terminal) {
    let path = printable(&path.to_string_lossy());
    let (errors, others): (Vec<&Diagnostic>, Vec<&Diagnostic>) =
        findings.iter().partition(|finding| finding.is_error());
    for finding in others {
        terminal.warning(&format!("{path}: {}", printable(finding.message())));
    }
    if errors.is_empty() {
        terminal.output(&format!("Valid skill: {path}"));
        return;
    }
    terminal.note(&format!("Validation failed for {path}:"));
    for finding in errors {
        // The reference validator prints no positions, and strict mode prints the same messages. `--format json` contains both.
        let place = finding.position().filter(|_| mode == Mode::Lenient);
        let place = place.map(|at| format!(" (line {}, column {})", at.line, at.column)).unwrap_or_default();
        terminal.note(&format!("  - {}{place}", printable(finding.message())));
    }
}
