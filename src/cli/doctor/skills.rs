//! Checks which skills a session would have, and from where.

use conjure::Config;
use conjure::skill::{DiscoveryLimits, Mode, Scope, ScopeKind, Trust, discover};

use crate::cli::doctor::check::{Check, Finding};

/// One check for each existing directory, or one that reports that there is none.
pub(super) fn checks(config: &Config) -> Vec<Check> {
    let project = std::env::current_dir().ok();
    let scopes = config.skill_scopes(project.as_deref());
    let (there, missing): (Vec<&Scope>, Vec<&Scope>) = scopes.iter().partition(|scope| scope.path.is_dir());
    let named = missing.iter().filter(|scope| scope.kind == ScopeKind::Named).map(|scope| {
        Check::new("skills", Finding::Missing(format!("{} does not exist", scope.path.display())))
            .remedy("create it, or mend `skill_paths` or CONJURE_SKILL_PATHS")
    });
    let mut checks: Vec<Check> = there.into_iter().map(check).chain(named).collect();
    if checks.is_empty() {
        let places: Vec<String> = missing.iter().map(|scope| scope.path.display().to_string()).collect();
        let found = format!("none of these directories exists: {}", places.join(", "));
        checks.push(Check::new("skills", Finding::Missing(found)).remedy(
            "put skills into one of them, or name other directories with `--skills` or `skill_paths`",
        ));
    }
    checks
}

fn check(scope: &Scope) -> Check {
    let path = scope.path.display();
    let check = |finding| Check::new("skills", finding);
    if scope.trust == Trust::Untrusted {
        return check(Finding::Missing(format!("{path} is not trusted, so nothing in it is loaded")))
            .remedy("add the project's directory to `trusted_projects`, if you trust who wrote it");
    }
    let found = discover(std::slice::from_ref(scope), DiscoveryLimits::default(), Mode::Lenient);
    let count = found.skills.len();
    let broken = found.diagnostics.iter().filter(|finding| finding.is_error()).count();
    if broken > 0 {
        return check(Finding::Missing(format!("{path}: {count} can be loaded, {broken} cannot")))
            .remedy("`conjure skills list` says why");
    }
    check(Finding::Good(format!("{path}: {count}")))
}
