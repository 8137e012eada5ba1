//! Paths in a configuration, and the default directories of skills.

use std::path::{Component, Path, PathBuf};

use conjure_skill::{Scope, ScopeKind, Trust};

/// The directories for skills of a user and of a project. They are those of the format's guide, and our own.
const SKILL_DIRS: [&str; 3] = [".agents/skills", ".conjure/skills", ".claude/skills"];

/// The default scopes: the project's directories, then the user's. A project is trusted only if the user says so.
/// Otherwise the author of the project could give the model instructions.
pub(crate) fn scopes(project: Option<&Path>, trusted: &[PathBuf], home: Option<&Path>) -> Vec<Scope> {
    let of = |root: &Path, kind, trust| {
        SKILL_DIRS.iter().map(|dir| Scope { path: root.join(dir), kind, trust }).collect::<Vec<_>>()
    };
    // In the home directory itself, only the user's own scopes apply.
    let project = project.filter(|project| Some(*project) != home);
    let mut scopes = project.map_or_else(Vec::new, |project| {
        let trust = if is_trusted(project, trusted) { Trust::Trusted } else { Trust::Untrusted };
        of(project, ScopeKind::Project, trust)
    });
    if let Some(home) = home {
        scopes.extend(of(home, ScopeKind::User, Trust::Trusted));
    }
    scopes
}

/// Whether `project` is a trusted directory or lies beneath one. Links are resolved on both sides, so a link counts
/// as its target.
pub(crate) fn is_trusted(project: &Path, trusted: &[PathBuf]) -> bool {
    let Ok(project) = project.canonicalize() else { return false };
    trusted.iter().filter_map(|root| root.canonicalize().ok()).any(|root| project.starts_with(root))
}

/// Replaces a leading `~` in `path` by the user's home directory.
pub(crate) fn expand(path: &Path, home: Option<&Path>) -> Result<PathBuf, String> {
    let mut components = path.components();
    match components.next() {
        None => Err("a path is empty".to_owned()),
        Some(Component::Normal(first)) if first == "~" => home
            .map(|home| home.join(components.as_path()))
            .ok_or_else(|| format!("`{}` needs HOME, which is not set", path.display())),
        Some(Component::Normal(first)) if first.as_encoded_bytes().starts_with(b"~") && !path.exists() => {
            Err(format!("`{}`: only `~/` is expanded, not the directory of another user", path.display()))
        }
        Some(_) => Ok(path.to_owned()),
    }
}
