//! The table of artifacts that are installed in a sandbox's content directory.
//!
//! Each content is installed once, and removed when it is no longer required. A lock admits one call at a time. Concurrent calls of
//! one response see the session as it was when each began, so content that a call has fetched is not replaced by an older version.
//!
//! State: the table, in memory; see the [module](super).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use conjure_artifact::ReferenceResolver;
use conjure_base::Digest;
use conjure_sandbox::{CallOptions, ContentItem, Executor, SandboxError, SandboxErrorKind};
use tokio::sync::{Mutex, MutexGuard};

use super::errors::is_content_error;
use crate::text::quote;

/// How many contents of bare URLs stay installed.
const MAX_URL_CONTENTS: usize = 50;

/// The installed artifacts of one sandbox and its replacements.
#[derive(Debug, Default)]
pub(super) struct InstalledArtifacts(Mutex<InstallTable>);

/// Exclusive access to the table, for one call.
pub(super) struct InstallSession<'s> {
    table: MutexGuard<'s, InstallTable>,
    executor: &'s dyn Executor,
    resolver: &'s ReferenceResolver,
    options: &'s CallOptions,
}

#[derive(Debug, Default)]
struct InstallTable {
    installed: BTreeMap<String, InstalledArtifact>,
    /// The names of bare URLs' contents, oldest first.
    url_names: VecDeque<String>,
    /// The artifacts whose failed installation was reported to the model.
    reported: BTreeSet<(String, Digest)>,
}

#[derive(Debug)]
struct InstalledArtifact {
    digest: Digest,
    /// `None`: unknown, because the installation was interrupted.
    path: Option<PathBuf>,
    reason: InstallReason,
}

/// Why an artifact is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstallReason {
    /// The session has recorded it.
    Registered,
    /// A call fetched it; `over` is the digest that was recorded then.
    Fetched { over: Option<Digest> },
    /// It is the content of a bare URL.
    BareUrl,
}

/// An artifact that must be installed.
#[derive(Debug, Clone)]
pub(super) struct RequiredArtifact<'a> {
    pub(super) name: &'a str,
    pub(super) variable: &'a str,
    /// `None`: its URL was not fetched yet.
    pub(super) digest: Option<Digest>,
}

/// Result of installing all required artifacts.
#[derive(Debug, Default)]
pub(super) struct InstallReport {
    /// The paths of artifacts, by environment variable.
    pub(super) environment: BTreeMap<String, String>,
    /// Notices for the model.
    pub(super) notices: Vec<String>,
}

impl InstalledArtifacts {
    /// Waits for exclusive access.
    pub(super) async fn lock<'s>(
        &'s self,
        executor: &'s dyn Executor,
        resolver: &'s ReferenceResolver,
        options: &'s CallOptions,
    ) -> Result<InstallSession<'s>, SandboxError> {
        let cancelled = || SandboxError::new(SandboxErrorKind::Cancelled, "it was cancelled");
        let table = options.cancel.run_until_cancelled(self.0.lock()).await.ok_or_else(cancelled)?;
        Ok(InstallSession { table, executor, resolver, options })
    }
}

impl InstallSession<'_> {
    /// Installs content under a name, replacing other content, and returns its path in the sandbox.
    pub(super) async fn install(
        &mut self,
        name: &str,
        digest: Digest,
        reason: InstallReason,
    ) -> Result<PathBuf, SandboxError> {
        let path = match self.try_install(name, digest, reason).await {
            // The replacement sandbox may accept it.
            Err(error) if error.kind() == SandboxErrorKind::Lost => {
                self.try_install(name, digest, reason).await?
            }
            other => other?,
        };
        if reason == InstallReason::BareUrl {
            self.evict_old_urls(name).await;
        }
        Ok(path)
    }

    async fn try_install(
        &mut self,
        name: &str,
        digest: Digest,
        reason: InstallReason,
    ) -> Result<PathBuf, SandboxError> {
        if self.table.installed.get(name).is_some_and(|installed| installed.digest != digest) {
            self.remove(name).await?;
        }
        let known = self.table.installed.get(name).and_then(|installed| installed.path.clone());
        let is_doubtful = known.is_none() && self.table.installed.contains_key(name);
        self.table
            .installed
            .insert(name.to_owned(), InstalledArtifact { digest, path: known.clone(), reason });
        let provision = ContentItem::artifact(name, self.resolver.store(), digest);
        let mut path = self.executor.install_content(provision.clone(), self.options.clone()).await;
        if path.as_ref().is_err_and(|error| error.kind() == SandboxErrorKind::Exists) {
            match known {
                // The executor reports identical content as existing.
                Some(path) => return Ok(path),
                None if is_doubtful => {
                    self.executor.remove_content(provision.dir, name, self.options.clone()).await?;
                    path = self.executor.install_content(provision, self.options.clone()).await;
                }
                None => {}
            }
        }
        match &path {
            Ok(path) => {
                let path = Some(path.clone());
                self.table.installed.insert(name.to_owned(), InstalledArtifact { digest, path, reason });
            }
            Err(_) => {
                self.table.installed.remove(name);
            }
        }
        path
    }

    /// Removes an artifact. If that fails, it stays in the table.
    async fn remove(&mut self, name: &str) -> Result<(), SandboxError> {
        let dir = conjure_sandbox::ContentDir::Artifacts;
        self.executor.remove_content(dir, name, self.options.clone()).await?;
        self.table.installed.remove(name);
        Ok(())
    }

    /// A free name for the content of a bare URL.
    pub(super) fn free_name(&self, name: &str, digest: Digest, required: &[RequiredArtifact<'_>]) -> String {
        let is_free = |name: &String| {
            let is_anothers = required.iter().any(|artifact| artifact.name == name);
            let is_given = |installed: &InstalledArtifact| {
                installed.digest != digest || installed.reason != InstallReason::BareUrl
            };
            !is_anothers && !self.table.installed.get(name).is_some_and(is_given)
        };
        let numbered = (2..u32::MAX).map(|number| format!("{number}-{name}"));
        std::iter::once(name.to_owned()).chain(numbered).find(is_free).unwrap_or_else(|| name.to_owned())
    }

    /// Keeps only the newest contents of bare URLs.
    async fn evict_old_urls(&mut self, newest: &str) {
        self.table.url_names.retain(|name| name != newest);
        self.table.url_names.push_back(newest.to_owned());
        while self.table.url_names.len() > MAX_URL_CONTENTS {
            let Some(oldest) = self.table.url_names.pop_front() else { return };
            let is_one = self
                .table
                .installed
                .get(&oldest)
                .is_some_and(|installed| installed.reason == InstallReason::BareUrl);
            if is_one && let Err(error) = self.remove(&oldest).await {
                tracing::debug!(%error, "the content of a URL stays in the sandbox");
            }
        }
    }

    /// Installs all required artifacts and removes the others.
    ///
    /// # Errors
    /// Errors of the sandbox or the call. A single artifact that cannot be installed is reported to the model once, and is no error.
    pub(super) async fn install_required(
        &mut self,
        required: &[RequiredArtifact<'_>],
    ) -> Result<InstallReport, SandboxError> {
        let is_required = |name: &str| required.iter().any(|artifact| artifact.name == name);
        let installed = self.table.installed.iter();
        let removed: Vec<String> = installed
            .filter(|(name, installed)| installed.reason != InstallReason::BareUrl && !is_required(name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in removed {
            match self.remove(&name).await {
                Err(error) if !is_content_error(&error) && error.kind() != SandboxErrorKind::Lost => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(%error, "an artifact that was unregistered stays in the sandbox")
                }
                Ok(()) => {}
            }
        }
        let mut report = InstallReport::default();
        for artifact in required {
            let Some((digest, reason)) = self.content_to_install(artifact) else { continue };
            match self.install(artifact.name, digest, reason).await {
                Ok(path) => {
                    report.environment.insert(artifact.variable.to_owned(), path_text(path));
                    self.table.reported.remove(&(artifact.name.to_owned(), digest));
                }
                Err(error) if is_content_error(&error) => {
                    if self.table.reported.insert((artifact.name.to_owned(), digest)) {
                        report.notices.push(format!(
                            "[the artifact `{}` is not in the sandbox: {error}]",
                            quote(artifact.name)
                        ));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(report)
    }

    /// The content to install: the recorded one, unless a call has fetched a newer one.
    fn content_to_install(&self, artifact: &RequiredArtifact<'_>) -> Option<(Digest, InstallReason)> {
        match self.table.installed.get(artifact.name) {
            Some(InstalledArtifact { digest, reason: reason @ InstallReason::Fetched { over }, .. })
                if *over == artifact.digest =>
            {
                Some((*digest, *reason))
            }
            _ => Some((artifact.digest?, InstallReason::Registered)),
        }
    }
}

/// A path as a tool input.
pub(super) fn path_text(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}
