//! Resumes sessions that have a running turn or a queued input, before a caller asks for them.
//!
//! The journal finds these sessions by the status in their rows, so other sessions cost nothing. Sessions that wait for
//! an approval or for an external result stay as they are. A resumed turn passes the tenant's gates like any other.
//! This module limits only how many sessions start at the same time.
//!
//! State: none. The next start finds again the sessions that were not resumed.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::session::SessionError;
use conjure_base::{Clock as _, Deadline, SystemClock};
use conjure_journal::{ListCursor, RowStatus, SessionKey};
use futures_util::{StreamExt as _, stream};

use crate::runtime::error::RuntimeError;
use crate::runtime::handle::{Runtime, RuntimeInner};
use crate::runtime::session::readers::session_reader::SessionReader;

/// How many sessions are started at the same time.
const CONCURRENT_STARTS: usize = 16;

/// How many sessions one read of the journal returns at most.
const PAGE: u32 = 256;

/// The pause before sessions with a retryable error are tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// The outcome of resuming the sessions that had a running turn or a queued input.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ResumeReport {
    /// The sessions that were started. Their turns run in the background.
    pub resumed: Vec<SessionKey>,
    /// The sessions that another process has.
    pub held: Vec<SessionKey>,
    /// The sessions that could not be started, each with its error.
    pub failed: Vec<(SessionKey, RuntimeError)>,
}

/// The outcome for one session.
enum Resumption {
    Resumed,
    Held,
    /// It is already live here, has no unfinished turn any more, or was deleted.
    NothingToDo,
    /// It failed with a retryable error. For example, its tenant has reached the limit of live sessions.
    Later(RuntimeError),
    Failed(RuntimeError),
}

impl Runtime {
    /// Resumes all sessions that have a running turn or a queued input, of all tenants. Returns when they are started.
    /// Their turns run in the background.
    ///
    /// - A session with a retryable error is tried again until the deadline. For example, its tenant may have reached
    ///   the limit of live sessions.
    /// - A session that waits for an approval or for an external result is not started.
    ///
    /// [`RuntimeOptions::resume_unfinished`](crate::RuntimeOptions::resume_unfinished) does this at the start.
    ///
    /// # Errors
    ///
    /// If the journal cannot be read. The sessions that were started before continue.
    pub async fn resume_unfinished(&self, deadline: Deadline) -> Result<ResumeReport, RuntimeError> {
        resume_all(|| Some(self.clone()), deadline).await
    }

    /// Resumes the unfinished sessions in the background, until the runtime is dropped or shut down.
    pub(super) fn spawn_resume(&self) {
        let runtime = Arc::downgrade(&self.inner);
        self.inner.tasks.spawn(async move {
            let upgrade = || runtime.upgrade().map(|inner| Runtime { inner });
            let ResumeReport { resumed, held, failed } = match resume_all(upgrade, Deadline::NEVER).await {
                Ok(report) => report,
                Err(error) => return tracing::error!(%error, "interrupted sessions were not resumed"),
            };
            let (resumed, held, failed) = (resumed.len(), held.len(), failed.len());
            if resumed + held + failed > 0 {
                tracing::info!(resumed, held, failed, "the resumption of interrupted sessions has ended");
            }
        });
    }

    /// Tries to resume one page of sessions. Adds those with a retryable error to `later`. Returns the cursor of the
    /// next page.
    async fn resume_page(
        &self,
        after: Option<ListCursor>,
        report: &mut ResumeReport,
        later: &mut Vec<(SessionKey, RuntimeError)>,
    ) -> Result<Option<ListCursor>, RuntimeError> {
        let page = self.session_reader().await?.journal().running_sessions(after, PAGE).await?;
        later.extend(self.resume_keys(page.sessions, report).await?);
        Ok(page.next)
    }

    /// Tries to resume these sessions. Returns those with a retryable error.
    async fn resume_keys(
        &self,
        keys: Vec<SessionKey>,
        report: &mut ResumeReport,
    ) -> Result<Vec<(SessionKey, RuntimeError)>, RuntimeError> {
        let reader = self.session_reader().await?;
        let mut later = Vec::new();
        let resume = |key: SessionKey| {
            let reader = &reader;
            async move {
                let resumption = self.resume_one(&key, reader).await;
                (key, resumption)
            }
        };
        let mut resumptions = stream::iter(keys).map(resume).buffer_unordered(CONCURRENT_STARTS);
        while let Some((key, resumption)) = resumptions.next().await {
            match resumption {
                Resumption::Resumed => report.resumed.push(key),
                Resumption::Held => report.held.push(key),
                Resumption::NothingToDo => {}
                Resumption::Later(error) => later.push((key, error)),
                Resumption::Failed(error) => {
                    tracing::warn!(session = %key, %error, "an interrupted session is not resumed");
                    report.failed.push((key, error));
                }
            }
        }
        Ok(later)
    }

    async fn resume_one(&self, key: &SessionKey, reader: &SessionReader) -> Resumption {
        let RuntimeInner { tree, tasks, .. } = &*self.inner;
        if tree.contains(key) {
            return Resumption::NothingToDo;
        }
        let info = match reader.info(key).await {
            Ok(info) => info,
            Err(RuntimeError::NotFound { .. }) => return Resumption::NothingToDo,
            Err(error) => return Resumption::Failed(error),
        };
        if info.row.as_ref().is_none_or(|row| row.status != RowStatus::Running) {
            return Resumption::NothingToDo;
        }
        match reader.lease_owner(&info).await {
            Ok(Some(owner)) if owner != *tree.lease_owner() => return Resumption::Held,
            Ok(_) => {}
            Err(error) => return Resumption::Failed(error),
        }
        match self.session(&key.tenant, key.session).await {
            Ok(session) => {
                // While this task holds a handle, the turn continues even if the session's actor crashes.
                tasks.spawn(async move {
                    // The actor answers after it has started the unfinished work.
                    if session.snapshot().await.is_ok() {
                        session.wait_idle().await;
                    }
                });
                Resumption::Resumed
            }
            Err(RuntimeError::NotFound { .. }) => Resumption::NothingToDo,
            Err(RuntimeError::Session(SessionError::TakenOver { .. })) => Resumption::Held,
            Err(error) if error.is_retryable() => Resumption::Later(error),
            Err(error) => Resumption::Failed(error),
        }
    }
}

/// Resumes all unfinished sessions, and tries those with a retryable error again until the deadline. Stops if `runtime`
/// returns none before a step.
async fn resume_all(
    runtime: impl Fn() -> Option<Runtime> + Send + Sync,
    deadline: Deadline,
) -> Result<ResumeReport, RuntimeError> {
    let (mut report, mut later, mut after) = (ResumeReport::default(), Vec::new(), None);
    loop {
        let Some(runtime) = runtime() else { return Ok(report) };
        after = runtime.resume_page(after, &mut report, &mut later).await?;
        if after.is_none() {
            break;
        }
    }
    while !later.is_empty() {
        if SystemClock.remaining(deadline) <= PAUSE {
            report.failed.append(&mut later);
            break;
        }
        SystemClock.sleep_until(SystemClock.deadline(PAUSE)).await;
        let Some(runtime) = runtime() else { return Ok(report) };
        let keys = later.into_iter().map(|(key, _)| key).collect();
        later = runtime.resume_keys(keys, &mut report).await?;
    }
    Ok(report)
}
