//! What a host and its parent share: paths, kinds of sandboxes, the skill, and the secrets.
//!
//! ```text
//! <folder>/data/     the data directory of all hosts
//! <folder>/skills/   the skill, which the parent edits
//! <folder>/tmp/      the hosts' temporary folder
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

pub(crate) fn data_folder(folder: &Path) -> PathBuf {
    folder.join("data")
}

pub(crate) fn journal_folder(folder: &Path) -> PathBuf {
    data_folder(folder).join("journal")
}

pub(crate) fn tenant_folder(folder: &Path, tenant: &str) -> PathBuf {
    data_folder(folder).join("tenants").join(tenant)
}

/// The place of a session's own workspace.
pub(crate) fn place(folder: &Path, key: &SessionKey) -> PathBuf {
    tenant_folder(folder, key.tenant.as_str()).join("workspaces").join(key.session.stored_name())
}

pub(crate) fn temporary_folder(folder: &Path) -> PathBuf {
    folder.join("tmp")
}

/// The configuration of a host.
pub(crate) fn config(folder: &Path, sandboxes: &Sandboxes) -> Result<Config> {
    let settings = Settings {
        data: Some(data_folder(folder)),
        skill_paths: Some(vec![folder.join("skills")]),
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

/// Makes the folders that hosts find.
pub(crate) fn write_files(folder: &Path) -> Result<()> {
    fs::create_dir(temporary_folder(folder))?;
    let skill = folder.join("skills").join(SKILL);
    fs::create_dir_all(skill.join("scripts"))?;
    let text = format!("---\nname: {SKILL}\ndescription: Leaves a line.\n---\nRun `scripts/run.sh LINE`.\n");
    fs::write(skill.join("SKILL.md"), text)?;
    write_skill(folder, 0)
}

/// Edits the skill: from now on its script leaves lines of this version. Whoever reads in the meantime sees one or the other.
pub(crate) fn write_skill(folder: &Path, version: u64) -> Result<()> {
    let (draft, script) = (folder.join("draft"), folder.join("skills").join(SKILL).join("scripts/run.sh"));
    fs::write(&draft, format!("#!/bin/sh\necho \"$1@{version}\" >> effects\n"))?;
    Ok(fs::rename(draft, script)?)
}
