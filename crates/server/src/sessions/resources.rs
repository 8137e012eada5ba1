//! Resources: files that are copied into the session's workspace before its first command.

use std::path::{Path, PathBuf};

use conjure_api::{FileId, Resource, ResourceCreate, ResourceId};
use conjure_base::{SessionId, TenantId};
use conjure_runtime::{RuntimeError, SessionSpec};

use super::outputs::OUTPUTS_DIR;
use crate::http::ApiError;
use crate::objects::{Files, now};
use crate::state::ServerState;

/// The API's directories for uploads and outputs, as commands see them.
const UPLOADS: &str = "/mnt/session/uploads";
const OUTPUTS: &str = "/mnt/session/outputs";

/// The upload directory, in the workspace.
const UPLOADS_DIR: &str = ".session/uploads";

/// The workspace, as commands in a jail or container see it.
const WORKSPACE: &str = "/workspace";

/// Creates the resources of a request, with ids. Their files must exist.
///
/// # Errors
/// 404 if a file does not exist. 400 for a mount path that is not valid or is used twice.
pub(crate) async fn new_resources(
    state: &ServerState,
    tenant: &TenantId,
    wanted: &[ResourceCreate],
) -> Result<Vec<Resource>, ApiError> {
    let mut resources: Vec<Resource> = Vec::with_capacity(wanted.len());
    for (place, create) in wanted.iter().enumerate() {
        let resource = new_resource(state, tenant, create, &format!("resources.{place}")).await?;
        if resources.iter().any(|other| other.mount_path == resource.mount_path) {
            return Err(ApiError::invalid(format!(
                "resources.{place}.mount_path: `{}` is there twice; choose another place",
                resource.mount_path.escape_debug()
            )));
        }
        resources.push(resource);
    }
    Ok(resources)
}

/// Creates one resource of a request. `field` is the prefix of error messages.
///
/// # Errors
/// As [`new_resources`].
pub(crate) async fn new_resource(
    state: &ServerState,
    tenant: &TenantId,
    create: &ResourceCreate,
    field: &str,
) -> Result<Resource, ApiError> {
    let file_id: FileId = create.file_id.parse()?;
    Files::new(&*state.records, tenant).available(file_id).await?;
    let mount_path = create.mount_path_or_default(file_id);
    workspace_place(&mount_path, field)?;
    let id = ResourceId::random().map_err(|error| ApiError::internal(error.to_string()))?;
    let created_at = now();
    Ok(Resource { id, created_at, file_id, mount_path, updated_at: created_at })
}

/// Copies the file of a resource into the session's workspace.
///
/// # Errors
/// 400 if the path is taken or not valid.
pub(crate) async fn put_resource(
    state: &ServerState,
    tenant: &TenantId,
    session: SessionId,
    resource: &Resource,
    field: &str,
) -> Result<(), ApiError> {
    let place = workspace_place(&resource.mount_path, field)?;
    match state.runtime.copy_to_workspace(tenant, session, &resource.file_id.to_string(), &place).await {
        Err(RuntimeError::WorkspaceFile { reason, .. }) => Err(ApiError::invalid(format!(
            "{field}.mount_path: the file cannot be mounted at `{}`: {reason}",
            resource.mount_path.escape_debug()
        ))),
        other => Ok(other?),
    }
}

/// Removes the file of a resource from the session's workspace.
pub(crate) async fn remove_resource(
    state: &ServerState,
    tenant: &TenantId,
    session: SessionId,
    resource: &Resource,
) -> Result<(), ApiError> {
    let place = workspace_place(&resource.mount_path, "mount_path")?;
    state.runtime.remove_from_workspace(tenant, session, &place).await?;
    Ok(())
}

/// Converts a mount path to a path in the workspace.
fn workspace_place(mount_path: &str, field: &str) -> Result<PathBuf, ApiError> {
    let within = |dir: &str| mount_path.strip_prefix(dir)?.strip_prefix('/').filter(|rest| !rest.is_empty());
    if let Some(rest) = within(UPLOADS) {
        return Ok(Path::new(UPLOADS_DIR).join(rest));
    }
    if let Some(rest) = within(WORKSPACE) {
        return Ok(PathBuf::from(rest));
    }
    Err(ApiError::invalid(format!(
        "{field}.mount_path: files are mounted beneath `{UPLOADS}` and `{WORKSPACE}` here, and `{}` is beneath neither",
        mount_path.escape_debug()
    )))
}

/// Adds the directories of uploads and outputs to a session.
pub(crate) fn with_directories(spec: SessionSpec) -> SessionSpec {
    spec.workspace_mount(UPLOADS_DIR, UPLOADS).workspace_mount(OUTPUTS_DIR, OUTPUTS)
}

/// Instructions for the model: where the files are in its sandbox, and where it should leave files for the user.
pub(crate) fn files_note(state: &ServerState, resources: &[Resource]) -> String {
    // A sandbox without its own file system has only the workspace.
    let has_mounts = state.runtime.default_sandbox() == "jail";
    let (outputs, uploads, workspace) =
        if has_mounts { (OUTPUTS, UPLOADS, WORKSPACE) } else { (OUTPUTS_DIR, UPLOADS_DIR, ".") };
    let mut note = format!("Write files that the user is to get into `{outputs}`.");
    if !resources.is_empty() {
        note.push_str("\nThe user has given these files:");
        for resource in resources {
            let path = &resource.mount_path;
            let shown = match (path.strip_prefix(UPLOADS), path.strip_prefix(WORKSPACE)) {
                (Some(rest), _) => format!("{uploads}{rest}"),
                (None, Some(rest)) => format!("{workspace}{rest}"),
                (None, None) => path.clone(),
            };
            note.push_str(&format!("\n- `{shown}`"));
        }
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_path_has_one_place_in_the_workspace_or_none() {
        let place = |path: &str| workspace_place(path, "f").map(|place| place.display().to_string());
        assert_eq!(place("/mnt/session/uploads/a/b.csv").unwrap(), ".session/uploads/a/b.csv");
        assert_eq!(place("/workspace/data/a.csv").unwrap(), "data/a.csv");
        for path in [
            "/mnt/session/uploads",
            "/mnt/session/uploads/",
            "/workspace",
            "/workspacex/a",
            "/data/a.csv",
            "/",
        ] {
            assert!(place(path).is_err(), "{path}");
        }
    }
}
