//! Enforces a tenant's disk quota in its sandboxes. When the quota is reached, no new sandboxes are created, and no
//! call runs commands or writes files in existing ones. Their files can still be read and copied out.
//!
//! One call may exceed the quota by the limit of its workspace. State: none of its own.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_actors::admission::Permit;
use conjure_actors::executors::ExecutorSource;
use conjure_base::{Clock as _, Deadline, SystemClock, TenantId};
use conjure_sandbox::{
    CallOptions, Command, CommandOutcome, ContentDir, ContentItem, ContentStream, CopyOutReport, Executor,
    HostAccess, Isolation, Layout, LineRange, Listing, Process, ProcessCall, RunEvent, SandboxError,
    SandboxErrorKind, View, WriteResult,
};
use futures_util::future::BoxFuture;

use crate::runtime::error::RuntimeError;
use crate::runtime::tenants::disk_usage_cache::DiskUsageCache;

/// A source of sandboxes that checks the tenant's disk quota.
pub(crate) struct TenantQuotaSource {
    source: Arc<dyn ExecutorSource>,
    quota: QuotaCheck,
}

/// A sandbox that checks the tenant's disk quota.
struct TenantQuotaExecutor {
    executor: Box<dyn Executor>,
    quota: QuotaCheck,
}

/// A process in a sandbox. Each of its calls checks the quota.
struct TenantQuotaProcess {
    process: Box<dyn Process>,
    quota: QuotaCheck,
}

/// Checks the disk quota of one tenant.
#[derive(Clone)]
struct QuotaCheck {
    usage: DiskUsageCache,
    tenant: TenantId,
}

impl QuotaCheck {
    /// Fails if the tenant has reached its quota.
    async fn check(&self, deadline: Deadline) -> Result<(), SandboxError> {
        let checked = tokio::select! {
            biased;
            checked = self.usage.check(&self.tenant) => checked,
            () = SystemClock.sleep_until(deadline) => {
                let late = "what the tenant has on the disk was not measured in time";
                return Err(SandboxError::new(SandboxErrorKind::Unavailable, late));
            }
        };
        checked.map_err(|error| {
            let kind = match error {
                RuntimeError::Quota(_) | RuntimeError::UsageUnknown { .. } => SandboxErrorKind::NoSpace,
                // The usage could not be measured now.
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

impl TenantQuotaSource {
    pub(crate) fn new(source: Arc<dyn ExecutorSource>, usage: DiskUsageCache, tenant: TenantId) -> Self {
        Self { source, quota: QuotaCheck { usage, tenant } }
    }
}

impl ExecutorSource for TenantQuotaSource {
    fn layout(&self) -> &Layout {
        self.source.layout()
    }

    fn isolation(&self) -> Isolation {
        self.source.isolation()
    }

    fn acquire_permit(&self, deadline: Deadline) -> BoxFuture<'_, Result<Option<Permit>, SandboxError>> {
        Box::pin(async move {
            self.quota.check(deadline).await?;
            self.source.acquire_permit(deadline).await
        })
    }

    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        Box::pin(async move {
            let executor = self.source.create(deadline).await?;
            Ok(Box::new(TenantQuotaExecutor { executor, quota: self.quota.clone() }) as Box<dyn Executor>)
        })
    }
}

impl Executor for TenantQuotaExecutor {
    fn layout(&self) -> &Layout {
        self.executor.layout()
    }

    fn isolation(&self) -> Isolation {
        self.executor.isolation()
    }

    fn host_access(&self) -> HostAccess {
        self.executor.host_access()
    }

    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        Box::pin(async move {
            self.quota.check_call(&options).await?;
            self.executor.run(command, options).await
        })
    }

    fn start(
        &self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'_, Result<Box<dyn Process>, SandboxError>> {
        Box::pin(async move {
            self.quota.check_call(&options).await?;
            let process = self.executor.start(command, options).await?;
            Ok(Box::new(TenantQuotaProcess { process, quota: self.quota.clone() }) as Box<dyn Process>)
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
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        Box::pin(async move {
            self.quota.check_call(&options).await?;
            self.executor.create_file(path, content, options).await
        })
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        Box::pin(async move {
            self.quota.check_call(&options).await?;
            self.executor.str_replace(path, old, new, options).await
        })
    }

    fn init(&self) -> BoxFuture<'_, Result<(), SandboxError>> {
        self.executor.init()
    }

    fn cleanup(&self) -> BoxFuture<'_, ()> {
        self.executor.cleanup()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.executor.stop()
    }

    fn wait_ended(&self) -> BoxFuture<'_, SandboxError> {
        self.executor.wait_ended()
    }

    fn take_model_notice(&self) -> Option<String> {
        self.executor.take_model_notice()
    }

    fn copy_out(&self, options: CallOptions) -> BoxFuture<'_, Result<CopyOutReport, SandboxError>> {
        self.executor.copy_out(options)
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
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        Box::pin(async move {
            self.quota.check_call(&options).await?;
            self.executor.write(path, content, options).await
        })
    }

    fn install_content<'a>(
        &'a self,
        item: ContentItem,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<PathBuf, SandboxError>> {
        self.executor.install_content(item, options)
    }

    fn remove_content<'a>(
        &'a self,
        dir: ContentDir,
        name: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        self.executor.remove_content(dir, name, options)
    }
}

impl Process for TenantQuotaProcess {
    fn begin_call(&self, options: CallOptions) -> BoxFuture<'_, Result<ProcessCall, SandboxError>> {
        Box::pin(async move {
            self.quota.check_call(&options).await?;
            self.process.begin_call(options).await
        })
    }

    fn write(&self, bytes: Vec<u8>) -> BoxFuture<'_, ()> {
        self.process.write(bytes)
    }

    fn close_input(&self) {
        self.process.close_input();
    }

    fn next_event(&self) -> BoxFuture<'_, Result<RunEvent, SandboxError>> {
        self.process.next_event()
    }
}

impl fmt::Debug for TenantQuotaProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantQuotaProcess").field("process", &self.process).finish_non_exhaustive()
    }
}

impl fmt::Debug for TenantQuotaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantQuotaSource").field("source", &self.source).finish_non_exhaustive()
    }
}

impl fmt::Debug for TenantQuotaExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantQuotaExecutor").field("executor", &self.executor).finish_non_exhaustive()
    }
}
