//! Whoever speaks to a session in a drill: sends, queues, steers, interrupts, decides, listens, and tells the parent each
//! acknowledgement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conjure::conversation::Decision;
use conjure::journal::SessionKey;
use conjure::session::{SessionSnapshot, SessionStatus, Subscription, TurnId};
use conjure::{
    Clock as _, Runtime, RuntimeError, Session, SessionError, SessionId, SystemClock, TenantId, Update,
};

use super::Result;
use super::fixture::SECRET;
use super::host::spec;
use super::log_lines::{LogLine, fingerprint};
use super::random::Random;

/// With this many events a session is left for another.
const EVENTS: u64 = 160;

/// How often it is looked when nothing is told.
const PAUSE: Duration = Duration::from_millis(40);

/// The actions of visitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Say something, for ever.
    Work,
    /// Say nothing new, and return when all turns are over.
    Settle,
}

#[derive(Debug)]
pub(crate) struct Visitor {
    pub(crate) runtime: Runtime,
    pub(crate) random: Random,
    pub(crate) task: Task,
    pub(crate) incarnation: u64,
    /// Makes texts different, over all visitors of a host.
    pub(crate) texts: Arc<AtomicU64>,
}

pub(crate) fn key(session: &Session) -> SessionKey {
    SessionKey::new(session.tenant().clone(), session.id())
}

/// How a visit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VisitEnd {
    /// The session has had enough, or has nothing left to do.
    Enough,
    /// In the middle of whatever it does.
    Abrupt,
}

/// Deletes a session, and says so.
pub(crate) async fn delete(runtime: &Runtime, tenant: &TenantId, id: SessionId) -> Result<()> {
    let key = SessionKey::new(tenant.clone(), id);
    LogLine::Deleting(key.clone()).say();
    match runtime.delete(tenant, id).await {
        // An attempt before this one broke off when the record was gone already.
        Ok(_) | Err(RuntimeError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    LogLine::Deleted(key).say();
    Ok(())
}

impl Visitor {
    /// Visits this session, and others after it.
    pub(crate) async fn run(mut self, mut session: Session) -> Result<()> {
        loop {
            let farewell = self.visit(&session).await?;
            if self.task == Task::Settle {
                return Ok(());
            }
            let (tenant, id) = (session.tenant().clone(), session.id());
            if farewell == VisitEnd::Abrupt || self.random.below(2) == 0 {
                delete(&self.runtime, &tenant, id).await?;
            } else {
                LogLine::Retired(key(&session)).say();
            }
            session = self.runtime.open(spec(&tenant)).await?;
            LogLine::Opened(key(&session)).say();
        }
    }

    async fn visit(&mut self, session: &Session) -> Result<VisitEnd> {
        let mut listening = session.subscribe(session.snapshot().await?.events).await?;
        loop {
            let snapshot = session.snapshot().await?;
            let is_idle = snapshot.status == SessionStatus::Idle && snapshot.queue.is_empty();
            if is_idle && (snapshot.events >= EVENTS || self.task == Task::Settle) {
                return Ok(VisitEnd::Enough);
            }
            if self.task == Task::Work && self.random.below(150) == 0 {
                return Ok(VisitEnd::Abrupt);
            }
            self.act(session, &snapshot).await?;
            listen(session, &mut listening).await?;
        }
    }

    async fn act(&mut self, session: &Session, snapshot: &SessionSnapshot) -> Result<()> {
        match snapshot.status {
            SessionStatus::Idle if snapshot.queue.is_empty() => self.send(session).await,
            SessionStatus::AwaitingApproval(turn) => match self.random.below(12) {
                0 => self.interrupt(session, turn).await,
                1 if self.task == Task::Work => self.send(session).await,
                _ => self.decide(session, snapshot).await,
            },
            SessionStatus::Running(turn) if self.task == Task::Work => match self.random.below(24) {
                0 => self.interrupt(session, turn).await,
                1 | 2 => self.steer(session).await,
                3 | 4 if snapshot.queue.len() < 3 => self.send(session).await,
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn text(&self) -> String {
        format!("m{}-{}", self.incarnation, self.texts.fetch_add(1, Ordering::Relaxed))
    }

    async fn send(&mut self, session: &Session) -> Result<()> {
        let text = self.text();
        match session.send(text.clone()).await {
            Ok(turn) => LogLine::Sent(key(session), turn.accepted().seq(), text).say(),
            Err(SessionError::Overloaded { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn steer(&mut self, session: &Session) -> Result<()> {
        let text = self.text();
        match session.steer(text.clone()).await {
            Ok(seq) => LogLine::Steered(key(session), seq, text).say(),
            Err(SessionError::NotRunning | SessionError::Overloaded { .. } | SessionError::Rejected(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn interrupt(&mut self, session: &Session, turn: TurnId) -> Result<()> {
        session.interrupt().await?;
        LogLine::Interrupted(key(session), turn.number()).say();
        Ok(())
    }

    async fn decide(&mut self, session: &Session, snapshot: &SessionSnapshot) -> Result<()> {
        for approval in &snapshot.approvals {
            let decision = match self.random.below(3) {
                0 => Decision::Deny { reason: "not this time".to_owned() },
                _ => Decision::Allow,
            };
            let call = approval.call.id.clone();
            match session.decide(call.clone(), decision).await {
                Ok(()) => LogLine::Decided(key(session), call.as_str().to_owned()).say(),
                // It was decided when the snapshot was taken.
                Err(SessionError::Rejected(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Waits for something that is recorded, for a while.
async fn listen(session: &Session, listening: &mut Subscription) -> Result<()> {
    let pause = SystemClock.sleep_until(SystemClock.deadline(PAUSE));
    tokio::pin!(pause);
    loop {
        let update = tokio::select! {
            biased;
            update = listening.next() => update?,
            () = &mut pause => return Ok(()),
        };
        if let Update::Recorded(event) = update {
            let line = event.to_line();
            if line.contains(SECRET) {
                LogLine::Exposed(format!("{}: event {} tells a secret", key(session), event.seq)).say();
            }
            LogLine::Seen(key(session), event.seq, fingerprint(&line)).say();
            return Ok(());
        }
    }
}
