//! The handshake: reads `Hello`, applies the confinement, and replies with `Welcome`.

use std::os::fd::OwnedFd;

use conjure_guest::protocol::{
    Confinement, EnforcedRules, FrameKind, Hello, OpenedRoots, PROTOCOL_VERSION, SPILL_TOTAL, Welcome,
};

use super::{EventLoop, GuestConfig};
use crate::error::{FatalError, system_error};
use crate::exec::SpillDir;
use crate::files::{Roots, open_dir};
use crate::quota::QuotaMonitor;
use crate::tunnel::Tunnels;
use crate::{clock, confinement};

impl EventLoop {
    /// Handles `Hello`. `confinement` and `output` come from the set-up of a jail.
    pub(super) fn greet(
        &mut self,
        hello: Hello,
        confinement: Option<Confinement>,
        output: Option<OwnedFd>,
    ) -> Result<(), FatalError> {
        if hello.version != PROTOCOL_VERSION {
            // The host reports the mismatch better, because it knows both versions.
            self.welcome(None, EnforcedRules::default(), OpenedRoots::default());
            return Err(FatalError::Version(hello.version));
        }
        if hello.jail.is_some() {
            let message = "`Hello` asks for a jail, but this guest was not started as `conjure-guest jail`";
            return Err(FatalError::Protocol(message.to_owned()));
        }
        let paths = hello
            .roots
            .iter()
            .map(|root| &root.path)
            .chain([&hello.workdir])
            .chain(&hello.spill_dir)
            .chain(&hello.content_root)
            .chain(hello.quota.iter().map(|quota| &quota.path))
            .chain(hello.rules.paths());
        if let Some(path) = paths.into_iter().find(|path| !path.starts_with('/')) {
            return Err(FatalError::Protocol(format!(
                "`Hello` contains the path `{path}`, which is not absolute"
            )));
        }
        if let Some(spec) = hello.proxy {
            self.tunnels =
                Tunnels::listen(spec).map_err(|errno| FatalError::Proxy { port: spec.port, errno })?;
        }
        let roots = Roots::open(&hello.roots, &hello.workdir);
        let found = OpenedRoots { boot: boot_id(), dirs: roots.ids() };
        let spill_total = hello.spill_total.unwrap_or(SPILL_TOTAL);
        let spill = hello.spill_dir.as_deref().map(|path| match output {
            Some(dir) => SpillDir::from_handle(dir, path, spill_total),
            None => SpillDir::open(path, spill_total),
        });
        let content_root = hello.content_root.as_deref().map(open_dir).transpose();
        let content_root = content_root.map_err(system_error("open the directory for content"))?;
        let monitor = match hello.quota.clone() {
            Some(quota) => Some(
                QuotaMonitor::new(quota, clock::now())
                    .map_err(system_error("open the directory with a quota"))?,
            ),
            None => None,
        };
        // No process was started yet, so all processes will inherit the confinement.
        let (rules, command_confinement) = confinement::apply(&hello);
        self.config = Some(GuestConfig {
            roots,
            workdir: hello.workdir,
            env: hello.env,
            spill,
            limits: hello.rules.limits,
            command_confinement,
            quota: monitor,
            content_root,
        });
        self.welcome(confinement, rules, found);
        Ok(())
    }

    fn welcome(&mut self, confinement: Option<Confinement>, rules: EnforcedRules, roots: OpenedRoots) {
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        let welcome = Welcome { version: PROTOCOL_VERSION, pid, confinement, rules, roots };
        self.frames.json(FrameKind::Welcome, 0, &welcome);
    }
}

/// Returns the kernel's boot id.
fn boot_id() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(boot.trim().to_owned())
}
