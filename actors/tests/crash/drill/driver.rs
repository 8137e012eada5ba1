//! Whoever kills the host: starts it, listens to what it says, kills it at a random moment, and looks at what is there.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
use conjure_journal::SessionKey;

use super::findings::Findings;
use super::host::Orders;
use super::random::Random;
use super::visitor::Task;
use super::whole_record::{Extent, WholeRecord};
use super::words::{Word, write_key};
use super::{Result, leftovers};

/// How long anything may take before the drill gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host that is not ready is killed within this time, in milliseconds.
const START: u64 = 25;

/// A host that works is killed within this time, in milliseconds.
const WORK: u64 = 250;

/// What is to be done.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kills: u64,
    pub(crate) seed: u64,
    /// How many sessions of each tenant are busy at a time.
    pub(crate) sessions: usize,
}

/// Kills the host as often as is planned, has the last one settle everything, and tells what was found.
pub(crate) fn drill(plan: &Plan) -> Result<Findings> {
    leftovers::adopt_orphans()?;
    let folder = tempfile::tempdir()?;
    let mut drill = Drill {
        plan: plan.clone(),
        random: Random::new(plan.seed),
        record: WholeRecord::new(folder.path())?,
        folder,
        incarnation: 0,
        busy: BTreeMap::new(),
        dead: Vec::new(),
        findings: Findings::default(),
    };
    while drill.findings.tally.kills < plan.kills {
        drill.kill_one().map_err(|error| drill.failed(&error))?;
        if !drill.findings.is_clean() {
            break;
        }
    }
    drill.stop_one(Task::Work).map_err(|error| drill.failed(&error))?;
    drill.stop_one(Task::Settle).map_err(|error| drill.failed(&error))?;
    drill.record.check_settled(&mut drill.findings);
    Ok(drill.findings)
}

struct Drill {
    plan: Plan,
    folder: tempfile::TempDir,
    random: Random,
    incarnation: u64,
    record: WholeRecord,
    /// The sessions that go on.
    busy: BTreeMap<String, SessionKey>,
    /// The process numbers of the hosts that were killed.
    dead: Vec<u32>,
    findings: Findings,
}

impl Drill {
    fn failed(&self, error: &(impl std::fmt::Display + ?Sized)) -> String {
        format!("seed {}, host {}: {error}\n{}", self.plan.seed, self.incarnation, self.findings)
    }

    fn start(&mut self, task: Task) -> Result<Host> {
        self.incarnation += 1;
        let orders = Orders {
            folder: self.folder.path().to_owned(),
            seed: self.plan.seed,
            incarnation: self.incarnation,
            task,
            sessions: self.plan.sessions,
            known: self.busy.values().cloned().collect(),
        };
        Host::start(&orders)
    }

    fn kill_one(&mut self) -> Result<()> {
        let mut host = self.start(Task::Work)?;
        self.findings.tally.kills += 1;
        if self.random.below(6) == 0 {
            let moment = Duration::from_micros(self.random.below(START * 1000));
            if !host.listen(SystemClock.deadline(moment), |word| *word == Word::Ready)? {
                self.findings.tally.early_kills += 1;
            }
        } else {
            self.let_loose(&mut host)?;
            let moment = Duration::from_micros(self.random.below(WORK * 1000));
            host.listen(SystemClock.deadline(moment), |_| false)?;
        }
        self.dead.push(host.child.0.id());
        let words = host.kill()?;
        self.compare(&words, Extent::New)
    }

    /// A host that is stopped in order, while it works or when it has settled everything.
    fn stop_one(&mut self, task: Task) -> Result<()> {
        let mut host = self.start(task)?;
        self.let_loose(&mut host)?;
        let is_settled = host.listen(
            SystemClock.deadline(if task == Task::Settle { PATIENCE } else { Duration::from_millis(WORK) }),
            |word| *word == Word::Settled,
        )?;
        if task == Task::Settle && !is_settled {
            self.findings.faults.push("the sessions were not settled in time".to_owned());
        }
        host.tell()?;
        if !host.listen(SystemClock.deadline(PATIENCE), |word| *word == Word::Stopped)? {
            self.findings.faults.push("the host did not stop in time".to_owned());
        }
        let pid = host.child.0.id();
        let words = host.end()?;
        self.dead.push(pid);
        self.compare(&words, if task == Task::Settle { Extent::Everything } else { Extent::New })?;
        // Nobody has swept since.
        leftovers::check(self.folder.path(), &self.dead, None, &mut self.findings)
    }

    /// Waits until the host is ready, looks at what those before it left, and has it work.
    fn let_loose(&mut self, host: &mut Host) -> Result<()> {
        if !host.listen(SystemClock.deadline(PATIENCE), |word| *word == Word::Ready)? {
            return Err(format!("the host was never ready; it said {:?}", host.words).into());
        }
        leftovers::check(self.folder.path(), &self.dead, Some(host.child.0.id()), &mut self.findings)?;
        host.tell()
    }

    fn compare(&mut self, words: &[Word], extent: Extent) -> Result<()> {
        for word in words {
            match word {
                Word::Opened(key) => drop(self.busy.insert(write_key(key), key.clone())),
                Word::Invalid(what) => self.findings.invalid.push(what.clone()),
                Word::Fault(what) => self.findings.faults.push(what.clone()),
                _ => {}
            }
        }
        let busy: Vec<SessionKey> = self.busy.values().cloned().collect();
        self.record.check(&busy, words, extent, &mut self.findings)?;
        for word in words {
            if let Word::Retired(key) = word {
                self.busy.remove(&write_key(key));
            }
        }
        Ok(())
    }
}

/// A host as its parent sees it.
struct Host {
    child: Killed,
    lines: Receiver<String>,
    reader: std::thread::JoinHandle<()>,
    words: Vec<Word>,
}

/// Killed when the drill fails in between.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Host {
    fn start(orders: &Orders) -> Result<Self> {
        let program: PathBuf = std::env::current_exe()?;
        #[expect(clippy::disallowed_methods, reason = "a host in a process of its own is what is killed")]
        let mut command = Command::new(program);
        command.args(orders.arguments()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Killed(command.spawn()?);
        let stdout = child.0.stdout.take().ok_or("the host has no output")?;
        let (sender, lines) = channel();
        let reader = std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            // The last one may be cut.
            while stdout.read_line(&mut line).is_ok_and(|read| read > 0) && line.ends_with('\n') {
                let _ = sender.send(line.trim_end().to_owned());
                line.clear();
            }
        });
        Ok(Self { child, lines, reader, words: Vec::new() })
    }

    /// Listens until it has said this, or the time is up. Whether it has said it.
    fn listen(&mut self, until: Deadline, is_it: impl Fn(&Word) -> bool) -> Result<bool> {
        loop {
            match self.lines.recv_timeout(SystemClock.remaining(until)) {
                Ok(line) => {
                    let word: Word = line.parse()?;
                    let is_over = is_it(&word);
                    self.words.push(word);
                    if is_over {
                        return Ok(true);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("the host ended by itself; it said {:?}", self.words.last()).into());
                }
            }
        }
    }

    /// Has it go on.
    fn tell(&mut self) -> Result<()> {
        let stdin = self.child.0.stdin.as_mut().ok_or("the host has no input")?;
        Ok(stdin.write_all(b"go\n")?)
    }

    /// Kills it; all that it had said.
    fn kill(mut self) -> Result<Vec<Word>> {
        self.child.0.kill()?;
        self.child.0.wait()?;
        self.rest()
    }

    /// Waits for its end; all that it had said.
    fn end(mut self) -> Result<Vec<Word>> {
        let status = self.child.0.wait()?;
        if !status.success() {
            return Err(format!("the host ended with {status}").into());
        }
        self.rest()
    }

    fn rest(mut self) -> Result<Vec<Word>> {
        self.reader.join().map_err(|_| "the reader panicked")?;
        for line in self.lines.try_iter() {
            self.words.push(line.parse()?);
        }
        Ok(self.words)
    }
}
