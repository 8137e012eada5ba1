//! [`OwnerIdentity`]: the labels of a container that identify the process that owns it.
//!
//! A process is identified by its id, its start time and its pid namespace, in one boot of one machine. A sweep removes
//! a container whose process is certainly dead. Where that is unknown (another machine, another namespace), the lease
//! decides. A process that runs in a container gets another namespace at each start. So a container also names its
//! sandbox directory, whose lock the kernel releases when the process dies. A sweep with the same data directory, on
//! the same machine, decides by that lock.

use std::collections::{BTreeMap, HashMap};
use std::io;

use conjure_base::Digest;

use crate::cgroup::OwnerProcess;
use crate::host_dirs::{SandboxDir, SandboxDirs, SandboxDirsRef};
use crate::settings::context::ExecutionContext;

use crate::docker::options::DockerOptions;

/// The label of all containers of Conjure.
pub(crate) const MANAGED: &str = "conjure.managed-by=conjure";

const PREFIX: &str = "conjure.";
const MANAGED_BY: &str = "conjure.managed-by";
const INSTANCE: &str = "conjure.instance";
const OWNER: &str = "conjure.owner";
const BOOT: &str = "conjure.boot";
const CREATED: &str = "conjure.created";
const LEASE: &str = "conjure.lease";
const SPEC: &str = "conjure.spec";
const SANDBOX_DIR: &str = "conjure.place";
const TENANT: &str = "conjure.tenant";
const SESSION: &str = "conjure.session";

/// The identity of a process in the labels of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerIdentity {
    /// The unique name of the connector in the process.
    instance: String,
    owner: String,
    boot: String,
}

/// What a sweep does with a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SweepDecision {
    /// Its process is alive, or may be.
    Keep,
    /// It belongs to this connector.
    Own,
    /// Its process is dead.
    Orphaned,
}

impl OwnerIdentity {
    /// This process, and a connector in it.
    pub(crate) fn current(instance: &str) -> io::Result<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { instance: instance.to_owned(), owner: OwnerProcess::current()?.name(0), boot })
    }

    /// The labels of a container for this context, created at `now` (seconds since the epoch) with the spec digest
    /// `spec` and the sandbox directory `dir`.
    pub(crate) fn labels(
        &self,
        options: &DockerOptions,
        context: &ExecutionContext,
        dir: Option<String>,
        spec: &Digest,
        now: u64,
    ) -> HashMap<String, String> {
        let given = options.labels.iter().filter(|(name, _)| !name.starts_with(PREFIX));
        let mut labels: HashMap<String, String> =
            given.map(|(name, value)| (name.clone(), value.clone())).collect();
        let lease = now.saturating_add(options.lease.as_secs());
        let text = |id: Option<String>| id.unwrap_or_default();
        let current = [
            (MANAGED_BY, "conjure".to_owned()),
            (INSTANCE, self.instance.clone()),
            (OWNER, self.owner.clone()),
            (BOOT, self.boot.clone()),
            (CREATED, now.to_string()),
            (LEASE, lease.to_string()),
            (SPEC, spec.to_hex()),
            // All labels are always set: the container would inherit a missing label from its image.
            (SANDBOX_DIR, text(dir)),
            (TENANT, text(context.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()))),
            (SESSION, text(context.session.map(|session| session.to_string()))),
        ];
        labels.extend(current.map(|(name, value)| (name.to_owned(), value)));
        labels
    }

    /// Decides about a container by its name and labels. Labels alone prove nothing: every container has those of its
    /// image, and the image may have been made from a sandbox.
    ///
    /// Checks locks in the `known` directories, which blocks.
    pub(crate) fn sweep_decision(
        &self,
        name: &str,
        labels: &HashMap<String, String>,
        dirs: &[SandboxDirsRef],
        now: u64,
    ) -> SweepDecision {
        let label = |name: &str| labels.get(name).map(String::as_str);
        let is_ours = label(INSTANCE).is_some_and(|instance| is_name_of(instance, name));
        if label(MANAGED_BY) != Some("conjure") || !is_ours {
            return SweepDecision::Keep;
        }
        if label(INSTANCE) == Some(&self.instance) {
            return SweepDecision::Own;
        }
        let is_here = label(BOOT) == Some(&self.boot);
        let owner = label(OWNER).and_then(OwnerProcess::parse).filter(|_| is_here);
        let is_expired =
            label(LEASE).and_then(|lease| lease.parse().ok()).is_some_and(|lease: u64| lease < now);
        let is_abandoned = label(SANDBOX_DIR).filter(|_| is_here).and_then(|label| is_abandoned(label, dirs));
        // A living process on this machine keeps its containers, however old they are.
        let is_left = match (owner, is_abandoned) {
            (Some(owner), _) if owner.is_alive() => false,
            (Some(owner), _) if owner.is_dead() => true,
            (_, Some(is_abandoned)) => is_abandoned,
            _ => is_expired,
        };
        if is_left { SweepDecision::Orphaned } else { SweepDecision::Keep }
    }
}

/// The label value of a sandbox directory.
pub(crate) fn dir_label(dirs: &SandboxDirs, dir: &SandboxDir) -> Option<String> {
    Some(format!("{}/{}", dirs.identity()?, dir.name()))
}

/// Whether the process that locked a labelled sandbox directory is dead, where that is known.
fn is_abandoned(label: &str, dirs: &[SandboxDirsRef]) -> Option<bool> {
    let (identity, name) = label.split_once('/')?;
    dirs.iter().find(|dirs| dirs.has_identity(identity))?.is_abandoned(name)
}

/// The name of a connector's container with this number.
pub(crate) fn name_of(instance: &str, number: u64) -> String {
    format!("conjure-{instance}-{number}")
}

fn is_name_of(instance: &str, name: &str) -> bool {
    let number =
        name.strip_prefix("conjure-").and_then(|rest| rest.strip_prefix(instance)?.strip_prefix('-'));
    number.and_then(|number| number.parse().ok()).is_some_and(|number| name_of(instance, number) == name)
}

/// The digest of a container's settings, without its owner and without secrets.
pub(crate) fn spec_digest(parts: &BTreeMap<&str, String>) -> Digest {
    let text: Vec<String> = parts.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    Digest::of_bytes(text.concat().as_bytes())
}

#[cfg(test)]
mod tests {
    use conjure_base::{SessionId, TenantId};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn host(instance: &str) -> OwnerIdentity {
        OwnerIdentity::current(instance).unwrap()
    }

    fn sweep_decision(me: &OwnerIdentity, labels: &HashMap<String, String>, now: u64) -> SweepDecision {
        me.sweep_decision(&name_of(&labels[INSTANCE], 7), labels, &[], now)
    }

    fn labels(host: &OwnerIdentity) -> HashMap<String, String> {
        host.labels(
            &DockerOptions::default(),
            &ExecutionContext::new("/x"),
            None,
            &Digest::of_bytes(b""),
            NOW,
        )
    }

    #[test]
    fn whose_host_is_dead_is_left_behind_and_whose_may_live_is_not() {
        let me = host("me");
        assert_eq!(sweep_decision(&me, &labels(&me), NOW), SweepDecision::Own);
        assert_eq!(sweep_decision(&me, &labels(&host("sibling")), NOW + 100_000_000), SweepDecision::Keep);
        // A process with my number that was started at another time, so it is dead.
        let mut dead = host("dead");
        let (rest, started) = dead.owner.trim_end_matches("-0").rsplit_once('-').unwrap();
        dead.owner = format!("{rest}-{}-0", started.parse::<u64>().unwrap() + 1);
        assert_eq!(sweep_decision(&me, &labels(&dead), NOW), SweepDecision::Orphaned);
        // Of another boot or another machine, nobody knows; until its lease is over.
        let remote = OwnerIdentity { boot: "another".to_owned(), ..dead };
        assert_eq!(sweep_decision(&me, &labels(&remote), NOW), SweepDecision::Keep);
        let later = NOW + DockerOptions::default().lease.as_secs() + 1;
        assert_eq!(sweep_decision(&me, &labels(&remote), later), SweepDecision::Orphaned);
        let own_boot_only = OwnerIdentity { owner: "nonsense".to_owned(), ..host("odd") };
        assert_eq!(sweep_decision(&me, &labels(&own_boot_only), NOW), SweepDecision::Keep);
    }

    #[test]
    fn where_the_host_was_in_another_namespace_its_lock_tells() {
        let me = host("me");
        let data = tempfile::tempdir().unwrap();
        let sandbox_dirs = SandboxDirs::open(data.path()).unwrap();
        let sandbox_dir = sandbox_dirs.create().unwrap();
        let mut host = host("other");
        host.owner = OwnerProcess::parse("conjure-1-1-1-0").unwrap().name(0);
        let mut labels = labels(&host);
        let bears = dir_label(&sandbox_dirs, &sandbox_dir).unwrap();
        labels.insert(SANDBOX_DIR.to_owned(), bears.clone());
        let dirs = [sandbox_dirs.downgrade().unwrap()];
        let later = NOW + DockerOptions::default().lease.as_secs() + 1;
        let sweep_decision = |labels: &HashMap<String, String>, dirs: &[SandboxDirsRef], now| {
            me.sweep_decision("conjure-other-7", labels, dirs, now)
        };
        // It lives, however long.
        assert_eq!(sweep_decision(&labels, &dirs, later), SweepDecision::Keep);
        assert_eq!(
            sweep_decision(&labels, &[], later),
            SweepDecision::Orphaned,
            "nobody knows the directory"
        );
        // Of another boot or machine a directory says nothing, nor does one that has no such name.
        let remote = HashMap::from([(BOOT.to_owned(), "another".to_owned())]);
        let remote: HashMap<_, _> = labels.clone().into_iter().chain(remote).collect();
        let (_, name) = bears.split_once('/').unwrap();
        let strange = [bears.replace(name, "../x"), bears.replace(name, ""), format!("1-2-3/{name}")];
        let strange = strange.map(|label| {
            let mut strange = labels.clone();
            strange.insert(SANDBOX_DIR.to_owned(), label);
            strange
        });
        drop(sandbox_dir);
        assert_eq!(sweep_decision(&labels, &dirs, NOW), SweepDecision::Orphaned);
        for labels in strange.iter().chain([&remote]) {
            assert_eq!(sweep_decision(labels, &dirs, NOW), SweepDecision::Keep);
        }
        drop(sandbox_dirs);
        assert!(dirs[0].is_dropped());
        assert_eq!(sweep_decision(&labels, &dirs, NOW), SweepDecision::Keep);
    }

    #[test]
    fn what_is_not_ours_is_kept_whatever_it_bears() {
        let me = host("me");
        let mut foreign = labels(&me);
        foreign.remove(MANAGED_BY);
        assert_eq!(sweep_decision(&me, &foreign, u64::MAX), SweepDecision::Keep);
        assert_eq!(me.sweep_decision("conjure-me-1", &HashMap::new(), &[], u64::MAX), SweepDecision::Keep);
        // One that runs an image which somebody made of a sandbox: all labels are there, and its host is dead.
        let remote = OwnerIdentity { boot: "another".to_owned(), ..host("other") };
        let inherited = labels(&remote);
        for name in [
            "happy_hopper",
            "conjure-other",
            "conjure-other-",
            "conjure-other-x",
            "conjure-other-+7",
            "x-other-7",
        ] {
            assert_eq!(me.sweep_decision(name, &inherited, &[], u64::MAX), SweepDecision::Keep, "{name}");
        }
        assert_eq!(me.sweep_decision("conjure-other-7", &inherited, &[], u64::MAX), SweepDecision::Orphaned);
        // And one whose image has labels of somebody's invention.
        for lease in [None, Some("soon")] {
            let mut strange = inherited.clone();
            strange.remove(LEASE);
            strange.extend(lease.map(|lease| (LEASE.to_owned(), lease.to_owned())));
            assert_eq!(me.sweep_decision("conjure-other-7", &strange, &[], u64::MAX), SweepDecision::Keep);
        }
    }

    #[test]
    fn a_container_says_whose_it_is_and_our_own_labels_cannot_be_set() {
        let options = DockerOptions {
            labels: BTreeMap::from([
                ("team".to_owned(), "blue".to_owned()),
                (OWNER.to_owned(), "me, honestly".to_owned()),
            ]),
            ..DockerOptions::default()
        };
        let mut context = ExecutionContext::new("/x");
        let labels = |context: &ExecutionContext| {
            host("me").labels(&options, context, None, &Digest::of_bytes(b""), NOW)
        };
        assert_eq!(labels(&context)["team"], "blue");
        assert_ne!(labels(&context)[OWNER], "me, honestly");
        assert_eq!((labels(&context)[TENANT].as_str(), labels(&context)[SESSION].as_str()), ("", ""));
        context.tenant = Some(TenantId::new("acme").unwrap());
        context.session = Some(SessionId::from_bits(7));
        assert_eq!(labels(&context)[TENANT], "acme");
        assert_eq!(labels(&context)[SESSION], SessionId::from_bits(7).to_string());
    }
}
