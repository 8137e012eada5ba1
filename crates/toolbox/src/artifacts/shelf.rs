//! What was put on the shelf of a session's sandbox, and by whom: so that each content is given once, and what nobody wants any more is
//! taken off.
//!
//! One call at a time is at it. Calls of one answer may run beside each other, and see the session as it was when each began: what a
//! call has fetched meanwhile is not given up for what was known before.
//!
//! State: the names, in memory; see the [module](super).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use conjure_artifact::Resolver;
use conjure_base::Digest;
use conjure_sandbox::{CallOptions, Executor, Provision, SandboxError, SandboxErrorKind};
use tokio::sync::{Mutex, MutexGuard};

use super::failure::is_of_content;
use crate::text::quote;

/// How many contents of bare URLs stay there.
const MOST_OF_URLS: usize = 50;

/// The shelf of one sandbox, over all its replacements.
#[derive(Debug, Default)]
pub(super) struct Shelf(Mutex<Names>);

/// Somebody is at the shelf.
pub(super) struct AtShelf<'s> {
    names: MutexGuard<'s, Names>,
    executor: &'s dyn Executor,
    resolver: &'s Resolver,
    options: &'s CallOptions,
}

#[derive(Debug, Default)]
struct Names {
    given: BTreeMap<String, Given>,
    /// Those that bare URLs led to, the oldest first.
    of_urls: VecDeque<String>,
    /// What the model was told once that it cannot be given.
    told: BTreeSet<(String, Digest)>,
}

#[derive(Debug)]
struct Given {
    digest: Digest,
    /// `None`: whether it is there is not known, as whoever gave it was broken off.
    path: Option<PathBuf>,
    why: Why,
}

/// Why something is on the shelf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The session has it, as far as it is recorded.
    Registered,
    /// A call fetched it; this was recorded of the artifact then.
    Fetched { over: Option<Digest> },
    /// A bare URL led to it.
    OfUrl,
}

/// An artifact that is to be there.
#[derive(Debug, Clone)]
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) variable: &'a str,
    /// `None`: it was not fetched, as far as is known.
    pub(super) digest: Option<Digest>,
}

/// What came of putting all there that is wanted.
#[derive(Debug, Default)]
pub(super) struct Laid {
    /// The paths of artifacts, by their variables.
    pub(super) environment: BTreeMap<String, String>,
    /// What the model is to be told.
    pub(super) notices: Vec<String>,
}

impl Shelf {
    /// Waits until nobody else is at it.
    pub(super) async fn turn<'s>(
        &'s self,
        executor: &'s dyn Executor,
        resolver: &'s Resolver,
        options: &'s CallOptions,
    ) -> Result<AtShelf<'s>, SandboxError> {
        let cancelled = || SandboxError::new(SandboxErrorKind::Cancelled, "it was cancelled");
        let names = options.cancel.run_until_cancelled(self.0.lock()).await.ok_or_else(cancelled)?;
        Ok(AtShelf { names, executor, resolver, options })
    }
}

impl AtShelf<'_> {
    /// Puts a content there, in the place of what has its name, and yields where the sandbox has it.
    pub(super) async fn put(
        &mut self,
        name: &str,
        digest: Digest,
        why: Why,
    ) -> Result<PathBuf, SandboxError> {
        let path = match self.put_once(name, digest, why).await {
            // It may be in the sandbox that takes the place of this one.
            Err(error) if error.kind() == SandboxErrorKind::Lost => self.put_once(name, digest, why).await?,
            other => other?,
        };
        if why == Why::OfUrl {
            self.keep_few(name).await;
        }
        Ok(path)
    }

    async fn put_once(&mut self, name: &str, digest: Digest, why: Why) -> Result<PathBuf, SandboxError> {
        if self.names.given.get(name).is_some_and(|given| given.digest != digest) {
            self.take_off(name).await?;
        }
        let known = self.names.given.get(name).and_then(|given| given.path.clone());
        let is_doubtful = known.is_none() && self.names.given.contains_key(name);
        self.names.given.insert(name.to_owned(), Given { digest, path: known.clone(), why });
        let provision = Provision::artifact(name, self.resolver.store(), digest);
        let mut provided = self.executor.provide(provision.clone(), self.options.clone()).await;
        if provided.as_ref().is_err_and(|error| error.kind() == SandboxErrorKind::Exists) {
            match known {
                // An executor that says so where it has the same.
                Some(path) => return Ok(path),
                None if is_doubtful => {
                    self.executor.withdraw(provision.shelf, name, self.options.clone()).await?;
                    provided = self.executor.provide(provision, self.options.clone()).await;
                }
                None => {}
            }
        }
        match &provided {
            Ok(path) => {
                let path = Some(path.clone());
                self.names.given.insert(name.to_owned(), Given { digest, path, why });
            }
            Err(_) => {
                self.names.given.remove(name);
            }
        }
        provided
    }

    /// Takes it off. Where that fails it is still there, and known.
    async fn take_off(&mut self, name: &str) -> Result<(), SandboxError> {
        let shelf = conjure_sandbox::Shelf::Artifacts;
        self.executor.withdraw(shelf, name, self.options.clone()).await?;
        self.names.given.remove(name);
        Ok(())
    }

    /// A name for what a bare URL led to that stands for nothing else.
    pub(super) fn free_name(&self, name: &str, digest: Digest, wanted: &[Wanted<'_>]) -> String {
        let is_free = |name: &String| {
            let is_anothers = wanted.iter().any(|artifact| artifact.name == name);
            let is_given = |given: &Given| given.digest != digest || given.why != Why::OfUrl;
            !is_anothers && !self.names.given.get(name).is_some_and(is_given)
        };
        let numbered = (2..u32::MAX).map(|number| format!("{number}-{name}"));
        std::iter::once(name.to_owned()).chain(numbered).find(is_free).unwrap_or_else(|| name.to_owned())
    }

    /// Of what bare URLs led to only the newest stays.
    async fn keep_few(&mut self, newest: &str) {
        self.names.of_urls.retain(|name| name != newest);
        self.names.of_urls.push_back(newest.to_owned());
        while self.names.of_urls.len() > MOST_OF_URLS {
            let Some(oldest) = self.names.of_urls.pop_front() else { return };
            let is_one = self.names.given.get(&oldest).is_some_and(|given| given.why == Why::OfUrl);
            if is_one && let Err(error) = self.take_off(&oldest).await {
                tracing::debug!(%error, "what a URL led to stays in the sandbox");
            }
        }
    }

    /// Puts all there that is wanted, and takes off what is not any more.
    ///
    /// # Errors
    /// What is about the sandbox or the call. An artifact that cannot be given is told of, once, and holds up nothing.
    pub(super) async fn lay(&mut self, wanted: &[Wanted<'_>]) -> Result<Laid, SandboxError> {
        let is_wanted = |name: &str| wanted.iter().any(|artifact| artifact.name == name);
        let given = self.names.given.iter();
        let gone: Vec<String> = given
            .filter(|(name, given)| given.why != Why::OfUrl && !is_wanted(name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            match self.take_off(&name).await {
                Err(error) if !is_of_content(&error) && error.kind() != SandboxErrorKind::Lost => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(%error, "an artifact that was unregistered stays in the sandbox")
                }
                Ok(()) => {}
            }
        }
        let mut laid = Laid::default();
        for artifact in wanted {
            let Some((digest, why)) = self.meant(artifact) else { continue };
            match self.put(artifact.name, digest, why).await {
                Ok(path) => {
                    laid.environment.insert(artifact.variable.to_owned(), super::text_of(path));
                    self.names.told.remove(&(artifact.name.to_owned(), digest));
                }
                Err(error) if is_of_content(&error) => {
                    if self.names.told.insert((artifact.name.to_owned(), digest)) {
                        laid.notices.push(format!(
                            "[the artifact `{}` is not in the sandbox: {error}]",
                            quote(artifact.name)
                        ));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(laid)
    }

    /// Which content of an artifact is meant: what is recorded, unless a call has fetched a newer one since.
    fn meant(&self, artifact: &Wanted<'_>) -> Option<(Digest, Why)> {
        match self.names.given.get(artifact.name) {
            Some(Given { digest, why: why @ Why::Fetched { over }, .. }) if *over == artifact.digest => {
                Some((*digest, *why))
            }
            _ => Some((artifact.digest?, Why::Registered)),
        }
    }
}
