//! What a running sandbox has on its shelves, and who may put something there or take it off.
//!
//! One at a time: whatever broke off in the midst of it leaves a name *doubtful*, and whoever wants that name next clears it first. So
//! what a sandbox is said to have it has, and what was given twice is there once.
//!
//! State: the names and what they stand for, in memory of the sandbox; gone with it, as the shelves are.

use std::collections::BTreeMap;
use std::path::PathBuf;

use conjure_base::Digest;
use conjure_store::Variant;
use tokio::sync::{Mutex, MutexGuard};

use crate::context::ExecutionContext;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::executor::CallOptions;
use crate::provision::{Consent, Provided, Provider, Provision, Shelf, WithdrawOnDrop};
use crate::sandbox::Sandbox;

/// The names on the shelves of one sandbox.
#[derive(Debug)]
pub(crate) struct Shelved(Mutex<Names>);

type Names = BTreeMap<(Shelf, String), Held>;

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Held {
    /// What the sandbox was made with.
    FromTheStart,
    /// This, which the sandbox has there.
    Given(Identity, PathBuf),
    /// Somebody put something there or took it off, and did not get to the end of it.
    Doubtful,
}

/// What is the same whoever gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Identity {
    File(Digest, Variant),
    Tree(Digest),
}

impl Identity {
    fn of(content: &Provided) -> Self {
        match content {
            Provided::File { digest, variant } => Self::File(*digest, *variant),
            Provided::Tree(tree) => Self::Tree(*tree.digest()),
        }
    }
}

impl Shelved {
    /// Of a sandbox that was made for this context.
    pub(crate) fn of(context: &ExecutionContext) -> Self {
        let named = |target: &PathBuf| {
            let shelf =
                Shelf::ALL.into_iter().find(|shelf| target.parent() == Some(shelf.path().as_ref()))?;
            Some((shelf, target.file_name()?.to_str()?.to_owned()))
        };
        let names = context.read_only.iter().filter_map(|shared| named(&shared.target));
        Self(Mutex::new(names.map(|name| (name, Held::FromTheStart)).collect()))
    }
}

impl Sandbox {
    /// See [`crate::Executor::provide`].
    pub(crate) async fn put(
        &self,
        provision: Provision,
        options: CallOptions,
    ) -> Result<PathBuf, SandboxError> {
        let mut names = self.names(&options).await?;
        let key = (provision.shelf, provision.name.clone());
        let identity = Identity::of(&provision.content);
        match names.get(&key) {
            Some(Held::Given(known, path)) if *known == identity => return Ok(path.clone()),
            Some(Held::Given(..) | Held::FromTheStart) => {
                let message = format!("the sandbox has a `{}` already, which stays as it is", key.1);
                return Err(SandboxError::new(SandboxErrorKind::Exists, message));
            }
            Some(Held::Doubtful) => self.clear(key.0, &key.1, &options).await?,
            None => {}
        }
        names.insert(key.clone(), Held::Doubtful);
        let given = self.give(provision, options).await;
        match &given {
            Ok(path) => names.insert(key, Held::Given(identity, path.clone())),
            Err(_) => names.remove(&key),
        };
        given
    }

    /// See [`crate::Executor::withdraw`].
    pub(crate) async fn take_off(
        &self,
        shelf: Shelf,
        name: &str,
        options: CallOptions,
    ) -> Result<(), SandboxError> {
        let mut names = self.names(&options).await?;
        let key = (shelf, name.to_owned());
        let Some(held) = names.remove(&key) else { return Ok(()) };
        names.insert(key.clone(), Held::Doubtful);
        let cleared = self.clear(shelf, name, &options).await;
        match &cleared {
            Ok(()) => names.remove(&key),
            Err(error)
                if matches!(error.kind(), SandboxErrorKind::Cancelled | SandboxErrorKind::TimedOut) =>
            {
                names.insert(key, held)
            }
            Err(_) => None,
        };
        cleared
    }

    /// Waits until nobody else is at the shelves.
    async fn names(&self, options: &CallOptions) -> Result<MutexGuard<'_, Names>, SandboxError> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let clock = self.clock();
        tokio::select! {
            biased;
            () = options.cancel.cancelled() => Err(called_off(CalledOff::Cancelled)),
            names = self.shelved().0.lock() => Ok(names),
            () = clock.sleep_until(options.deadline) => Err(called_off(CalledOff::Late)),
        }
    }

    async fn give(&self, provision: Provision, options: CallOptions) -> Result<PathBuf, SandboxError> {
        #[cfg(feature = "local")]
        if let Some(traveller) = self.traveller() {
            let path = provision.path();
            return traveller.provide(self, provision, options).await.map(|()| path);
        }
        let provider = self.shelf_keeper()?;
        self.with_consent(&options, |consent| provider.provide(provision, consent)).await
    }

    async fn clear(&self, shelf: Shelf, name: &str, options: &CallOptions) -> Result<(), SandboxError> {
        #[cfg(feature = "local")]
        if let Some(traveller) = self.traveller() {
            return traveller.withdraw(self, shelf, name, options.clone()).await;
        }
        let provider = self.shelf_keeper()?;
        self.with_consent(options, |consent| provider.withdraw(shelf, name.to_owned(), consent)).await
    }

    fn shelf_keeper(&self) -> Result<&dyn Provider, SandboxError> {
        self.provider().ok_or_else(|| {
            let message = "this kind of sandbox takes no content while it runs";
            SandboxError::new(SandboxErrorKind::Unsupported, message)
        })
    }

    /// Does it while it is wanted. Who calls it off is told so only where it was in time.
    async fn with_consent<T>(
        &self,
        options: &CallOptions,
        begin: impl FnOnce(Consent) -> futures_util::future::BoxFuture<'static, Result<T, SandboxError>>,
    ) -> Result<T, SandboxError> {
        let consent = Consent::default();
        let _called_off = WithdrawOnDrop(consent.clone());
        let clock = self.clock();
        let mut done = begin(consent.clone());
        let why = tokio::select! {
            biased;
            () = options.cancel.cancelled() => CalledOff::Cancelled,
            done = &mut done => return done,
            () = clock.sleep_until(options.deadline) => CalledOff::Late,
        };
        if consent.withdraw() {
            return Err(called_off(why));
        }
        // It happens just now.
        done.await
    }
}

/// Why it was called off.
#[derive(Debug, Clone, Copy)]
enum CalledOff {
    Cancelled,
    Late,
}

fn called_off(why: CalledOff) -> SandboxError {
    match why {
        CalledOff::Cancelled => SandboxError::new(SandboxErrorKind::Cancelled, "it was cancelled"),
        CalledOff::Late => SandboxError::new(SandboxErrorKind::TimedOut, "its time was up"),
    }
}
