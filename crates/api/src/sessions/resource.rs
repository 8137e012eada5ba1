//! Resources of a session: files that are mounted in its sandbox.

use serde::{Deserialize, Serialize};

use crate::common::input::ObjectInput;
use crate::{FileId, RequestBody, RequestError, ResourceId, Time};

/// The directory in which files are mounted by default.
const UPLOADS: &str = "/mnt/session/uploads";

/// System directories. Nothing may be mounted in them.
const SYSTEM_DIRS: [&str; 5] = ["/proc", "/sys", "/dev", "/usr", "/etc"];

const MAX_PATH: usize = 4_096;
const MAX_COMPONENT: usize = 255;
const MAX_ID: usize = 256;

/// A file that is mounted in a session's sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "file")]
pub struct Resource {
    /// The id of the resource.
    pub id: ResourceId,
    /// When it was added.
    pub created_at: Time,
    /// The file.
    pub file_id: FileId,
    /// The path at which the file is mounted.
    pub mount_path: String,
    /// When it was last changed.
    pub updated_at: Time,
}

/// A resource that a client requests. It is also the body of `POST /v1/sessions/{id}/resources`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceCreate {
    /// The id of the file, as the client sent it.
    pub file_id: String,
    /// The path at which the file should be mounted; `None` for the default path.
    pub mount_path: Option<String>,
}

#[derive(Clone, Copy)]
enum Kind {
    File,
    Repository,
    Memory,
}

impl RequestBody for ResourceCreate {
    fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError> {
        let path = object.path().to_owned();
        let kind = object.kind(&[
            ("file", Kind::File),
            ("github_repository", Kind::Repository),
            ("memory_store", Kind::Memory),
        ])?;
        match kind {
            Kind::File => {}
            Kind::Repository => {
                return Err(RequestError::unsupported(
                    path,
                    "repositories as resources (`github_repository`)",
                ));
            }
            Kind::Memory => {
                return Err(RequestError::unsupported(path, "memory stores as resources (`memory_store`)"));
            }
        }
        Ok(Self {
            file_id: object.required("file_id")?.text(1..=MAX_ID)?,
            mount_path: read_mount_path(object)?,
        })
    }
}

impl ResourceCreate {
    /// The path at which the file is mounted.
    #[must_use]
    pub fn mount_path_or_default(&self, file: FileId) -> String {
        self.mount_path.clone().unwrap_or_else(|| format!("{UPLOADS}/{file}"))
    }
}

fn read_mount_path(object: &mut ObjectInput<'_>) -> Result<Option<String>, RequestError> {
    let Some(input) = object.optional("mount_path") else { return Ok(None) };
    let path = input.text(1..=MAX_PATH)?;
    let Some(relative) = path.strip_prefix('/') else {
        return Err(input.error(format!("`{path}` is not absolute; begin it with `/`")));
    };
    let is_plain = |name: &str| {
        !matches!(name, "" | "." | "..") && name.len() <= MAX_COMPONENT && !name.contains(char::is_control)
    };
    if !relative.split('/').all(is_plain) {
        return Err(input.error(format!(
            "`{}` is not the plain path of a file; write it without `.`, `..`, empty and overlong names",
            path.escape_debug()
        )));
    }
    let is_within =
        |dir: &str| path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if let Some(dir) = SYSTEM_DIRS.into_iter().find(|dir| is_within(dir)) {
        return Err(input.error(format!("files cannot be mounted within `{dir}`; choose another place")));
    }
    Ok(Some(path))
}
