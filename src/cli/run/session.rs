//! A session that a command has opened or found, until the command ends.
//!
//! What is produced, used and said is told here at the end, in one order for `conjure run` and `conjure sessions resume`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conjure::{
    CallOptions, Clock as _, Deadline, Error, ExecutorKind, FileSource, HostedSkill, Isolation, Model,
    Recorder, SandboxErrorKind, Session, SessionFile, SessionId, Sharing, Snapshot, SystemClock, Workspace,
};
use tokio_util::sync::CancellationToken;

use crate::cli::approvals::Person;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::host::{Host, Keeping};
use crate::cli::run::chronicle::{Chronicle, End};
use crate::cli::run::ending::{Ending, nobody_decides};
use crate::cli::run::made;
use crate::cli::run::out::{self, Out};
use crate::cli::run::produced;
use crate::cli::run::progress::{Show, watch};
use crate::cli::run::talk::{Say, Talk, Talked};
use crate::cli::run::used::{self, Tariff};
use crate::cli::signals::Signals;
use crate::cli::terminal::{Style, Terminal, printable};

/// So long a reader may take after a signal; without one it may take its time.
const READER_PATIENCE: Duration = Duration::from_secs(5);

/// A sandbox that is not ready by then will not be.
const SANDBOX_PATIENCE: Duration = Duration::from_secs(60);

/// So long the removal of a session may take that never began.
const DISCARD_PATIENCE: Duration = Duration::from_secs(10);

/// A session, and what is known of it.
pub(crate) struct Opened {
    pub(crate) host: Host,
    pub(crate) session: Session,
    /// Where it works, on this machine.
    pub(crate) workspace: Workspace,
    pub(crate) whose: Whose,
    /// What was there before any tool ran.
    pub(crate) before: Snapshot,
    /// Where copies of what is produced go, where they are wanted.
    pub(crate) out: Option<Out>,
    /// What the model's service runs.
    pub(crate) hosted: Hosted,
}

/// What the model's service runs for a session, and keeps of it.
#[derive(Debug, Default)]
pub(crate) struct Hosted {
    pub(crate) skills: Vec<HostedSkill>,
    /// The ids of the files that it kept before.
    pub(crate) known: HashSet<String>,
}

impl Hosted {
    /// Says which skills the service runs, where it runs some.
    pub(crate) fn tell(&self, terminal: &Terminal) {
        if !self.skills.is_empty() {
            let names: Vec<String> = self.skills.iter().map(|skill| printable(&skill.id)).collect();
            terminal.styled(Style::Dim, &format!("the model's service runs {}", names.join(", ")));
        }
    }

    /// The files that it keeps, and did not before.
    fn new_files<'f>(&self, files: &'f [SessionFile]) -> Vec<&'f SessionFile> {
        let is_new =
            |file: &&SessionFile| file.source == FileSource::Hosted && !self.known.contains(&file.id);
        files.iter().filter(is_new).collect()
    }
}

/// Whose the folder is that a session works in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The session's own.
    Session,
    /// One of the user's.
    User,
}

/// The model's side of it.
pub(crate) struct Voice {
    pub(crate) recorder: Option<Arc<Recorder<Arc<dyn Model>>>>,
    pub(crate) tariff: Option<Tariff>,
}

/// How a command talks with a session.
pub(crate) struct Manner {
    pub(crate) show: Show,
    pub(crate) deadline: Deadline,
    /// What happened before, when it goes on.
    pub(crate) chronicle: Chronicle,
}

impl Opened {
    /// Has the sandbox made, so that what is wrong with it is told before the model is called, and says what it keeps apart.
    pub(crate) async fn make_sandbox(&self, kind: ExecutorKind, terminal: &Terminal) -> Result<(), Failure> {
        let executor = self.session.executor().await?;
        let options = CallOptions::until(SystemClock.deadline(SANDBOX_PATIENCE));
        let workspace = executor.layout().workspace.clone();
        // The first call makes it.
        let made = executor.list(&workspace.to_string_lossy(), 1, 1, options).await;
        if let Err(error) = made {
            // Here it was asked for, so that is known.
            let message = error.to_string();
            let reason = message.strip_prefix("the sandbox could not be started: ").unwrap_or(&message);
            return Err(no_sandbox(error.told_as(reason).into()));
        }
        announce(kind, &executor.isolation(), terminal);
        if executor.sharing() == Sharing::Transferred {
            let said = "no folder is shared with the sandbox: files travel there now, and what is produced comes back at the end";
            terminal.styled(Style::Dim, said);
        }
        Ok(())
    }

    /// The files of the workspace, as the sandbox has them.
    pub(crate) async fn inside(&self, files: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
        if files.is_empty() {
            // Then there may be no sandbox either.
            return Ok(Vec::new());
        }
        let inside = self.session.executor().await?.layout().workspace.clone();
        let folder = self.workspace.path();
        Ok(files.iter().map(|file| inside.join(file.strip_prefix(folder).unwrap_or(file))).collect())
    }

    /// Forgets a session in which nothing was said.
    pub(crate) async fn discard(self) {
        let Self { host, session, .. } = self;
        let id = session.id();
        drop(session);
        let deleting = host.runtime.delete(&host.tenant, id);
        let deleted = tokio::time::timeout(DISCARD_PATIENCE, deleting).await;
        if let Ok(Err(error)) = deleted {
            tracing::warn!(session = %id, %error, "a session that did not begin is left");
        }
        let _ = host.end().await;
    }

    /// Talks with the session, ends everything that was started, and tells what came of it.
    pub(crate) async fn talk(
        self,
        says: Vec<Say>,
        voice: Voice,
        manner: Manner,
        signals: &mut Signals,
        terminal: &Arc<Terminal>,
    ) -> Result<Exit, Failure> {
        let Self { mut host, session, workspace, whose, before, out, hosted } = self;
        let unread = CancellationToken::new();
        let (watcher, printer) = watch(Arc::clone(terminal), manner.show, unread.clone());
        let watcher = Arc::new(watcher);
        let mut chronicle = manner.chronicle;
        let person = Person::at(terminal).map(Arc::new);
        let mut talk = Talk {
            session: &session,
            signals: &mut *signals,
            watcher: &watcher,
            unread: &unread,
            deadline: manner.deadline,
            chronicle: &mut chronicle,
            person: person.as_ref(),
            cause: None,
        };
        let mut talked = Talked::LeftAlone;
        let mut rest = says.into_iter();
        while let Some(say) = rest.next() {
            talked = talk.follow(say).await;
            if !matches!(talked, Talked::Ended(End::Stopped(_))) || talk.cause.is_some() || rest.len() == 0 {
                break;
            }
            // What it said at its end is not the answer.
            let text = talk.chronicle.text();
            if !text.trim().is_empty() {
                watcher.note(text);
            }
        }
        let (cause, signal) = (talk.cause, talk.signal());
        let is_left_alone = matches!(talked, Talked::LeftAlone);
        let ending = match talked {
            Talked::Ended(end) => {
                let text = said_last(&chronicle, &session).await;
                Some(match &end {
                    End::Waits(call) => Ending::failed(nobody_decides(&host, session.id(), call)),
                    End::Stopped(_) => Ending::of(&end, text, chronicle.model_calls(), cause),
                })
            }
            Talked::Failed(failure) => Some(Ending::failed(failure)),
            Talked::LeftAlone => None,
        };
        // The printer ends only after it.
        drop(watcher);
        if !is_left_alone {
            tokio::select! {
                () = fetch(&session, terminal) => {}
                _ = signals.next() => terminal.warning("what the run produced in the sandbox was not brought here"),
            }
        }
        let mut made = Vec::new();
        if !is_left_alone && (out.is_some() || !hosted.skills.is_empty()) {
            let found = tokio::select! {
                found = made::files(&host, &session) => found,
                _ = signals.next() => Err(Failure::internal("it was not waited for")),
            };
            made = found.unwrap_or_else(|failure| {
                let reason = printable(&failure.message);
                terminal.warning(&format!("what was produced is not known: {reason}"));
                Vec::new()
            });
        }
        if let Some(out) = &out {
            tokio::select! {
                () = out::save(&session, &made, out, terminal) => {}
                _ = signals.next() => terminal.warning("what the run produced was not copied whole"),
            }
        }
        let expected = if is_left_alone { Vec::new() } else { host.outputs(session.id(), terminal).await };
        // After a second signal nothing is waited for.
        let cleaned = if is_left_alone {
            false
        } else {
            tokio::select! {
                ended = host.end() => ended.is_ok(),
                _ = signals.next() => false,
            }
        };
        let unwritten = match (&ending, signal) {
            (None, _) => None,
            (Some(_), None) => printer.finish(signals.next()).await,
            (Some(_), Some(signal)) => printer
                .finish(SystemClock.sleep_until(SystemClock.deadline(READER_PATIENCE)))
                .await
                .map(|()| signal),
        };
        if !cleaned {
            terminal.warning("the sandbox was not waited for; it ends with this process");
        }
        if let Some(tariff) = voice.tariff.filter(|_| ending.is_some()) {
            used::report(chronicle.usage(), &tariff, terminal);
        }
        if !is_left_alone {
            report(&mut host, session.id(), (&workspace, whose), &before, terminal).await;
            produced::report_hosted(&hosted.new_files(&made), out.as_ref(), terminal);
            produced::compare(&expected, terminal);
        }
        if host.keeping == Keeping::Kept {
            let resuming = host.resuming(session.id());
            terminal.styled(Style::Dim, &format!("`{resuming}` goes on with this session"));
        }
        let told = match (ending, unwritten) {
            (None, _) => Ok(signal.unwrap_or(Exit::Interrupted)),
            (Some(_), Some(exit)) => Ok(exit),
            (Some(ending), None) => {
                let as_events = manner.show == Show::Events;
                tell(ending, as_events, terminal, signal, signals).await
            }
        };
        let Some(Err(error)) = voice.recorder.map(|recorder| recorder.finish()) else { return told };
        let lost = format!("the recording is not whole: {error}");
        if matches!(told, Ok(Exit::Done)) {
            return Err(Failure::internal(lost));
        }
        // What went wrong first names the exit.
        terminal.warning(&lost);
        told
    }
}

/// The answer; where the model had given it before the session was left, it is in the record.
async fn said_last(chronicle: &Chronicle, session: &Session) -> String {
    if chronicle.model_calls() > 0 {
        return chronicle.text();
    }
    session.snapshot().await.map(|snapshot| snapshot.last_text).unwrap_or_default()
}

/// Brings what was produced here, where the sandbox has a workspace of its own.
async fn fetch(session: &Session, terminal: &Terminal) {
    // Without one, nothing was produced.
    if let Ok(executor) = session.executor().await {
        produced::fetch(&*executor, terminal).await;
    }
}

/// Tells what was produced, and where it stays.
async fn report(
    host: &mut Host,
    session: SessionId,
    (workspace, whose): (&Workspace, Whose),
    before: &Snapshot,
    terminal: &Terminal,
) {
    let produced = workspace.produced_since(before);
    if !produced::report(&produced, workspace, terminal) {
        return;
    }
    match host.keep_workspace(session).await {
        Ok(Some(path)) => terminal.note(&format!(
            "they are in a temporary folder, which is kept: {} (`--workspace DIR` chooses another)",
            path.display()
        )),
        Ok(None) if whose == Whose::Session => {
            terminal.note("they stay with the session (`--workspace DIR` chooses another folder)");
        }
        Ok(None) => {}
        Err(error) => terminal.warning(&format!(
            "they are in a temporary folder, {}, which the next run removes: {error}",
            workspace.path().display()
        )),
    }
}

/// Tells the ending, after `signal`. A reader may take its time, and another signal must not wait for it.
async fn tell(
    ending: Ending,
    as_events: bool,
    terminal: &Arc<Terminal>,
    signal: Option<Exit>,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let teller = Arc::clone(terminal);
    let told = tokio::task::spawn_blocking(move || ending.tell(as_events, &teller));
    tokio::select! {
        told = told => told.unwrap_or_else(|error| Err(Failure::internal(format!("the answer was lost: {error}")))),
        // The first one gives the code.
        exit = signals.next() => Ok(signal.unwrap_or(exit)),
    }
}

/// Why there is no sandbox.
pub(crate) fn no_sandbox(error: Error) -> Failure {
    // Refused before anything was tried: the configuration asks for what the sandbox cannot do.
    let is_refused = match &error {
        Error::Container { source: None, .. } => true,
        Error::Container { source: Some(source), .. } => source.kind() == SandboxErrorKind::NotEnforced,
        _ => false,
    };
    let failure = Failure::from(error).hint("`conjure doctor` says what this machine offers");
    if is_refused { Failure { exit: Exit::Usage, hint: None, ..failure } } else { failure }
}

/// Says plainly what is isolated and what is not.
pub(crate) fn announce(kind: ExecutorKind, isolation: &Isolation, terminal: &Terminal) {
    let open: Vec<&str> = isolation.open().collect();
    let said = match (kind, open.as_slice()) {
        (ExecutorKind::Local, _) => {
            "the sandbox `local` isolates nothing: commands can do what you can do".to_owned()
        }
        (kind, []) => format!("the sandbox `{}` keeps commands apart from this machine", kind.as_str()),
        (kind, open) => format!(
            "the sandbox `{}` keeps commands apart from this machine; it cannot enforce here: {} (`conjure doctor` \
             says why)",
            kind.as_str(),
            open.join(", ")
        ),
    };
    terminal.styled(Style::Dim, &said);
}
