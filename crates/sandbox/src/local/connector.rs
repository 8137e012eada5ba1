//! [`Local`]: creates sandboxes that are plain child processes.
//!
//! State of a sandbox: its process, and a temporary directory. Both end with the sandbox. After a crash of this process the
//! guest ends by itself, and the directory stays among the temporary files.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use conjure_guest::protocol::{Access, Hello, Root, Welcome};
use futures_util::future::BoxFuture;

use crate::connector::{Connector, SandboxGuard, StartedSandbox};
use crate::content::{ContentDir, ContentInstaller};
use crate::error::SandboxError;
use crate::guest_process::start;
use crate::guest_process::{
    GuestProcess, PrivateDir, SpawnedGuest, missing_dir, resolve_dir, safe_env, unavailable, utf8_path,
};
use crate::host_dirs::{ContentDirs, SandboxDirs};
use crate::settings::context::{ExecutionContext, SharedDir};
use crate::settings::isolation::Isolation;
use crate::settings::layout::{ArtifactDir, Layout};

/// Runs the guest as a child process of the host, for trusted use.
///
/// **Nothing is isolated.** Commands run as the host's user. They can read and change all files of that user, see and
/// signal the user's processes, and use all memory. They can reach the whole network, whatever
/// [`ExecutionContext::network`] says. The roots of the context limit file operations, but not commands. The guest
/// still enforces deadlines, ends complete process trees, limits output, and keeps the host's keys out of the
/// environment.
#[derive(Debug, Clone)]
pub struct Local {
    environment: BTreeMap<String, String>,
}

impl Local {
    /// A connector without any isolation and without a network policy. The caller must know that. Commands see the
    /// host's variables `PATH`, `HOME`, `LANG`, `LC_*`, `TZ`, `USER`, `LOGNAME` and `SHELL`, and those of the
    /// context.
    pub fn without_isolation(host_environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self { environment: safe_env(host_environment) }
    }
}

impl Connector for Local {
    fn isolation(&self) -> Isolation {
        Isolation::NONE
    }

    fn layout(&self, context: &ExecutionContext) -> Result<Layout, SandboxError> {
        layout(context)
    }

    fn connect<'a>(
        &'a self,
        context: &'a ExecutionContext,
    ) -> BoxFuture<'a, Result<StartedSandbox, SandboxError>> {
        Box::pin(async move {
            let mut env = self.environment.clone();
            env.extend(context.environment.clone());
            let owned_context = context.clone();
            let planned = tokio::task::spawn_blocking(move || prepare(&owned_context, env)).await;
            let planned = planned.map_err(|error| unavailable("its preparation failed", error))??;
            let LocalPlan { hello, layout, private, content_dirs } = planned;
            let SpawnedGuest { reader, writer, process } = start(&[], private).await?;
            Ok(StartedSandbox {
                reader: Box::new(reader),
                writer: Box::new(writer),
                hello,
                layout,
                // Commands use the network directly, without a proxy.
                proxy: None,
                guard: Box::new(LocalGuard { content_dirs, process }),
            })
        })
    }
}

/// Owns a sandbox that is a child process, and the directory of its artifacts.
#[derive(Debug)]
struct LocalGuard {
    /// Removed before the process's directory, which contains it.
    content_dirs: ContentDirs,
    process: GuestProcess,
}

impl SandboxGuard for LocalGuard {
    fn confirmed_isolation(&mut self, welcome: &Welcome) -> Isolation {
        self.process.confirmed_isolation(welcome)
    }

    fn content_installer(&self) -> Option<Arc<dyn ContentInstaller>> {
        Some(Arc::new(self.content_dirs.clone()))
    }

    fn wait(&mut self) -> BoxFuture<'_, String> {
        self.process.wait()
    }

    fn kill(&mut self) -> BoxFuture<'_, ()> {
        self.process.kill()
    }

    fn remove_leftovers(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let content_dirs = self.content_dirs.clone();
            match tokio::task::spawn_blocking(move || content_dirs.remove()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the artifacts of a sandbox were not removed"),
                Err(error) => tracing::warn!(%error, "the artifacts of a sandbox were not removed"),
            }
        })
    }
}

impl Drop for LocalGuard {
    /// A concurrent install may still hold the content directories.
    fn drop(&mut self) {
        if let Err(error) = self.content_dirs.remove() {
            tracing::warn!(%error, "the artifacts of a sandbox were not removed");
        }
    }
}

/// A sandbox before its guest is started.
#[derive(Debug)]
struct LocalPlan {
    hello: Hello,
    layout: Layout,
    private: PrivateDir,
    content_dirs: ContentDirs,
}

/// The layout: each directory has the same path as on the host. Blocks.
fn layout(context: &ExecutionContext) -> Result<Layout, SandboxError> {
    let workspace = resolve_dir("workspace", &context.workspace)?;
    let mut read_only = Vec::new();
    for SharedDir { host: given, .. } in &context.read_only {
        let path = resolve_dir("read-only directory", given)?;
        // Callers may use the path that the context gave, or the real path. So both are listed.
        if *given != path {
            read_only.push((path.clone(), path.clone()));
        }
        read_only.push((given.clone(), path));
    }
    Ok(Layout { workspace, read_only, artifacts: ArtifactDir::PerSandbox })
}

/// Resolves directories, and creates the private directory. Blocks.
fn prepare(context: &ExecutionContext, env: BTreeMap<String, String>) -> Result<LocalPlan, SandboxError> {
    let layout = layout(context)?;
    let workdir = utf8_path(&layout.workspace)?;
    let mut roots = vec![Root { path: workdir.clone(), access: Access::ReadWrite }];
    for path in &context.allowed_paths {
        let path = fs::canonicalize(path).map_err(|error| missing_dir("allowed path", path, &error))?;
        roots.push(Root { path: utf8_path(&path)?, access: Access::ReadWrite });
    }
    let mut shared: Vec<&Path> = layout.read_only.iter().map(|(_, path)| path.as_path()).collect();
    // A directory with two listed paths becomes one root.
    shared.dedup();
    for path in shared {
        roots.push(Root { path: utf8_path(path)?, access: Access::ReadOnly });
    }
    let private = PrivateDir::make()?;
    let spill = utf8_path(private.output())?;
    roots.push(Root { path: spill.clone(), access: Access::ReadOnly });
    let sandbox_dir = SandboxDirs::open_dir(private.content_dirs())?.create()?;
    roots.push(Root {
        path: utf8_path(&sandbox_dir.content_dir(ContentDir::Artifacts))?,
        access: Access::ReadOnly,
    });
    let hello = Hello { roots, workdir, env, spill_dir: Some(spill), ..Hello::default() };
    Ok(LocalPlan { hello, layout, private, content_dirs: ContentDirs::with_copies(sandbox_dir) })
}
