//! Keeps a server running: starts it on demand, lists its tools and skills, and restarts it after it ends.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Backoff, Clock as _, Deadline, SystemClock};
use conjure_sandbox::CallOptions;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::error::McpError;
use super::manifest;
use super::shared_server::{SharedServer, StartFailure, State};
use super::skills::SkillListing;
use crate::client::tools::listing::Listing;

/// The backoff between failed starts.
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));

/// After this many failed starts in a row, only a call starts the server again.
const BACKGROUND_STARTS: u32 = 6;

/// How long a server may take to list its skills.
const SKILLS_TIMEOUT: Duration = Duration::from_secs(10);

/// The minimum time between two listings that the server's change notifications cause.
const LIST_PAUSE: Duration = Duration::from_secs(1);

/// After this time, a start counts as successful.
const STABLE_AFTER: Duration = Duration::from_secs(30);

impl SharedServer {
    /// Starts the server and lists its tools. After a failure, returns the wait before the next start in the background. `None` if only a
    /// call should start the server again.
    async fn start(&self, failures: u32) -> Option<Duration> {
        self.state.send_modify(|state| state.is_starting = true);
        let deadline = SystemClock.deadline(self.spec.startup_timeout);
        let refusals = self.refusals();
        let started = async {
            let connection = self.connect(deadline).await?;
            let listing = self.list(&connection, deadline).await?;
            Ok((connection, listing))
        };
        match started.await {
            Ok((connection, listing)) => {
                self.state.send_modify(|state| {
                    state.is_starting = false;
                    state.starts += 1;
                    state.failure = None;
                    state.refused = None;
                    state.connection = Some(Arc::new(connection));
                    set_listing(state, listing);
                });
                None
            }
            Err(error) => {
                let error: McpError = error;
                let error = error.with_reason(self.refused_since(refusals)).redacted(self.redactor());
                let count = failures + 1;
                let wait = RETRY.wait(failures);
                tracing::warn!(server = self.spec.name.as_str(), failures = count, "{error}");
                self.state.send_modify(|state| {
                    state.is_starting = false;
                    state.starts += 1;
                    state.connection = None;
                    let retry_at = SystemClock.deadline(wait);
                    state.failure = Some(StartFailure { error, count, retry_at });
                });
                (self.listing().is_none() && count < BACKGROUND_STARTS).then_some(wait)
            }
        }
    }

    async fn list(&self, connection: &Connection, deadline: Deadline) -> Result<Listing, McpError> {
        let options = CallOptions { deadline, cancel: CancellationToken::new() };
        let lists = async {
            let tools = connection.list_tools(options.clone()).await?;
            // The tools are usable without the skills, so they wait only a short time for the skills.
            let skills = tokio::select! {
                biased;
                skills = connection.list_skills(options) => skills.unwrap_or_else(SkillListing::failed),
                () = SystemClock.sleep_until(SystemClock.deadline(SKILLS_TIMEOUT).min(deadline)) => {
                    SkillListing::failed("there was no answer in time")
                }
            };
            Ok(tools.redacted(self.redactor()).with_skills(skills.redacted(self.redactor())))
        };
        let listing: Listing = tokio::select! {
            biased;
            listing = lists => listing?,
            () = SystemClock.sleep_until(deadline) => return Err(self.not_started("it did not list its tools in time")),
        };
        for skipped in &listing.skipped {
            tracing::warn!(server = self.spec.name.as_str(), "{skipped}");
        }
        if let Some(path) = &self.manifest
            && let Err(error) = manifest::write(path, &self.spec, &listing)
        {
            tracing::debug!(%error, "the tool list of an MCP server could not be saved");
        }
        Ok(listing)
    }

    /// Lists the tools of a running server again after a change notification.
    async fn list_again(&self) {
        let connection = self.state.borrow().live();
        let Some(connection) = connection else { return };
        let deadline = SystemClock.deadline(self.spec.startup_timeout);
        match self.list(&connection, deadline).await {
            Ok(listing) => self.state.send_modify(|state| set_listing(state, listing)),
            Err(error) => {
                tracing::warn!(
                    server = self.spec.name.as_str(),
                    "the tools of the MCP server could not be listed again; the former list stays: {error}"
                )
            }
        }
    }
}

/// Stores a listing. An equal listing keeps the old value, so the model's tools do not change.
fn set_listing(state: &mut State, listing: Listing) {
    if state.listing.as_deref() != Some(&listing) {
        state.listing = Some(Arc::new(listing));
    }
}

/// Starts the server whenever it is wanted and does not run. It never returns; dropping the future stops it.
pub(super) async fn supervise(inner: Arc<SharedServer>) {
    let mut failures = 0;
    let mut started_at = None;
    loop {
        tokio::select! {
            () = inner.wanted.notified() => {}
            () = inner.changed.notified() => {
                inner.list_again().await;
                // Limits how often a server with frequent notifications is asked.
                tokio::select! {
                    () = inner.wanted.notified() => inner.wanted.notify_one(),
                    () = SystemClock.sleep_until(SystemClock.deadline(LIST_PAUSE)) => {}
                }
                continue;
            }
        }
        if inner.state.borrow().live().is_some() {
            continue;
        }
        // A server that ended soon after its start counts as failed.
        if let Some(stable_at) = started_at.take() {
            let was_stable = SystemClock.remaining(stable_at).is_zero();
            failures = if was_stable { 0 } else { failures + 1 };
        }
        while let Some(wait) = inner.start(failures).await {
            failures += 1;
            tokio::select! {
                () = inner.wanted.notified() => {}
                () = SystemClock.sleep_until(SystemClock.deadline(wait)) => {}
            }
        }
        let has_started = inner.state.borrow().live().is_some();
        if has_started {
            started_at = Some(SystemClock.deadline(STABLE_AFTER));
        } else {
            failures += 1;
        }
    }
}
