//! What a container bears so that whoever finds it knows whose it is: labels.
//!
//! A host is a process: its number, its start and its pid namespace, in one boot of one machine. Who finds a container of a
//! host that is dead for certain removes it; where that cannot be known (another machine, another namespace), the lease
//! decides. A host that runs in a container itself is another one in each namespace that it is started in. So a container
//! also names its place, whose lock the kernel lets go of when the host dies: who has the same data folder, on the same
//! machine, is told by that.

use std::collections::{BTreeMap, HashMap};
use std::io;

use conjure_base::Digest;

use crate::cgroup::Owner;
use crate::context::ExecutionContext;
use crate::places::{KnownPlaces, Place, Places};

use super::options::DockerOptions;

/// What all of ours bear.
pub(super) const MANAGED: &str = "conjure.managed-by=conjure";

const PREFIX: &str = "conjure.";
const MANAGED_BY: &str = "conjure.managed-by";
const INSTANCE: &str = "conjure.instance";
const OWNER: &str = "conjure.owner";
const BOOT: &str = "conjure.boot";
const CREATED: &str = "conjure.created";
const LEASE: &str = "conjure.lease";
const SPEC: &str = "conjure.spec";
const PLACE: &str = "conjure.place";
const TENANT: &str = "conjure.tenant";
const SESSION: &str = "conjure.session";

/// A host, as its containers name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// The connector in it, by a name of its own.
    instance: String,
    owner: String,
    boot: String,
}

/// What becomes of a container that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its host lives, or may live.
    Kept,
    /// It is this connector's own.
    Own,
    /// Its host is dead.
    LeftBehind,
}

impl Host {
    /// This process, and a connector in it.
    pub(super) fn own(instance: &str) -> io::Result<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { instance: instance.to_owned(), owner: Owner::own()?.name(0), boot })
    }

    /// The labels of a container for this context that is made at `now` (seconds since the epoch) of what has the digest
    /// `spec`, and has its folders in `place`.
    pub(super) fn labels(
        &self,
        options: &DockerOptions,
        context: &ExecutionContext,
        place: Option<String>,
        spec: &Digest,
        now: u64,
    ) -> HashMap<String, String> {
        let given = options.labels.iter().filter(|(name, _)| !name.starts_with(PREFIX));
        let mut labels: HashMap<String, String> =
            given.map(|(name, value)| (name.clone(), value.clone())).collect();
        let lease = now.saturating_add(options.lease.as_secs());
        let text = |id: Option<String>| id.unwrap_or_default();
        let own = [
            (MANAGED_BY, "conjure".to_owned()),
            (INSTANCE, self.instance.clone()),
            (OWNER, self.owner.clone()),
            (BOOT, self.boot.clone()),
            (CREATED, now.to_string()),
            (LEASE, lease.to_string()),
            (SPEC, spec.to_hex()),
            // Always all: one that is missing would be the image's, if that has it.
            (PLACE, text(place)),
            (TENANT, text(context.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()))),
            (SESSION, text(context.session.map(|session| session.to_string()))),
        ];
        labels.extend(own.map(|(name, value)| (name.to_owned(), value)));
        labels
    }

    /// What becomes of a container with this name and these labels. Labels alone say nothing: whatever is run of an image
    /// bears those that the image has, and the image may be one that somebody made of a sandbox.
    ///
    /// Looks at `known` places, and blocks for as long as that takes.
    pub(super) fn fate(
        &self,
        name: &str,
        labels: &HashMap<String, String>,
        known: &[KnownPlaces],
        now: u64,
    ) -> Fate {
        let label = |name: &str| labels.get(name).map(String::as_str);
        let is_ours = label(INSTANCE).is_some_and(|instance| is_name_of(instance, name));
        if label(MANAGED_BY) != Some("conjure") || !is_ours {
            return Fate::Kept;
        }
        if label(INSTANCE) == Some(&self.instance) {
            return Fate::Own;
        }
        let is_here = label(BOOT) == Some(&self.boot);
        let owner = label(OWNER).and_then(Owner::of).filter(|_| is_here);
        let is_expired =
            label(LEASE).and_then(|lease| lease.parse().ok()).is_some_and(|lease: u64| lease < now);
        let is_abandoned = label(PLACE).filter(|_| is_here).and_then(|place| is_abandoned(place, known));
        // One that lives here keeps its containers however old they are.
        let is_left = match (owner, is_abandoned) {
            (Some(owner), _) if owner.is_alive() => false,
            (Some(owner), _) if owner.is_dead() => true,
            (_, Some(is_abandoned)) => is_abandoned,
            _ => is_expired,
        };
        if is_left { Fate::LeftBehind } else { Fate::Kept }
    }
}

/// A place, as its container names it.
pub(super) fn place_of(places: &Places, place: &Place) -> Option<String> {
    Some(format!("{}/{}", places.identity()?, place.name()))
}

/// Whether nobody lives who holds a place that a container names, where that is known.
fn is_abandoned(place: &str, known: &[KnownPlaces]) -> Option<bool> {
    let (identity, name) = place.split_once('/')?;
    known.iter().find(|places| places.are(identity))?.is_abandoned(name)
}

/// The name of a connector's container with this number.
pub(super) fn name_of(instance: &str, number: u64) -> String {
    format!("conjure-{instance}-{number}")
}

fn is_name_of(instance: &str, name: &str) -> bool {
    let number =
        name.strip_prefix("conjure-").and_then(|rest| rest.strip_prefix(instance)?.strip_prefix('-'));
    number.and_then(|number| number.parse().ok()).is_some_and(|number| name_of(instance, number) == name)
}

/// The digest of what a container is made of, but for who makes it and what is a secret.
pub(super) fn spec_digest(parts: &BTreeMap<&str, String>) -> Digest {
    let text: Vec<String> = parts.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    Digest::of(text.concat().as_bytes())
}

#[cfg(test)]
mod tests {
    use conjure_base::{SessionId, TenantId};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn host(instance: &str) -> Host {
        Host::own(instance).unwrap()
    }

    fn fate(me: &Host, labels: &HashMap<String, String>, now: u64) -> Fate {
        me.fate(&name_of(&labels[INSTANCE], 7), labels, &[], now)
    }

    fn labels(host: &Host) -> HashMap<String, String> {
        host.labels(&DockerOptions::default(), &ExecutionContext::new("/x"), None, &Digest::of(b""), NOW)
    }

    #[test]
    fn whose_host_is_dead_is_left_behind_and_whose_may_live_is_not() {
        let me = host("me");
        assert_eq!(fate(&me, &labels(&me), NOW), Fate::Own);
        assert_eq!(fate(&me, &labels(&host("sibling")), NOW + 100_000_000), Fate::Kept);
        // A process with my number that was started at another time, so it is dead.
        let mut dead = host("dead");
        let (rest, started) = dead.owner.trim_end_matches("-0").rsplit_once('-').unwrap();
        dead.owner = format!("{rest}-{}-0", started.parse::<u64>().unwrap() + 1);
        assert_eq!(fate(&me, &labels(&dead), NOW), Fate::LeftBehind);
        // Of another boot or another machine, nobody knows; until its lease is over.
        let elsewhere = Host { boot: "another".to_owned(), ..dead };
        assert_eq!(fate(&me, &labels(&elsewhere), NOW), Fate::Kept);
        let later = NOW + DockerOptions::default().lease.as_secs() + 1;
        assert_eq!(fate(&me, &labels(&elsewhere), later), Fate::LeftBehind);
        let own_boot_only = Host { owner: "nonsense".to_owned(), ..host("odd") };
        assert_eq!(fate(&me, &labels(&own_boot_only), NOW), Fate::Kept);
    }

    #[test]
    fn where_the_host_was_in_another_namespace_its_lock_tells() {
        let me = host("me");
        let data = tempfile::tempdir().unwrap();
        let places = Places::open(data.path()).unwrap();
        let place = places.make().unwrap();
        let mut host = host("other");
        host.owner = Owner::of("conjure-1-1-1-0").unwrap().name(0);
        let mut labels = labels(&host);
        let bears = place_of(&places, &place).unwrap();
        labels.insert(PLACE.to_owned(), bears.clone());
        let known = [places.known().unwrap()];
        let later = NOW + DockerOptions::default().lease.as_secs() + 1;
        let fate = |labels: &HashMap<String, String>, known: &[KnownPlaces], now| {
            me.fate("conjure-other-7", labels, known, now)
        };
        // It lives, however long.
        assert_eq!(fate(&labels, &known, later), Fate::Kept);
        assert_eq!(fate(&labels, &[], later), Fate::LeftBehind, "nobody knows the place");
        // Of another boot or machine a place says nothing, nor does one that has no such name.
        let elsewhere = HashMap::from([(BOOT.to_owned(), "another".to_owned())]);
        let elsewhere: HashMap<_, _> = labels.clone().into_iter().chain(elsewhere).collect();
        let (_, name) = bears.split_once('/').unwrap();
        let strange = [bears.replace(name, "../x"), bears.replace(name, ""), format!("1-2-3/{name}")];
        let strange = strange.map(|place| {
            let mut strange = labels.clone();
            strange.insert(PLACE.to_owned(), place);
            strange
        });
        drop(place);
        assert_eq!(fate(&labels, &known, NOW), Fate::LeftBehind);
        for labels in strange.iter().chain([&elsewhere]) {
            assert_eq!(fate(labels, &known, NOW), Fate::Kept);
        }
        drop(places);
        assert!(known[0].are_gone());
        assert_eq!(fate(&labels, &known, NOW), Fate::Kept);
    }

    #[test]
    fn what_is_not_ours_is_kept_whatever_it_bears() {
        let me = host("me");
        let mut foreign = labels(&me);
        foreign.remove(MANAGED_BY);
        assert_eq!(fate(&me, &foreign, u64::MAX), Fate::Kept);
        assert_eq!(me.fate("conjure-me-1", &HashMap::new(), &[], u64::MAX), Fate::Kept);
        // One that runs an image which somebody made of a sandbox: all labels are there, and its host is dead.
        let elsewhere = Host { boot: "another".to_owned(), ..host("other") };
        let inherited = labels(&elsewhere);
        for name in [
            "happy_hopper",
            "conjure-other",
            "conjure-other-",
            "conjure-other-x",
            "conjure-other-+7",
            "x-other-7",
        ] {
            assert_eq!(me.fate(name, &inherited, &[], u64::MAX), Fate::Kept, "{name}");
        }
        assert_eq!(me.fate("conjure-other-7", &inherited, &[], u64::MAX), Fate::LeftBehind);
        // And one whose image has labels of somebody's invention.
        for lease in [None, Some("soon")] {
            let mut strange = inherited.clone();
            strange.remove(LEASE);
            strange.extend(lease.map(|lease| (LEASE.to_owned(), lease.to_owned())));
            assert_eq!(me.fate("conjure-other-7", &strange, &[], u64::MAX), Fate::Kept);
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
        let labels =
            |context: &ExecutionContext| host("me").labels(&options, context, None, &Digest::of(b""), NOW);
        assert_eq!(labels(&context)["team"], "blue");
        assert_ne!(labels(&context)[OWNER], "me, honestly");
        assert_eq!((labels(&context)[TENANT].as_str(), labels(&context)[SESSION].as_str()), ("", ""));
        context.tenant = Some(TenantId::new("acme").unwrap());
        context.session = Some(SessionId::from_bits(7));
        assert_eq!(labels(&context)[TENANT], "acme");
        assert_eq!(labels(&context)[SESSION], SessionId::from_bits(7).to_string());
    }
}
