//! Where the model finds a skill's `SKILL.md`: a map from the host's paths to those of the sandbox.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Map = dyn Fn(&Path) -> Option<PathBuf> + Send + Sync;

/// What stands in a skill's `<location>`.
#[derive(Clone, Default)]
pub struct Locations(Kind);

#[derive(Clone, Default)]
enum Kind {
    #[default]
    Host,
    Omitted,
    Mapped(Arc<Map>),
}

impl Locations {
    /// The host's own path, as a sandbox without isolation has it.
    #[must_use]
    pub const fn host() -> Self {
        Self(Kind::Host)
    }

    /// No `<location>` at all, for agents that reach skills by tools only.
    #[must_use]
    pub const fn omitted() -> Self {
        Self(Kind::Omitted)
    }

    /// The path that `map` gives for the host's path, usually `Layout::sandbox_path`. Where it gives `None`, the
    /// skill's `<location>` is left out: a path of the host would help nobody and tell too much.
    pub fn mapped(map: impl Fn(&Path) -> Option<PathBuf> + Send + Sync + 'static) -> Self {
        Self(Kind::Mapped(Arc::new(map)))
    }

    /// The location to write for the `SKILL.md` at `host`; `None`: leave it out.
    #[must_use]
    pub fn of(&self, host: &Path) -> Option<PathBuf> {
        match &self.0 {
            Kind::Host => Some(host.to_owned()),
            Kind::Omitted => None,
            Kind::Mapped(map) => map(host),
        }
    }
}

impl fmt::Debug for Locations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Host => "Locations::host()",
            Kind::Omitted => "Locations::omitted()",
            Kind::Mapped(_) => "Locations::mapped(…)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_the_hosts_the_sandboxs_or_none() {
        let host = Path::new("/home/me/skills/pdf/SKILL.md");
        let mapped = Locations::mapped(|path| {
            Some(Path::new("/mnt/skills").join(path.strip_prefix("/home/me/skills").ok()?))
        });
        assert_eq!(Locations::default().of(host), Some(host.to_owned()));
        assert_eq!(mapped.of(host), Some("/mnt/skills/pdf/SKILL.md".into()));
        assert_eq!(mapped.of(Path::new("/etc/passwd")), None);
        assert_eq!(Locations::omitted().of(host), None);
    }
}
