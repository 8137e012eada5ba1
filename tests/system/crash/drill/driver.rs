//! The driver: it starts hosts, reads their log lines, kills them at random moments, and checks what is left.
//!
//! One host is killed and started again and again. At times there is a second one on the same data directory, which lives
//! through some of its deaths, and is killed, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use conjure::journal::SessionKey;
use conjure::{Clock as _, SystemClock};

use super::Result;
use super::checks::dirs::Quiet;
use super::checks::findings::Findings;
use super::checks::whole_record::WholeRecord;
use super::checks::{dirs, leftovers};
use super::fixture::{self, Sandboxes};
use super::host::HostOptions;
use super::log_lines::{LogLine, write_key};
use super::process::{Host, Identity};
use super::random::Random;
use super::visitor::Task;

/// How long anything may take before the drill gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// A host that is not ready is killed within this time, in milliseconds, on a machine with nothing else to do.
const START: u64 = 25;

/// The same for a host that works.
const WORK: u64 = 250;

/// The parameters of a drill.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kills: u64,
    pub(crate) seed: u64,
    /// How many sessions of each tenant are busy at a time.
    pub(crate) sessions: usize,
    pub(crate) sandboxes: Sandboxes,
    /// How many times longer than usual hosts live.
    pub(crate) patience: u64,
}

/// Kills hosts as often as is planned, has the last one settle everything, and tells what was found.
pub(crate) fn drill(plan: &Plan) -> Result<Findings> {
    leftovers::adopt_orphans()?;
    let dir = tempfile::tempdir()?;
    fixture::write_files(dir.path())?;
    let mut drill = Drill {
        plan: plan.clone(),
        random: Random::new(plan.seed),
        record: WholeRecord::new(dir.path())?,
        dir,
        incarnation: 0,
        free: BTreeMap::new(),
        doomed: BTreeMap::new(),
        companion: None,
        dead: Vec::new(),
        findings: Findings::default(),
    };
    drill.run().map_err(|error| drill.failed(&*error))?;
    Ok(drill.findings)
}

struct Drill {
    plan: Plan,
    dir: tempfile::TempDir,
    random: Random,
    incarnation: u64,
    record: WholeRecord,
    /// The sessions that continue, and that no host has now.
    free: BTreeMap<String, SessionKey>,
    /// Those whose deletion had begun.
    doomed: BTreeMap<String, SessionKey>,
    companion: Option<Host>,
    /// The hosts that were killed.
    dead: Vec<Identity>,
    findings: Findings,
}

impl Drill {
    fn failed(&self, error: &(dyn std::error::Error + Send + Sync)) -> String {
        format!("seed {}, host {}: {error}\n{}", self.plan.seed, self.incarnation, self.findings)
    }

    fn run(&mut self) -> Result<()> {
        while self.findings.tally.kills < self.plan.kills && self.findings.is_clean() {
            match (&self.companion, self.random.below(4)) {
                (None, 0) => self.fetch_companion()?,
                (Some(_), 0) => self.kill_companion()?,
                _ => self.kill_one()?,
            }
        }
        if self.companion.is_some() {
            self.kill_companion()?;
        }
        self.stop_one(Task::Work)?;
        self.stop_one(Task::Settle)?;
        self.record.check_settled(&mut self.findings)
    }

    /// Starts a host that continues with these sessions, and has what is doomed deleted.
    fn start(&mut self, task: Task, known: BTreeMap<String, SessionKey>) -> Result<Host> {
        self.incarnation += 1;
        if self.random.below(8) == 0 {
            fixture::write_skill(self.dir.path(), self.incarnation)?;
        }
        Host::start(&HostOptions {
            dir: self.dir.path().to_owned(),
            sandboxes: self.plan.sandboxes.clone(),
            seed: self.plan.seed,
            incarnation: self.incarnation,
            task,
            sessions: self.plan.sessions,
            known: known.into_values().collect(),
            doomed: std::mem::take(&mut self.doomed).into_values().collect(),
        })
    }

    /// A second host, with some of the sessions.
    fn fetch_companion(&mut self) -> Result<()> {
        let mut known = BTreeMap::new();
        for (name, key) in std::mem::take(&mut self.free) {
            let theirs = if self.random.below(3) == 0 { &mut known } else { &mut self.free };
            theirs.insert(name, key);
        }
        let mut host = self.start(Task::Work, known)?;
        self.start_visitors(&mut host)?;
        self.companion = Some(host);
        Ok(())
    }

    fn kill_companion(&mut self) -> Result<()> {
        let Some(mut host) = self.companion.take() else { return Ok(()) };
        self.findings.tally.kills += 1;
        self.findings.tally.companions += 1;
        let moment = self.random_delay(WORK);
        host.listen(SystemClock.deadline(moment), |_| false)?;
        host.kill()?;
        self.dead.push(host.identity);
        self.compare(&host)
    }

    fn kill_one(&mut self) -> Result<()> {
        let known = std::mem::take(&mut self.free);
        let mut host = self.start(Task::Work, known)?;
        self.findings.tally.kills += 1;
        if self.random.below(6) == 0 {
            let moment = self.random_delay(START);
            if !host.listen(SystemClock.deadline(moment), |word| *word == LogLine::Ready)? {
                self.findings.tally.early_kills += 1;
            }
        } else {
            self.start_visitors(&mut host)?;
            let moment = self.random_delay(WORK);
            host.listen(SystemClock.deadline(moment), |_| false)?;
        }
        host.kill()?;
        self.dead.push(host.identity);
        self.compare(&host)
    }

    /// Within this many milliseconds, with jails.
    fn random_delay(&mut self, within: u64) -> Duration {
        let within = within * self.plan.sandboxes.slowness() * self.plan.patience;
        Duration::from_micros(self.random.below(within * 1000))
    }

    /// A host that is stopped in order, while it works or when it has settled everything.
    fn stop_one(&mut self, task: Task) -> Result<()> {
        let known = std::mem::take(&mut self.free);
        let mut host = self.start(task, known)?;
        self.start_visitors(&mut host)?;
        let patience = if task == Task::Settle { PATIENCE } else { self.random_delay(WORK) };
        let is_settled = host.listen(SystemClock.deadline(patience), |word| *word == LogLine::Settled)?;
        if task == Task::Settle && !is_settled {
            self.findings.faults.push("the sessions were not settled in time".to_owned());
        }
        host.send_start()?;
        if !host.listen(SystemClock.deadline(PATIENCE), |word| *word == LogLine::Stopped)? {
            self.findings.faults.push("the host did not stop in time".to_owned());
        }
        host.end()?;
        self.dead.push(host.identity);
        self.compare(&host)?;
        if task == Task::Settle {
            self.record.check_everything(&mut self.findings)?;
        }
        self.record.check_leases(&self.free, &mut self.findings)?;
        // No sweep has run since.
        self.look(&[], Quiet::AllStopped)
    }

    /// Waits until the host is ready, looks at what those before it left, and has it work.
    fn start_visitors(&mut self, host: &mut Host) -> Result<()> {
        if !host.listen(SystemClock.deadline(PATIENCE), |word| *word == LogLine::Ready)? {
            return Err(format!("the host was never ready; it said {:?}", host.words).into());
        }
        let mut living = vec![host.identity];
        living.extend(self.companion.as_ref().map(|companion| companion.identity));
        let quiet = if self.companion.is_some() { Quiet::NotAll } else { Quiet::AllWait };
        self.look(&living, quiet)?;
        host.send_start()
    }

    fn look(&mut self, living: &[Identity], quiet: Quiet) -> Result<()> {
        let (dir, findings) = (self.dir.path(), &mut self.findings);
        leftovers::check(dir, &self.plan.sandboxes, &self.dead, living, findings)?;
        dirs::check(dir, living, quiet, findings)?;
        if quiet != Quiet::NotAll {
            self.record.check_dirs(findings)?;
        }
        Ok(())
    }

    /// Takes in what a host said before it ended.
    fn compare(&mut self, host: &Host) -> Result<()> {
        let keys = |names: &BTreeSet<String>| -> Result<BTreeMap<String, SessionKey>> {
            names.iter().map(|name| Ok((name.clone(), super::log_lines::read_key(name)?))).collect()
        };
        let (mut had, mut doomed, mut deleted) = (keys(&host.known)?, keys(&host.doomed)?, BTreeMap::new());
        for word in &host.words {
            match word {
                LogLine::Opened(key) => drop(had.insert(write_key(key), key.clone())),
                LogLine::Deleting(key) => {
                    had.remove(&write_key(key));
                    doomed.insert(write_key(key), key.clone());
                }
                LogLine::Deleted(key) => {
                    doomed.remove(&write_key(key));
                    deleted.insert(write_key(key), key.clone());
                }
                LogLine::Invalid(what) => self.findings.invalid.push(what.clone()),
                LogLine::Exposed(what) => self.findings.exposed.push(what.clone()),
                LogLine::Fault(what) => self.findings.faults.push(what.clone()),
                _ => {}
            }
        }
        self.findings.tally.cut_deletions += doomed.len() as u64;
        self.record.check(&had, &doomed, &deleted, &host.words, &mut self.findings)?;
        for word in &host.words {
            if let LogLine::Retired(key) = word {
                had.remove(&write_key(key));
            }
        }
        self.free.append(&mut had);
        self.doomed.append(&mut doomed);
        Ok(())
    }
}
