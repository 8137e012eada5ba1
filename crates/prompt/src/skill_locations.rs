//! Locations of skills: maps paths of this machine to the sandbox paths that the model sees.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Map = dyn Fn(&Path) -> Option<PathBuf> + Send + Sync;

/// The `<location>` of each skill.
#[derive(Clone, Default)]
pub struct SkillLocations(LocationKind);

#[derive(Clone, Default)]
enum LocationKind {
    #[default]
    Host,
    Omitted,
    Mapped(Arc<Map>),
}

impl SkillLocations {
    /// This machine's own path, for a sandbox without isolation.
    #[must_use]
    pub const fn host() -> Self {
        Self(LocationKind::Host)
    }

    /// No `<location>` at all, for agents that reach skills only by tools.
    #[must_use]
    pub const fn omitted() -> Self {
        Self(LocationKind::Omitted)
    }

    /// The path that `map` returns for this machine's path, usually `Layout::sandbox_path`. Where it returns `None`, `<location>` is
    /// left out: a path of this machine would not help and could reveal something.
    pub fn mapped(map: impl Fn(&Path) -> Option<PathBuf> + Send + Sync + 'static) -> Self {
        Self(LocationKind::Mapped(Arc::new(map)))
    }

    /// The location of the `SKILL.md` at `host`; `None` to leave it out.
    #[must_use]
    pub fn location_of(&self, host: &Path) -> Option<PathBuf> {
        match &self.0 {
            LocationKind::Host => Some(host.to_owned()),
            LocationKind::Omitted => None,
            LocationKind::Mapped(map) => map(host),
        }
    }
}

impl fmt::Debug for SkillLocations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            LocationKind::Host => "SkillLocations::host()",
            LocationKind::Omitted => "SkillLocations::omitted()",
            LocationKind::Mapped(_) => "SkillLocations::mapped(…)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_local_mapped_or_omitted() {
        let host = Path::new("/home/me/skills/pdf/SKILL.md");
        let mapped = SkillLocations::mapped(|path| {
            Some(Path::new("/mnt/skills").join(path.strip_prefix("/home/me/skills").ok()?))
        });
        assert_eq!(SkillLocations::default().location_of(host), Some(host.to_owned()));
        assert_eq!(mapped.location_of(host), Some("/mnt/skills/pdf/SKILL.md".into()));
        assert_eq!(mapped.location_of(Path::new("/etc/passwd")), None);
        assert_eq!(SkillLocations::omitted().location_of(host), None);
    }
}
