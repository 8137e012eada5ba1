//! A sandbox in a workspace of its own.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, CommandOutcome, ExecutionContext, Executor, HostAccess, Limits,
    Sandbox, SandboxError, SandboxErrorKind,
};
use test_support::until;

use super::kind::{Kind, Workspace};
use super::patient_clock::PatientClock;
use super::processes::{Process, bearing};

/// A sandbox, its workspace, and a marker in the arguments of its processes.
pub(crate) struct Fixture {
    pub(crate) sandbox: Sandbox,
    pub(crate) workspace: Workspace,
    has_programs_of_machine: bool,
}

impl Fixture {
    pub(crate) async fn of(kind: &dyn Kind) -> Self {
        Self::with(kind, |_| {}).await
    }

    pub(crate) async fn limited(kind: &dyn Kind, limits: Limits) -> Self {
        Self::with(kind, |context| context.limits = limits).await
    }

    pub(crate) async fn with(kind: &dyn Kind, change: impl FnOnce(&mut ExecutionContext)) -> Self {
        let workspace = kind.workspace();
        let mut context = ExecutionContext::new(workspace.path());
        change(&mut context);
        let sandbox = opened(|| Self::open(kind, &context)).await;
        Self { sandbox, workspace, has_programs_of_machine: kind.has_programs_of_machine() }
    }

    /// A sandbox for this context, or why there is none.
    pub(crate) async fn open(kind: &dyn Kind, context: &ExecutionContext) -> Result<Sandbox, SandboxError> {
        Self::open_by(Arc::new(PatientClock), kind, context).await
    }

    /// The same with a clock that controls the timeouts of the guest.
    pub(crate) async fn open_by(
        clock: Arc<dyn Clock>,
        kind: &dyn Kind,
        context: &ExecutionContext,
    ) -> Result<Sandbox, SandboxError> {
        let connector = kind.connector();
        let sandbox = Sandbox::open(&*connector, context, clock, soon(600)).await?;
        assert_eq!(connector.layout(context).as_ref(), Ok(sandbox.layout()), "it can be reported earlier");
        Ok(sandbox)
    }

    /// A text that no other test's processes have in their arguments.
    pub(crate) fn mark(&self) -> &str {
        self.workspace.path().to_str().unwrap()
    }

    /// Something in the workspace, where the host has it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.workspace.path().join(name)
    }

    /// True if host and sandbox share the workspace directory.
    fn is_shared(&self) -> bool {
        self.sandbox.host_access() == HostAccess::Mounted
    }

    /// Puts a file into the workspace, as the host, where that is its.
    pub(crate) async fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        if self.is_shared() {
            std::fs::write(self.path(name), content).unwrap();
        } else {
            self.sandbox.create_file(name, content.as_ref(), options()).await.unwrap();
        }
    }

    /// The same with a link.
    pub(crate) async fn put_link(&self, target: impl AsRef<Path>, name: &str) {
        let target = target.as_ref().to_str().unwrap();
        if self.is_shared() {
            symlink(target, self.path(name)).unwrap();
        } else {
            output_of(&self.sandbox.run(Command::new(["ln", "-s", target, name]), options()).await.unwrap());
        }
    }

    /// The other way.
    pub(crate) async fn remove(&self, name: &str) {
        if self.is_shared() {
            std::fs::remove_file(self.path(name)).unwrap();
        } else {
            output_of(&self.sandbox.run(Command::new(["rm", name]), options()).await.unwrap());
        }
    }

    /// Waits until a file is in the workspace.
    pub(crate) async fn until_file_exists(&self, name: &str) {
        let deadline = soon(600);
        while self.sandbox.read(name, options()).await.is_err() {
            assert!(!SystemClock.remaining(deadline).is_zero(), "waited in vain for `{name}`");
            SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
        }
    }

    pub(crate) async fn bash(&self, script: &str) -> Result<CommandOutcome, SandboxError> {
        self.sandbox.run(Command::bash(script), options()).await
    }

    pub(crate) async fn python(&self, program: &str) -> String {
        output_of(&self.sandbox.run(Command::new(["python3", "-c", program]), options()).await.unwrap())
    }

    /// True if the sandbox has this program. Prints a note otherwise.
    pub(crate) async fn has(&self, program: &str) -> bool {
        let has = self.bash(&format!("type -P {program}")).await.unwrap().end == CommandEnd::Exited(0);
        if !has {
            let package = match program {
                "node" => "nodejs",
                "script" => "bsdutils",
                other => other,
            };
            self.skip(&format!("there is no `{program}` in the sandbox"), package);
        }
        has
    }

    /// Says that a test needs what this package of the machine's would bring to the sandbox.
    pub(crate) fn skip(&self, reason: &str, package: &str) {
        if self.has_programs_of_machine {
            test_support::skip(reason, &format!("apt-get install {package}"));
        } else {
            test_support::not_applicable(&format!("{reason}, whose image is small"));
        }
    }

    /// A shell command that starts a long-running process with the marker.
    pub(crate) fn sleeper(&self) -> String {
        format!("exec -a {} sleep 1000", self.mark())
    }

    /// Shell text that starts three of them, which leave the session and their parents.
    pub(crate) fn start_background_processes(&self) -> String {
        let sleeper = self.sleeper();
        format!(
            "setsid bash -c '{sleeper}' & (setsid bash -c '({sleeper}) & exit') & nohup bash -c '{sleeper}' & \
             wait; sleep 1000"
        )
    }

    /// How many of them run.
    pub(crate) fn sleepers(&self) -> usize {
        self.all_sleepers().count()
    }

    /// The pid of one of them. Other marked processes may end in the meantime.
    pub(crate) fn sleeper_pid(&self) -> i32 {
        self.all_sleepers().next().expect("one of them runs").pid
    }

    fn all_sleepers(&self) -> impl Iterator<Item = Process> {
        let name = format!("{} 1000", self.mark());
        bearing(self.mark()).into_iter().filter(move |process| process.arguments.trim() == name)
    }

    pub(crate) async fn until_sleeping(&self, count: usize) {
        until("the sleepers run", || self.sleepers() == count).await;
    }

    pub(crate) async fn until_no_marked_process(&self) {
        until("its processes are gone", || bearing(self.mark()).is_empty()).await;
    }
}

pub(crate) fn soon(seconds: u64) -> Deadline {
    SystemClock.deadline(Duration::from_secs(seconds))
}

/// A sandbox, of an engine that may have too much to do at first to say what it is.
pub(crate) async fn opened<F>(open: impl Fn() -> F) -> Sandbox
where
    F: Future<Output = Result<Sandbox, SandboxError>>,
{
    let deadline = soon(600);
    loop {
        match open().await {
            Err(error)
                if error.kind() == SandboxErrorKind::EngineUnavailable
                    && !SystemClock.remaining(deadline).is_zero() =>
            {
                SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(100))).await;
            }
            opened => return opened.unwrap(),
        }
    }
}

/// A call that has time enough for a slow machine: none of the tests waits for it.
pub(crate) fn options() -> CallOptions {
    CallOptions::until(soon(600))
}

pub(crate) fn text(outcome: &CommandOutcome) -> String {
    assert_eq!(outcome.stdout.omitted(), 0);
    String::from_utf8([outcome.stdout.head.clone(), outcome.stdout.tail.clone()].concat()).unwrap()
}

/// The output of a program, which must succeed.
#[track_caller]
pub(crate) fn output_of(outcome: &CommandOutcome) -> String {
    let text = text(outcome);
    assert_eq!(outcome.end, CommandEnd::Exited(0), "{text}");
    text
}

pub(crate) async fn bash(fixture: &Fixture, script: &str) -> String {
    output_of(&fixture.bash(script).await.unwrap())
}

/// The output of a script in a sandbox, which must succeed.
pub(crate) async fn bash_in(sandbox: &Sandbox, script: &str) -> String {
    output_of(&sandbox.run(Command::bash(script), options()).await.unwrap())
}

/// Waits until the runtime has no task any more: whoever was dropped may have asked for what nobody sees yet.
pub(crate) async fn until_no_process_runs() {
    let runtime = tokio::runtime::Handle::current().metrics();
    until("nobody goes on", || runtime.num_alive_tasks() == 0).await;
}
