//! Routes of a session's resources: list, read, add, remove.

use std::sync::Arc;

use axum::Json;
use conjure_api::{
    Cursor, Deleted, DeletedKind, Page, PageQuery, RequestBody as _, Resource, ResourceCreate, ResourceId,
};
use conjure_base::SessionId;

use crate::access::Scope;
use crate::http::{ApiError, Body, NoQuery, Path, RawQuery};
use crate::routes::call::{Call, JsonResult};
use crate::routes::route::Route;
use crate::routes::session::sessions::refuse_archived;
use crate::sessions::{SessionRow, new_resource, put_resource, remove_resource};

/// The maximum number of resources of a session.
const MAX_RESOURCES: usize = 999;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/sessions/{id}/resources", list),
        Route::post(Scope::Run, "/v1/sessions/{id}/resources", add).idempotent(),
        Route::get("/v1/sessions/{id}/resources/{resource_id}", retrieve),
        Route::post(Scope::Run, "/v1/sessions/{id}/resources/{resource_id}", update),
        Route::delete(Scope::Run, "/v1/sessions/{id}/resources/{resource_id}", remove),
    ]
}

async fn list(call: Call, Path(id): Path<String>, RawQuery(query): RawQuery) -> JsonResult<Page<Resource>> {
    let query = PageQuery::resources(&query)?;
    let stored = call.sessions().get(&id).await?;
    let list = format!("resources {id}");
    let after = query.page.as_deref().map(|page| Cursor::position(page, &list)).transpose()?;
    let skipped =
        |resource: &&Resource| after.as_ref().is_some_and(|after| resource.id.to_string() <= *after);
    let mut resources: Vec<&Resource> = stored.row.resources.iter().collect();
    // Ordered by id, so that additions and removals do not disturb the cursors.
    resources.sort_by_key(|resource| resource.id.to_string());
    let mut rest = resources.into_iter().skip_while(skipped);
    let data: Vec<Resource> = rest.by_ref().take(query.limit).cloned().collect();
    let position = data.last().map(|last| last.id.to_string()).filter(|_| rest.next().is_some());
    Ok(Json(Page { data, next_page: position.map(|position| Cursor { list, position }.encode()) }))
}

async fn retrieve(
    call: Call,
    Path((id, resource_id)): Path<(String, String)>,
    _: NoQuery,
) -> JsonResult<Resource> {
    let stored = call.sessions().get(&id).await?;
    find(&stored.row.resources, &resource_id).cloned().map(Json)
}

async fn add(call: Call, Path(id): Path<String>, Body(body): Body) -> JsonResult<Resource> {
    let create = ResourceCreate::from_json(&body)?;
    let store = call.sessions();
    let stored = store.get(&id).await?;
    refuse_archived(&stored)?;
    check_room(&stored.row)?;
    let resource = new_resource(&call.state, call.tenant(), &create, "body").await?;
    let state = Arc::clone(&call.state);
    state.run_to_end(async move { put_and_record(&call, stored.id, resource).await }).await.map(Json)
}

/// Copies the file of a resource before the resource is recorded. If the path is taken, this fails.
async fn put_and_record(call: &Call, session: SessionId, resource: Resource) -> Result<Resource, ApiError> {
    put_resource(&call.state, call.tenant(), session, &resource, "body").await?;
    let update = |row: &mut SessionRow| {
        check_room(row)?;
        row.resources.push(resource.clone());
        Ok(())
    };
    let store = call.sessions();
    if let Err(error) = store.update(session, update).await {
        // Clients could not remove a file that no row names.
        let is_named = |row: &SessionRow| row.resources.iter().any(|other| other.id == resource.id);
        if store.get(&session.to_string()).await.is_ok_and(|stored| !is_named(&stored.row)) {
            let _ = remove_resource(&call.state, call.tenant(), session, &resource).await;
        }
        return Err(error);
    }
    Ok(resource)
}

fn check_room(row: &SessionRow) -> Result<(), ApiError> {
    if row.resources.len() >= MAX_RESOURCES {
        return Err(ApiError::invalid(format!(
            "a session has at most {MAX_RESOURCES} resources; remove one first"
        )));
    }
    Ok(())
}

/// Refuses the update. The API can only change the token of a repository, and this server does not support repositories.
async fn update(call: Call, Path((id, resource_id)): Path<(String, String)>) -> JsonResult<Resource> {
    let stored = call.sessions().get(&id).await?;
    find(&stored.row.resources, &resource_id)?;
    Err(ApiError::invalid("a file cannot be changed as a resource; remove it, and add another one"))
}

async fn remove(
    call: Call,
    Path((id, resource_id)): Path<(String, String)>,
    _: NoQuery,
) -> JsonResult<Deleted> {
    let store = call.sessions();
    let stored = store.get(&id).await?;
    refuse_archived(&stored)?;
    let resource = find(&stored.row.resources, &resource_id)?.clone();
    remove_resource(&call.state, call.tenant(), stored.id, &resource).await?;
    let gone = resource.id;
    let update = move |row: &mut SessionRow| {
        row.resources.retain(|other| other.id != gone);
        Ok(())
    };
    store.update(stored.id, update).await?;
    Ok(Json(Deleted::new(DeletedKind::SessionResource, resource.id)))
}

fn find<'r>(resources: &'r [Resource], id: &str) -> Result<&'r Resource, ApiError> {
    let missing = || ApiError::not_found(format!("the session has no resource `{}`", id.escape_debug()));
    let id: ResourceId = id.parse().map_err(|_| missing())?;
    resources.iter().find(|resource| resource.id == id).ok_or_else(missing)
}
