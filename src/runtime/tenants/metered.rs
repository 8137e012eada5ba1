//! Sandboxes of a tenant whose quotas of the disk are heeded: where its data folder is full, it gets no new ones, and nothing is run
//! or written in those that it has. What they have can be looked at and taken out.
//!
//! One call may exceed a quota by what its workspace may have. State: none of its own.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_actors::admission::Permit;
use conjure_actors::executors::ExecutorSource;
use conjure_base::{Clock as _, Deadline, SystemClock, TenantId};
use conjure_sandbox::{
    BroughtBack, CallOptions, Command, CommandOutcome, ContentStream, Executor, Isolation, Layout, LineRange,
    Listing, Provision, SandboxError, SandboxErrorKind, Sharing, Shelf, View, Written,
};
use futures_util::future::BoxFuture;

use super::super::error::RuntimeError;
use super::meter::Meters;

/// Where a tenant's sandboxes come from, with its quotas heeded.
pub(crate) struct MeteredSource {
    source: Arc<dyn ExecutorSource>,
    account: Account,
}

/// One of its sandboxes.
struct MeteredExecutor {
    executor: Box<dyn Executor>,
    account: Account,
}

/// Whose it is, and what they have.
#[derive(Clone)]
struct Account {
    meters: Meters,
    tenant: TenantId,
}

impl Account {
    /// That the tenant may have more.
    async fn check(&self, deadline: Deadline) -> Result<(), SandboxError> {
        let checked = tokio::select! {
            biased;
            checked = self.meters.check(&self.tenant) => checked,
            () = SystemClock.sleep_until(deadline) => {
                let late = "what the tenant has on the disk was not measured in time";
                return Err(SandboxError::new(SandboxErrorKind::Unavailable, late));
            }
        };
        checked.map_err(|error| {
            let kind = match error {
                RuntimeError::Quota(_) | RuntimeError::Unmeasured { .. } => SandboxErrorKind::NoSpace,
                // Nobody knows, for now.
                _ => SandboxErrorKind::Unavailable,
            };
            SandboxError::new(kind, error.to_string())
        })
    }

    async fn check_call(&self, options: &CallOptions) -> Result<(), SandboxError> {
        tokio::select! {
            biased;
            checked = self.check(options.deadline) => checked,
            () = options.cancel.cancelled() => Err(SandboxError::new(SandboxErrorKind::Cancelled, "the call was cancelled")),
        }
    }
}

impl MeteredSource {
    pub(crate) fn new(source: Arc<dyn ExecutorSource>, meters: Meters, tenant: TenantId) -> Self {
        Self { source, account: Account { meters, tenant } }
    }
}

impl ExecutorSource for MeteredSource {
    fn layout(&self) -> &Layout {
        self.source.layout()
    }

    fn isolation(&self) -> Isolation {
        self.source.isolation()
    }

    fn admit(&self, deadline: Deadline) -> BoxFuture<'_, Result<Option<Permit>, SandboxError>> {
        Box::pin(async move {
            self.account.check(deadline).await?;
            self.source.admit(deadline).await
        })
    }

    fn open(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        Box::pin(async move {
            let executor = self.source.open(deadline).await?;
            Ok(Box::new(MeteredExecutor { executor, account: self.account.clone() }) as Box<dyn Executor>)
        })
    }
}

impl Executor for MeteredExecutor {
    fn layout(&self) -> &Layout {
        self.executor.layout()
    }

    fn isolation(&self) -> Isolation {
        self.executor.isolation()
    }

    fn sharing(&self) -> Sharing {
        self.executor.sharing()
    }

    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        Box::pin(async move {
            self.account.check_call(&options).await?;
            self.executor.run(command, options).await
        })
    }

    fn view<'a>(
        &'a self,
        path: &'a str,
        range: Option<LineRange>,
        max_bytes: u64,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<View, SandboxError>> {
        self.executor.view(path, range, max_bytes, options)
    }

    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>> {
        Box::pin(async move {
            self.account.check_call(&options).await?;
            self.executor.create_file(path, content, options).await
        })
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>> {
        Box::pin(async move {
            self.account.check_call(&options).await?;
            self.executor.str_replace(path, old, new, options).await
        })
    }

    fn init(&self) -> BoxFuture<'_, Result<(), SandboxError>> {
        self.executor.init()
    }

    fn cleanup(&self) -> BoxFuture<'_, ()> {
        self.executor.cleanup()
    }

    fn vacate(&self) -> BoxFuture<'_, ()> {
        self.executor.vacate()
    }

    fn ended(&self) -> BoxFuture<'_, SandboxError> {
        self.executor.ended()
    }

    fn take_notice(&self) -> Option<String> {
        self.executor.take_notice()
    }

    fn bring_back(&self, options: CallOptions) -> BoxFuture<'_, Result<BroughtBack, SandboxError>> {
        self.executor.bring_back(options)
    }

    fn pause(&self, options: CallOptions) -> BoxFuture<'_, Result<(), SandboxError>> {
        self.executor.pause(options)
    }

    fn resume(&self, options: CallOptions) -> BoxFuture<'_, Result<(), SandboxError>> {
        self.executor.resume(options)
    }

    fn list<'a>(
        &'a self,
        path: &'a str,
        depth: u32,
        max_entries: u32,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Listing, SandboxError>> {
        self.executor.list(path, depth, max_entries, options)
    }

    fn read<'a>(
        &'a self,
        path: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<ContentStream, SandboxError>> {
        self.executor.read(path, options)
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: ContentStream,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>> {
        Box::pin(async move {
            self.account.check_call(&options).await?;
            self.executor.write(path, content, options).await
        })
    }

    fn provide<'a>(
        &'a self,
        provision: Provision,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<PathBuf, SandboxError>> {
        self.executor.provide(provision, options)
    }

    fn withdraw<'a>(
        &'a self,
        shelf: Shelf,
        name: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        self.executor.withdraw(shelf, name, options)
    }
}

impl fmt::Debug for MeteredSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeteredSource").field("source", &self.source).finish_non_exhaustive()
    }
}

impl fmt::Debug for MeteredExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeteredExecutor").field("executor", &self.executor).finish_non_exhaustive()
    }
}
