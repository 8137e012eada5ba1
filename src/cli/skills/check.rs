//! `conjure skills check`: whether a skill could run here, with everything that is missing in one report.
//!
//! A sandbox is made as for a run, and asked. Of the skill nothing runs; commands that it needs in some version are asked
//! for theirs.

use std::sync::Arc;

use conjure::{
    Config, ContextOptions, ExecutorKind, Mode, Preflight, PreflightReport, RuleOutcome, RuleReport,
    SandboxProbe, Settings, Severity, SystemClock, Workbench,
};

use crate::cli::args::{CheckArgs, Format};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::run::variables;
use crate::cli::skills::{inputs, is_nothing_there, load};
use crate::cli::terminal::{Terminal, printable};

/// Checks the skill, and prints the report. Exit code 0: it could run; 1: something is missing; 2: it is not there.
pub(super) async fn check(args: &CheckArgs, config: &Config, terminal: &Terminal) -> Result<Exit, Failure> {
    let named = args.path.to_string_lossy().into_owned();
    let skill = match load(&args.path, Mode::Lenient) {
        Ok(skill) => Arc::new(skill),
        Err(error) => {
            let exit = if is_nothing_there(&error) { Exit::Usage } else { Exit::Failed };
            tell(&PreflightReport::refused(named, error), args.format, terminal);
            return Ok(exit);
        }
    };
    let executor = match &args.sandbox {
        None => config.executor(),
        Some(kind) => kind.parse::<ExecutorKind>().map_err(|reason| {
            Failure::usage(format!("`--sandbox`: {reason}")).hint("`local` isolates nothing")
        })?,
    };
    let config = config.with(Settings { executor: Some(executor), ..Settings::default() })?;
    let inputs = inputs(&args.input, std::slice::from_ref(&skill))?;
    let options = ContextOptions {
        workspace: args.workspace.clone(),
        environment: variables(&args.env)?,
        ..ContextOptions::default()
    };
    let workbench = Workbench::open([Arc::clone(&skill)], &config, options).await?;
    let report = {
        let probe = SandboxProbe::new(&**workbench.executor(), Arc::new(SystemClock), &skill);
        Preflight::new(&skill, &inputs).run(&probe.under(config.network())).await
    };
    workbench.close().await;
    tell(&report, args.format, terminal);
    Ok(if report.is_ready() { Exit::Done } else { Exit::Failed })
}

fn tell(report: &PreflightReport, format: Format, terminal: &Terminal) {
    match format {
        Format::Json => {
            let json = serde_json::to_value(report).unwrap_or_default();
            terminal.output(&format!("{json:#}"));
        }
        Format::Text => {
            let verdict = if report.is_ready() { "is ready to run here" } else { "cannot run here" };
            terminal.output(&format!("{} {verdict}", printable(report.skill())));
            report.rules().iter().for_each(|rule| tell_rule(rule, terminal));
        }
    }
}

fn tell_rule(rule: &RuleReport, terminal: &Terminal) {
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
