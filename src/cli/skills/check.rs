//! `conjure skills check`: reports whether a skill can run here, and everything that is missing.
//!
//! It creates a sandbox as for a run, and inspects it. No code of the skill runs. If the skill requires a version of a command, the command
//! is run for its version.

use std::sync::Arc;

use conjure::config::ExecutorKind;
use conjure::session::ContextOptions;
use conjure::skill::{Mode, Preflight, PreflightReport, RuleOutcome, RuleReport, Severity};
use conjure::tool::SandboxProbe;
use conjure::{Config, ProcessEnv, Settings, SystemClock, Workbench};

use crate::cli::args::{CheckArgs, Format};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::run::{tool_dirs, variables};
use crate::cli::skills::load::load;
use crate::cli::skills::load::{inputs, is_not_found};
use crate::cli::terminal::{Terminal, printable};

/// Checks the skill, and prints the report. Exit code 0: it can run; 1: something is missing; 2: the skill does not
/// exist.
pub(super) async fn check(
    args: &CheckArgs,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    let named = args.path.to_string_lossy().into_owned();
    let skill = match load(&args.path, Mode::Lenient) {
        Ok(skill) => Arc::new(skill),
        Err(error) => {
            let exit = if is_not_found(&error) { ExitStatus::Usage } else { ExitStatus::Failed };
            print_report(&PreflightReport::refused(named, error), args.format, terminal);
            return Ok(exit);
        }
    };
    let executor = match &args.sandbox {
        None => config.executor(),
        Some(kind) => kind.parse::<ExecutorKind>().map_err(|reason| {
            CliError::usage(format!("`--sandbox`: {reason}")).with_hint("`local` isolates nothing")
        })?,
    };
    let config = config.with(Settings { executor: Some(executor), ..Settings::default() })?;
    let tools = tool_dirs(args.workspace.as_deref(), &config, environment);
    let inputs = inputs(&args.input, std::slice::from_ref(&skill), &tools)?;
    let options = ContextOptions {
        workspace: args.workspace.clone(),
        environment: variables(&args.env)?,
        ..ContextOptions::default()
    };
    let workbench = Workbench::open([Arc::clone(&skill)], &config, options).await?;
    let report = {
        let probe = SandboxProbe::new(&**workbench.executor(), Arc::new(SystemClock), &skill);
        Preflight::new(&skill, &inputs).run(&probe.with_network(config.network())).await
    };
    workbench.close().await;
    print_report(&report, args.format, terminal);
    Ok(if report.is_ready() { ExitStatus::Success } else { ExitStatus::Failed })
}

fn print_report(report: &PreflightReport, format: Format, terminal: &Terminal) {
    match format {
        Format::Json => {
            let json = serde_json::to_value(report).unwrap_or_default();
            terminal.output(&format!("{json:#}"));
        }
        Format::Text => {
            let verdict = if report.is_ready() { "is ready to run here" } else { "cannot run here" };
            terminal.output(&format!("{} {verdict}", printable(report.skill())));
            report.rules().iter().for_each(|rule| print_rule(rule, terminal));
        }
    }
}

fn print_rule(rule: &RuleReport, terminal: &Terminal) {
    let mark = match rule.outcome {
        RuleOutcome::Passed => "ok  ",
        RuleOutcome::Warned => "warn",
        RuleOutcome::Failed => "FAIL",
        RuleOutcome::Skipped => "-   ",
    };
    terminal.output(&format!("  {mark}  {}", rule.rule.title()));
    for finding in &rule.findings {
        let weight = match finding.severity {
            Severity::Error => "",
            Severity::Warning => "warning: ",
            Severity::Info => "note: ",
        };
        terminal.output(&printable(&format!("          {weight}{}", finding.message)));
    }
}
