//! [`Local`]: makes sandboxes that are plain child processes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use conjure_guest::protocol::{Access, Hello, Root};
use futures_util::future::BoxFuture;

use super::guard::LocalGuard;
use crate::connector::{Connection, Connector};
use crate::context::{ExecutionContext, SharedFolder};
use crate::error::SandboxError;
use crate::guest_process::{Private, Started, absent, folder, safe, start, text, unavailable};
use crate::isolation::Isolation;
use crate::places::{Places, Shelves};
use crate::provision::Shelf;
use crate::types::{ArtifactFolder, Layout};

/// Runs the guest as a child process of the host, for trusted use.
///
/// **Nothing is isolated.** Commands run as the host's user: they can read and change every file that it can,
/// reach the whole network whatever [`ExecutionContext::network`] says, see and signal its processes, and use all
/// memory. The roots of the context bound the file operations only, not what commands do. What is promised is
/// tidiness: deadlines, whole process trees ended, bounded output, no key of the host's in the environment.
#[derive(Debug, Clone)]
pub struct Local {
    environment: BTreeMap<String, String>,
}

impl Local {
    /// A connector whose caller knows that it isolates nothing and enforces no network policy. Of the host's
    /// variables, commands see `PATH`, `HOME`, `LANG`, `LC_*`, `TZ`, `USER`, `LOGNAME` and `SHELL`, and besides
    /// what the context says.
    pub fn without_isolation(host_environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self { environment: safe(host_environment) }
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
    ) -> BoxFuture<'a, Result<Connection, SandboxError>> {
        Box::pin(async move {
            let mut env = self.environment.clone();
            env.extend(context.environment.clone());
            let wanted = context.clone();
            let prepared = tokio::task::spawn_blocking(move || prepare(&wanted, env)).await;
            let prepared = prepared.map_err(|error| unavailable("its preparation failed", error))??;
            let Prepared { hello, layout, private, shelves } = prepared;
            let Started { reader, writer, process } = start(&[], private).await?;
            Ok(Connection {
                reader: Box::new(reader),
                writer: Box::new(writer),
                hello,
                layout,
                // Commands reach the network by themselves.
                proxy: None,
                guard: Box::new(LocalGuard { shelves, process }),
            })
        })
    }
}

/// A sandbox without its guest.
#[derive(Debug)]
struct Prepared {
    hello: Hello,
    layout: Layout,
    private: Private,
    shelves: Shelves,
}

/// Everything is where the host has it; blocks.
fn layout(context: &ExecutionContext) -> Result<Layout, SandboxError> {
    let workspace = folder("workspace", &context.workspace)?;
    let mut read_only = Vec::new();
    for SharedFolder { host: given, .. } in &context.read_only {
        let path = folder("read-only folder", given)?;
        // A folder may be asked for by the name that the host gave it, or by what it really is.
        if *given != path {
            read_only.push((path.clone(), path.clone()));
        }
        read_only.push((given.clone(), path));
    }
    Ok(Layout { workspace, read_only, artifacts: ArtifactFolder::PerSandbox })
}

/// Looks at folders and makes the private one; blocks.
fn prepare(context: &ExecutionContext, env: BTreeMap<String, String>) -> Result<Prepared, SandboxError> {
    let layout = layout(context)?;
    let workdir = text(&layout.workspace)?;
    let mut roots = vec![Root { path: workdir.clone(), access: Access::ReadWrite }];
    for path in &context.allowed_paths {
        let path = fs::canonicalize(path).map_err(|error| absent("allowed path", path, &error))?;
        roots.push(Root { path: text(&path)?, access: Access::ReadWrite });
    }
    let mut shared: Vec<&Path> = layout.read_only.iter().map(|(_, path)| path.as_path()).collect();
    // Once for both names.
    shared.dedup();
    for path in shared {
        roots.push(Root { path: text(path)?, access: Access::ReadOnly });
    }
    let private = Private::make()?;
    let spill = text(private.output())?;
    roots.push(Root { path: spill.clone(), access: Access::ReadOnly });
    let place = Places::in_folder(private.shelves())?.make()?;
    roots.push(Root { path: text(&place.shelf(Shelf::Artifacts))?, access: Access::ReadOnly });
    let hello = Hello { roots, workdir, env, spill_dir: Some(spill), ..Hello::default() };
    Ok(Prepared { hello, layout, private, shelves: Shelves::in_the_open(place) })
}
