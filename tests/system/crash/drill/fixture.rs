//! What a host and its parent share: paths, kinds of sandboxes, the skill, and the secrets.
//!
//! ```text
//! <directory>/data/     the data directory of all hosts
//! <directory>/skills/   the skill, which the parent edits
//! <directory>/tmp/      the hosts' temporary directory
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use conjure::config::ExecutorKind;
use conjure::journal::SessionKey;
use conjure::session::SessionSecrets;
use conjure::{Config, ProcessEnv, Settings, TenantId};

use super::Result;

pub(crate) const TENANTS: [&str; 2] = ["acme", "other"];

/// The skill of all sessions.
pub(crate) const SKILL: &str = "deed";

/// A variable that commands have, and that is recorded nowhere.
pub(crate) const TOKEN: &str = "DRILL_TOKEN";

/// The common prefix of all secrets.
pub(crate) const SECRET: &str = "6b1f77aa-canary";

/// The kinds of sandboxes.
#[derive(Debug, Clone)]
pub(crate) enum Sandboxes {
    Jails,
    /// Containers of this image of this engine.
    #[cfg_attr(not(feature = "docker"), expect(dead_code, reason = "only where there are containers"))]
    Containers {
        image: String,
        engine: String,
    },
}

impl Sandboxes {
    /// As an argument of a program.
    pub(crate) fn argument(&self) -> String {
        match self {
            Self::Jails => "jails".to_owned(),
            Self::Containers { image, engine } => format!("{image} {engine}"),
        }
    }

    /// How many times longer than with jails things take.
    pub(crate) const fn slowness(&self) -> u64 {
        match self {
            Self::Jails => 1,
            Self::Containers { .. } => 10,
        }
    }
}

impl FromStr for Sandboxes {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        Ok(match text.split_once(' ') {
            Some((image, engine)) => Self::Containers { image: image.to_owned(), engine: engine.to_owned() },
            None => Self::Jails,
        })
    }
}

pub(crate) fn data_dir(dir: &Path) -> PathBuf {
    dir.join("data")
}

pub(crate) fn journal_dir(dir: &Path) -> PathBuf {
    data_dir(dir).join("journal")
}

pub(crate) fn tenant_dir(dir: &Path, tenant: &str) -> PathBuf {
    data_dir(dir).join("tenants").join(tenant)
}

/// The place of a session's own workspace.
pub(crate) fn place(dir: &Path, key: &SessionKey) -> PathBuf {
    tenant_dir(dir, key.tenant.as_str()).join("workspaces").join(key.session.stored_name())
}

pub(crate) fn temporary_dir(dir: &Path) -> PathBuf {
    dir.join("tmp")
}

/// The configuration of a host.
pub(crate) fn config(dir: &Path, sandboxes: &Sandboxes) -> Result<Config> {
    let settings = Settings {
        data: Some(data_dir(dir)),
        skill_paths: Some(vec![dir.join("skills")]),
        ..Settings::default()
    };
    let settings = match sandboxes {
        Sandboxes::Jails => Settings { executor: Some(ExecutorKind::Jail), ..settings },
        Sandboxes::Containers { image, engine } => Settings {
            executor: Some(ExecutorKind::Docker),
            image: Some(image.clone()),
            engine: Some(engine.clone()),
            ..settings
        },
    };
    let environment = ProcessEnv::from_pairs([("PATH", "/usr/local/bin:/usr/bin:/bin")]);
    Ok(Config::from_layers(settings, &environment, None)?)
}

/// The value of [`TOKEN`] in the sessions of a tenant.
pub(crate) fn token(tenant: &TenantId) -> String {
    format!("{SECRET}-token-of-{tenant}")
}

/// The secrets of a tenant's sessions, which commands do not have.
pub(crate) fn canary(tenant: &TenantId) -> String {
    format!("{SECRET}-of-{tenant}")
}

/// Both, for a session that is revived.
pub(crate) fn secrets_of(tenant: &TenantId) -> SessionSecrets {
    SessionSecrets::new().environment(TOKEN, token(tenant)).secret("canary", canary(tenant))
}

/// Makes the directories that hosts find.
pub(crate) fn write_files(dir: &Path) -> Result<()> {
    fs::create_dir(temporary_dir(dir))?;
    let skill = dir.join("skills").join(SKILL);
    fs::create_dir_all(skill.join("scripts"))?;
    let text = format!("---\nname: {SKILL}\ndescription: Leaves a line.\n---\nRun `scripts/run.sh LINE`.\n");
    fs::write(skill.join("SKILL.md"), text)?;
    write_skill(dir, 0)
}

/// Edits the skill: from now on its script leaves lines of this version. Whoever reads in the meantime sees one or the other.
pub(crate) fn write_skill(dir: &Path, version: u64) -> Result<()> {
    let (draft, script) = (dir.join("draft"), dir.join("skills").join(SKILL).join("scripts/run.sh"));
    fs::write(&draft, format!("#!/bin/sh\necho \"$1@{version}\" >> effects\n"))?;
    Ok(fs::rename(draft, script)?)
}
