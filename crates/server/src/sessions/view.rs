//! A session for clients: its row, and its status in the runtime.

use conjure_actors::session::SessionStatus as Running;
use conjure_api::{CacheCreation, Money, Session, SessionStats, SessionStatus, SessionUsage, Time};
use conjure_base::{Clock as _, SystemClock, TenantId};
use conjure_conversation::Usage;
use conjure_runtime::{Runtime, RuntimeError, SessionBody, SessionSummary};

use super::store::StoredSession;
use crate::http::ApiError;

/// The session in the API's form.
pub(crate) async fn show(
    runtime: &Runtime,
    tenant: &TenantId,
    stored: &StoredSession,
) -> Result<Session, ApiError> {
    let summary = match runtime.summary(tenant, stored.id).await {
        Ok(summary) => Some(summary),
        // The session is being deleted.
        Err(RuntimeError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let (status, usage) = progress(summary.as_ref());
    let row = stored.row.clone();
    let updated =
        summary.map_or(stored.record.updated_at, |summary| summary.updated.max(stored.record.updated_at));
    let created = stored.record.created_at;
    let ended = row.archived_at.map_or_else(|| SystemClock.timestamp(), |Time(at)| at);
    let duration = ended.millis().saturating_sub(created.millis());
    Ok(Session {
        id: stored.id.to_string(),
        agent: row.agent,
        archived_at: row.archived_at,
        budget: row.budget,
        created_at: created.into(),
        deployment_id: None,
        environment_id: row.environment_id,
        metadata: row.metadata,
        outcome_evaluations: Vec::new(),
        resources: row.resources,
        stats: SessionStats { active_seconds: None, duration_seconds: Some(seconds(duration)) },
        status,
        title: row.title,
        updated_at: updated.into(),
        usage,
        vault_ids: row.vault_ids.iter().map(ToString::to_string).collect(),
    })
}

#[expect(clippy::cast_precision_loss, reason = "seconds for people")]
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1_000.0
}

fn progress(summary: Option<&SessionSummary>) -> (SessionStatus, SessionUsage) {
    let Some(SessionSummary { body: SessionBody::Ok(contents), .. }) = summary else {
        return (SessionStatus::Terminated, SessionUsage::default());
    };
    let status = match contents.status {
        Running::Idle | Running::AwaitingApproval(_) => SessionStatus::Idle,
        Running::Running(_) => SessionStatus::Running,
        // The turn continues as soon as a process resumes the session.
        Running::Interrupted(_) => SessionStatus::Rescheduling,
    };
    (status, usage(&contents.usage))
}

fn usage(usage: &Usage) -> SessionUsage {
    SessionUsage {
        active_seconds: None,
        cache_creation: Some(CacheCreation {
            ephemeral_5m_input_tokens: Some(usage.cache_creation_input_tokens),
            ..CacheCreation::default()
        }),
        cache_read_input_tokens: Some(usage.cache_read_input_tokens),
        input_tokens: Some(usage.input_tokens),
        list_cost: (usage.cost_micros > 0).then(|| Money { cents: usage.cost_micros.div_ceil(10_000) }),
        output_tokens: Some(usage.output_tokens),
    }
}
