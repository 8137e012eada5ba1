//! [`SkillReader`]: lists the skills of a running server, and reads and verifies their files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use conjure_base::text::strip_deceptive;
use conjure_skill::raw_document;
use rmcp::model::{
    ErrorCode, GetSkillRequestParams, JsonObject, PaginatedRequestParams, ReadResourceRequestParams,
    ResourceContents, SkillResource,
};
use rmcp::service::Peer;
use rmcp::{RoleClient, ServiceError};

use super::listed_skill::{ListedFile, ListedSkill, SkillListing};

/// The maximum number of pages of a list.
const MAX_PAGES: usize = 64;

/// Requests the skills of one server.
pub(in crate::client) struct SkillReader<'p>(pub(in crate::client) &'p Peer<RoleClient>);

/// Why the files of a skill could not be read.
pub(in crate::client) enum SkillReadError {
    Service(ServiceError),
    /// The skill has changed since the user approved it.
    Changed,
    /// The server's files do not match its listing.
    Wrong(String),
}

/// A skill with verified files.
pub(in crate::client) struct VerifiedSkill {
    /// The text of `SKILL.md` after the frontmatter.
    pub(super) instructions: String,
    pub(super) files: Vec<SkillFile>,
}

/// A file with its content.
pub(super) struct SkillFile {
    /// The path in the skill's directory.
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
}

impl SkillReader<'_> {
    /// Whether the server declares skills.
    pub(in crate::client) fn has_skills(&self) -> bool {
        self.0.peer_info().is_some_and(|info| info.capabilities.supports_skills())
    }

    /// Lists all skills of the server.
    pub(in crate::client) async fn list(&self) -> Result<SkillListing, ServiceError> {
        let mut listing = SkillListing::default();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let mut params = PaginatedRequestParams::default();
            params.cursor = cursor;
            let page = self.0.list_skills(Some(params)).await?;
            if !page.skills.into_iter().all(|skill| listing.add(skill)) {
                return Ok(listing);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(listing);
            }
        }
        listing
            .skipped
            .push(format!("its list of skills has more than {MAX_PAGES} pages; the others are left out"));
        Ok(listing)
    }

    /// Reads all files of a skill. Verifies that they match the listed digests, and that the frontmatter is the listed one.
    pub(in crate::client) async fn read(&self, skill: &ListedSkill) -> Result<VerifiedSkill, SkillReadError> {
        match self.0.get_skill(GetSkillRequestParams::new(skill.uri.clone())).await {
            Ok(found) => {
                let current = ListedSkill::from_wire(found.skill).map_err(SkillReadError::Wrong)?;
                if current.version != skill.version || current.frontmatter != skill.frontmatter {
                    return Err(SkillReadError::Changed);
                }
            }
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::INVALID_PARAMS => {
                return Err(SkillReadError::Changed);
            }
            Err(error) => return Err(SkillReadError::Service(error)),
        }
        let mut files = Vec::with_capacity(skill.files.len());
        for file in &skill.files {
            files.push(SkillFile { path: file.path.clone(), bytes: self.read_file(file).await? });
        }
        let main = files.iter().find(|file| file.path == "SKILL.md");
        let main = main.map(|file| String::from_utf8_lossy(&file.bytes)).unwrap_or_default();
        let (fields, instructions) = raw_document(&main).map_err(|error| {
            SkillReadError::Wrong(format!("its `SKILL.md` cannot be read: {}", error.message()))
        })?;
        match differing_field(&fields, &skill.frontmatter) {
            None => Ok(VerifiedSkill { instructions, files }),
            Some(field) => Err(SkillReadError::Wrong(format!(
                "the field `{field}` of its `SKILL.md` is not what the server lists"
            ))),
        }
    }

    async fn read_file(&self, file: &ListedFile) -> Result<Vec<u8>, SkillReadError> {
        let wrong = |reason: String| SkillReadError::Wrong(format!("its file `{}` {reason}", file.path));
        let params = ReadResourceRequestParams::new(file.uri.clone());
        let read = self.0.read_resource(params).await.map_err(SkillReadError::Service)?;
        let mut contents = read.contents.into_iter();
        let bytes = match (contents.next(), contents.next()) {
            (Some(ResourceContents::TextResourceContents { text, .. }), None) => text.into_bytes(),
            (Some(ResourceContents::BlobResourceContents { blob, .. }), None) => {
                BASE64.decode(blob).map_err(|_| wrong("is no base64".to_owned()))?
            }
            _ => return Err(wrong("does not have exactly one content".to_owned())),
        };
        let listed = SkillResource::new(file.uri.clone(), file.digest.clone(), file.size);
        listed
            .verify(&bytes)
            .map_err(|error| wrong(format!("is not the one that was agreed to: {error}")))?;
        Ok(bytes)
    }
}

/// The first field that is missing in one of them or has another value. Invisible characters do not count, because our own server removes
/// them from what it lists.
fn differing_field(one: &JsonObject, other: &JsonObject) -> Option<String> {
    let visible = |fields: &JsonObject, key: &str| {
        fields.get(key).map(|value| strip_deceptive(&value.to_string()).into_owned())
    };
    let differs = |key: &&String| visible(one, key) != visible(other, key);
    one.keys().chain(other.keys()).find(differs).cloned()
}
