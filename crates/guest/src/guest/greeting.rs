//! The greeting: what the host says once, and what the guest answers. From then on it is closed in.

use std::os::fd::OwnedFd;

use conjure_guest::protocol::{
    Confinement, FrameKind, Hello, PROTOCOL_VERSION, RootsFound, RulesInForce, SPILL_TOTAL, Welcome,
};

use super::{Fatal, Guest, Session, system};
use crate::exec::SpillFolder;
use crate::files::{Roots, open_folder};
use crate::quota::Watch;
use crate::tunnel::Tunnels;
use crate::{clock, fortress};

impl Guest {
    /// Takes the greeting. `confinement` and `output` are what a jail's set-up made.
    pub(super) fn greet(
        &mut self,
        hello: Hello,
        confinement: Option<Confinement>,
        output: Option<OwnedFd>,
    ) -> Result<(), Fatal> {
        if hello.version != PROTOCOL_VERSION {
            // The host says it better when it knows both versions.
            self.welcome(None, RulesInForce::default(), RootsFound::default());
            return Err(Fatal::Version(hello.version));
        }
        if hello.jail.is_some() {
            let message =
                "the greeting asks for a jail, and this guest was not started as `conjure-guest jail`";
            return Err(Fatal::Protocol(message.to_owned()));
        }
        let paths = hello
            .roots
            .iter()
            .map(|root| &root.path)
            .chain([&hello.workdir])
            .chain(&hello.spill_dir)
            .chain(&hello.shelves)
            .chain(hello.quota.iter().map(|quota| &quota.path))
            .chain(hello.rules.paths());
        if let Some(path) = paths.into_iter().find(|path| !path.starts_with('/')) {
            return Err(Fatal::Protocol(format!("the greeting names `{path}`, which is not absolute")));
        }
        if let Some(spec) = hello.proxy {
            self.tunnels = Tunnels::listen(spec).map_err(|errno| Fatal::Proxy { port: spec.port, errno })?;
        }
        let roots = Roots::open(&hello.roots, &hello.workdir);
        let found = RootsFound { boot: boot(), folders: roots.numbers() };
        let spill_total = hello.spill_total.unwrap_or(SPILL_TOTAL);
        let spill = hello.spill_dir.as_deref().map(|path| match output {
            Some(folder) => SpillFolder::of(folder, path, spill_total),
            None => SpillFolder::open(path, spill_total),
        });
        let shelves = hello.shelves.as_deref().map(open_folder).transpose();
        let shelves = shelves.map_err(system("open the folder of the shelves"))?;
        let watch = match hello.quota.clone() {
            Some(quota) => {
                Some(Watch::new(quota, clock::now()).map_err(system("open the folder with a quota"))?)
            }
            None => None,
        };
        // Nothing was started yet: all that will be is closed in as well.
        let (rules, walls) = fortress::close(&hello);
        self.session = Some(Session {
            roots,
            workdir: hello.workdir,
            env: hello.env,
            spill,
            limits: hello.rules.limits,
            walls,
            watch,
            shelves,
        });
        self.welcome(confinement, rules, found);
        Ok(())
    }

    fn welcome(&mut self, confinement: Option<Confinement>, rules: RulesInForce, roots: RootsFound) {
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        let welcome = Welcome { version: PROTOCOL_VERSION, pid, confinement, rules, roots };
        self.outbox.json(FrameKind::Welcome, 0, &welcome);
    }
}

/// The number of the kernel's start.
fn boot() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(boot.trim().to_owned())
}
