//! Routes of sessions: create, read, list, change, archive and delete.

use std::sync::Arc;

use axum::Json;
use conjure_api::{
    Deleted, DeletedKind, Patch, RequestBody as _, Session, SessionCreate, SessionListQuery, SessionUpdate,
    Tool, TwoWayPage, patch_metadata,
};
use conjure_base::{Clock as _, SystemClock};
use conjure_conversation::ProfileChange;

use crate::access::Scope;
use crate::http::{ApiError, Body, Path, RawQuery};
use crate::routes::call::{Call, JsonResult};
use crate::routes::route::Route;
use crate::sessions::{self, StoredSession, client_tools, cost_micros};

/// The maximum number of rows that are read for one page with a status filter.
const MAX_SCANNED_ROWS: usize = 10_000;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post(Scope::Run, "/v1/sessions", create).idempotent(),
        Route::get("/v1/sessions", list),
        Route::get("/v1/sessions/{id}", retrieve),
        Route::post(Scope::Run, "/v1/sessions/{id}", update),
        Route::delete(Scope::Run, "/v1/sessions/{id}", delete),
        Route::post(Scope::Run, "/v1/sessions/{id}/archive", archive),
    ]
}

async fn create(call: Call, Body(body): Body) -> JsonResult<Session> {
    let create = SessionCreate::from_json(&body)?;
    let work = {
        let call = call.clone();
        async move { sessions::create(&call.state, &call.caller, create).await }
    };
    let stored = call.state.run_to_end(work).await?;
    shown(&call, &stored).await.map_err(ApiError::with_unknown_outcome)
}

async fn retrieve(call: Call, Path(id): Path<String>) -> JsonResult<Session> {
    let stored = call.sessions().get(&id).await?;
    shown(&call, &stored).await
}

async fn list(call: Call, RawQuery(query): RawQuery) -> JsonResult<TwoWayPage<Session>> {
    let mut query = SessionListQuery::from_query(&query)?;
    let store = call.sessions();
    let wanted = query.page.limit;
    let (mut data, mut prev_page, mut scanned) = (Vec::new(), None, 0);
    loop {
        let page = store.list(&query).await?;
        if scanned == 0 {
            prev_page = page.prev_page;
        }
        scanned += page.data.len();
        for stored in &page.data {
            let session = sessions::show(&call.state.runtime, call.tenant(), stored).await?;
            if query.statuses.is_empty() || query.statuses.contains(&session.status) {
                data.push(session);
            }
        }
        // With a status filter, a page may be shorter than requested. It is empty only if there are no more rows, or the limit of rows was
        // reached.
        if page.next_page.is_none() || !data.is_empty() || scanned >= MAX_SCANNED_ROWS.max(wanted) {
            return Ok(Json(TwoWayPage { data, next_page: page.next_page, prev_page }));
        }
        query.page.page = page.next_page;
    }
}

async fn update(call: Call, Path(id): Path<String>, Body(body): Body) -> JsonResult<Session> {
    let SessionUpdate { tools, budget, metadata, title } = SessionUpdate::from_json(&body)?;
    let store = call.sessions();
    let stored = store.get(&id).await?;
    refuse_archived(&stored)?;
    if let (Patch::Set(_), None) = (&budget, stored.row.budget) {
        let message = "budget: a session that was created without a budget cannot get one";
        return Err(ApiError::invalid(message).with_code(Some("budget_create_only")));
    }
    let new_title = match title {
        Patch::Keep => None,
        Patch::Clear => Some(None),
        Patch::Set(title) => Some(Some(title)),
    };
    let mut new_metadata = stored.row.metadata.clone();
    patch_metadata(&mut new_metadata, metadata.clone())?;
    let change = ProfileChange {
        title: new_title.clone().map(Option::unwrap_or_default),
        client_tools: tools.as_deref().map(client_tools).transpose()?,
        max_cost_micros: match &budget {
            Patch::Keep => None,
            Patch::Clear => Some(u64::MAX),
            Patch::Set(budget) => Some(cost_micros(*budget)),
        },
        ..ProfileChange::default()
    };
    refuse_other_toolset(&stored, tools.as_deref())?;
    if change != ProfileChange::default() {
        call.state.runtime.session(call.tenant(), stored.id).await?.update(change).await?;
    }
    let change_row = move |row: &mut sessions::SessionRow| {
        patch_metadata(&mut row.metadata, metadata.clone())?;
        row.title = new_title.clone().unwrap_or_else(|| row.title.take());
        row.budget = budget.clone().apply(row.budget);
        row.agent.tools = tools.clone().unwrap_or_else(|| std::mem::take(&mut row.agent.tools));
        Ok(())
    };
    let stored = store.update(stored.id, change_row).await?;
    shown(&call, &stored).await
}

/// Refuses to change the toolset, because the tools of the sandbox are fixed from the first model call on.
fn refuse_other_toolset(stored: &StoredSession, tools: Option<&[Tool]>) -> Result<(), ApiError> {
    let toolsets = |tools: &[Tool]| -> Vec<Tool> {
        tools.iter().filter(|tool| matches!(tool, Tool::Toolset(_) | Tool::Mcp(_))).cloned().collect()
    };
    match tools {
        Some(tools) if toolsets(tools) != toolsets(&stored.row.agent.tools) => Err(ApiError::invalid(
            "agent.tools: this server cannot change the toolset of a session yet; change the custom tools, or make a new session",
        )),
        _ => Ok(()),
    }
}

async fn archive(call: Call, Path(id): Path<String>) -> JsonResult<Session> {
    let store = call.sessions();
    let stored = store.get(&id).await?;
    let now = SystemClock.timestamp();
    let session = call.state.runtime.session(call.tenant(), stored.id).await?;
    let archive = |row: &mut sessions::SessionRow| {
        row.archived_at.get_or_insert(now.into());
        Ok(())
    };
    let stored = store.update(stored.id, archive).await?;
    // An archived session accepts no messages, so its turn ends now. A repeated request completes what an interrupted one left.
    session.interrupt().await?;
    session.close().await?;
    shown(&call, &stored).await
}

async fn delete(call: Call, Path(id): Path<String>) -> JsonResult<Deleted> {
    let id = call.sessions().get(&id).await?.id;
    let state = Arc::clone(&call.state);
    let work = async move {
        // The row is deleted first. After a crash, the next start deletes the rest.
        call.sessions().delete(id).await?;
        sessions::delete_without_row(&call.state, call.tenant(), id).await
    };
    state.run_to_end(work).await?;
    Ok(Json(Deleted::new(DeletedKind::Session, id)))
}

/// Refuses a change of an archived session.
pub(crate) fn refuse_archived(stored: &StoredSession) -> Result<(), ApiError> {
    if stored.row.archived_at.is_some() {
        return Err(ApiError::invalid(format!(
            "the session `{}` is archived; it can only be read",
            stored.id
        )));
    }
    Ok(())
}

async fn shown(call: &Call, stored: &StoredSession) -> JsonResult<Session> {
    sessions::show(&call.state.runtime, call.tenant(), stored).await.map(Json)
}
