//! A sandbox in a temporary workspace, and a look at the machine's processes.

#![expect(dead_code, reason = "each test binary uses a part of it")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "it is a part of tests, which fail by panic")]

#[cfg(feature = "docker")]
pub(crate) mod image;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandOutcome, ExecutionContext, Executor, Local, Sandbox, SandboxError,
};
use tempfile::TempDir;

/// A sandbox, its workspace, and a name that its processes bear.
pub(crate) struct Bed {
    pub(crate) sandbox: Sandbox,
    pub(crate) workspace: TempDir,
}

pub(crate) async fn bed() -> Bed {
    bed_with(|_| {}).await
}

pub(crate) async fn bed_with(change: impl FnOnce(&mut ExecutionContext)) -> Bed {
    let workspace = tempfile::tempdir().unwrap();
    let mut context = ExecutionContext::new(workspace.path());
    change(&mut context);
    let local = Local::without_isolation([
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("ANTHROPIC_API_KEY".into(), "not for commands".into()),
    ]);
    let clock = Arc::new(SystemClock);
    let sandbox = Sandbox::open(&local, &context, clock, soon(30)).await.unwrap();
    Bed { sandbox, workspace }
}

/// Whether this process is root, whom a jail serves in another way.
#[cfg(feature = "jail")]
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The variables of a host that has something to hide, and an interpreter that its users must not see.
#[cfg(feature = "jail")]
pub(crate) fn jail() -> conjure_sandbox::Jail {
    conjure_sandbox::Jail::new([
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("TZ".into(), "Asia/Tokyo".into()),
        ("ANTHROPIC_API_KEY".into(), "not for commands".into()),
    ])
}

#[cfg(feature = "jail")]
pub(crate) async fn jail_bed() -> Bed {
    jail_bed_with(|_| {}).await
}

#[cfg(feature = "jail")]
pub(crate) async fn jail_bed_with(change: impl FnOnce(&mut ExecutionContext)) -> Bed {
    let workspace = tempfile::tempdir().unwrap();
    let mut context = ExecutionContext::new(workspace.path());
    change(&mut context);
    let sandbox = Sandbox::open(&jail(), &context, Arc::new(SystemClock), soon(30)).await.unwrap();
    Bed { sandbox, workspace }
}

pub(crate) fn soon(seconds: u64) -> conjure_base::Deadline {
    SystemClock.deadline(Duration::from_secs(seconds))
}

/// A call that has time enough for a slow machine: none of the tests waits for it.
pub(crate) fn options() -> CallOptions {
    CallOptions::until(soon(60))
}

impl Bed {
    /// A text that no other test's processes have in their arguments.
    pub(crate) fn mark(&self) -> &str {
        self.workspace.path().to_str().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.workspace.path().join(name)
    }

    pub(crate) async fn bash(&self, script: &str) -> Result<CommandOutcome, SandboxError> {
        self.sandbox.run(Command::bash(script), options()).await
    }

    /// Shell text that becomes a process which lives long and bears the mark.
    pub(crate) fn sleeper(&self) -> String {
        format!("exec -a {} sleep 1000", self.mark())
    }

    pub(crate) async fn until_nothing_bears_the_mark(&self) {
        until("its processes are gone", || bearing(self.mark()).is_empty()).await;
    }
}

pub(crate) fn text(outcome: &CommandOutcome) -> String {
    assert_eq!(outcome.stdout.omitted(), 0);
    String::from_utf8([outcome.stdout.head.clone(), outcome.stdout.tail.clone()].concat()).unwrap()
}

/// Looks again until it is so; fails when it is not so for long.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = soon(20);
    while !is_so() {
        assert!(!SystemClock.remaining(deadline).is_zero(), "waited in vain until {what}");
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
    }
}

/// A process of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) state: char,
    pub(crate) arguments: String,
}

pub(crate) fn processes() -> Vec<Process> {
    let read = |folder: &Path| -> Option<Process> {
        let pid = folder.file_name()?.to_str()?.parse().ok()?;
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        // The name stands in parentheses and may hold anything.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let arguments = fs::read(folder.join("cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        Some(Process { pid, parent, state, arguments })
    };
    fs::read_dir("/proc").unwrap().filter_map(|entry| read(&entry.ok()?.path())).collect()
}

/// The living processes whose arguments hold this text.
pub(crate) fn bearing(mark: &str) -> Vec<Process> {
    processes()
        .into_iter()
        .filter(|process| process.state != 'Z' && process.arguments.contains(mark))
        .collect()
}

/// The guest above this process: the child of this test's process.
pub(crate) fn guest_above(pid: i32) -> i32 {
    let all = processes();
    let own = i32::try_from(std::process::id()).unwrap();
    let mut at = pid;
    loop {
        let parent = all.iter().find(|process| process.pid == at).expect("it has ancestors").parent;
        if parent == own {
            return at;
        }
        at = parent;
    }
}

pub(crate) fn kill_nine(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// The most memory that this process ever had resident, in bytes.
pub(crate) fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}
