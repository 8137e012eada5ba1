//! The sources of sandboxes with Python packages: which packages a session has, and how they are installed.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_actors::executors::ExecutorSource;
use conjure_conversation::SessionProfile;
use conjure_egress::{Host, Target};
use conjure_journal::SessionKey;

use crate::config::ExecutorKind;
use crate::context::{ContextOptions, SessionContext, create_context};
use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::sandbox_kinds::SandboxKind;
use crate::runtime::session::factory::session_factory::Inner;
use crate::runtime::session::python::python_packages::{PackagedSource, PythonPackages};
use crate::runtime::session::python::python_requirement::PythonRequirement;

/// The hosts that an installation may reach.
const PYTHON_REGISTRY: [&str; 2] = ["pypi.org", "files.pythonhosted.org"];

/// The port of the registry.
const HTTPS: NonZeroU16 = NonZeroU16::new(443).unwrap();

impl Inner {
    /// The Python packages for the sandboxes of a session with this profile; `None` if it asks for none. Blocks.
    pub(crate) fn python_packages(
        &self,
        profile: &SessionProfile,
        home: &Arc<TenantDir>,
        kind: Option<&SandboxKind<'_>>,
    ) -> Result<Option<PythonPackages>, RuntimeError> {
        let Some(kind) = kind.filter(|_| !profile.python_packages.is_empty()) else { return Ok(None) };
        let refused = |reason: String| RuntimeError::PythonPackages { reason };
        let SandboxKind::BuiltIn(kind) = kind else {
            return Err(refused("only jails, containers and `local` sandboxes can have them".to_owned()));
        };
        if *kind != ExecutorKind::Local {
            let reaches_registry = self.config.network().policy().is_ok_and(|policy| {
                PYTHON_REGISTRY.into_iter().all(|name| {
                    let host = Host::parse(name).ok();
                    host.is_some_and(|host| policy.check(&Target::new(host, HTTPS)).is_ok())
                })
            });
            if !reaches_registry {
                return Err(refused(format!(
                    "the configuration's `network` does not let sandboxes reach `{}`; permit it, or put the packages into the image of the sandboxes",
                    PYTHON_REGISTRY.join("` and `")
                )));
            }
        }
        let read = |text: &String| PythonRequirement::new(text).map_err(|error| refused(error.to_string()));
        let requirements = profile.python_packages.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let packages = PythonPackages::new(requirements, home, *kind);
        Ok(Some(packages.map_err(|error| refused(error.to_string()))?))
    }

    /// The source of sandboxes with these packages.
    pub(crate) fn packaged_source(
        self: &Arc<Self>,
        key: &SessionKey,
        home: &Arc<TenantDir>,
        context: SessionContext,
        packages: PythonPackages,
    ) -> Result<Arc<dyn ExecutorSource>, RuntimeError> {
        let executor = packages.kind();
        let (kind, context) = (SandboxKind::BuiltIn(executor), context.with_read_only(packages.shared_dir()));
        let source = self.sandboxes.unpooled_source(key, home, &kind, &self.config, context)?;
        // Weak references, so that an installation does not keep the runtime alive.
        let (inner, key, home) = (Arc::downgrade(self), key.clone(), Arc::downgrade(home));
        let install = move |workspace: PathBuf| {
            let shutting_down =
                || RuntimeError::PythonPackages { reason: "the runtime is shutting down".to_owned() };
            let (inner, home) =
                (inner.upgrade().ok_or_else(shutting_down)?, home.upgrade().ok_or_else(shutting_down)?);
            let options = ContextOptions {
                workspace: Some(workspace),
                data: Some(home.data.clone()),
                ..ContextOptions::default()
            };
            let context = create_context::<conjure_skill::Skill>(&[], &inner.config, options)
                .map_err(RuntimeError::Sandbox)?;
            let context = match executor {
                ExecutorKind::Local => context,
                _ => context
                    .with_allowed_hosts(&PYTHON_REGISTRY.map(str::to_owned))
                    .map_err(|error| RuntimeError::PythonPackages { reason: error.to_string() })?,
            };
            let kind = SandboxKind::BuiltIn(executor);
            inner.sandboxes.unpooled_source(&key, &home, &kind, &inner.config, context)
        };
        Ok(Arc::new(PackagedSource::new(source, packages, Box::new(install), &self.python)))
    }
}
