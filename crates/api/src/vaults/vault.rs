//! Vaults: collections of credentials that sessions use.

use serde::{Deserialize, Serialize};

use crate::common::input::{Input, ObjectInput};
use crate::common::metadata::{self, Metadata, MetadataPatch};
use crate::{RequestError, Time, VaultId};

pub(crate) const MAX_DISPLAY_NAME: usize = 255;

const MAX_VAULTS: usize = 20;
const MAX_ID: usize = 256;

/// A vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "vault")]
pub struct Vault {
    /// Which vault.
    pub id: VaultId,
    /// When it was archived; null while it is in use.
    pub archived_at: Option<Time>,
    /// When it was made.
    pub created_at: Time,
    /// A name for people.
    pub display_name: String,
    /// Pairs of text that the client keeps here.
    pub metadata: Metadata,
    /// When it was last changed.
    pub updated_at: Time,
}

/// The body of `POST /v1/vaults`.
#[derive(Debug, Clone)]
pub struct VaultCreate {
    /// A name for people.
    pub display_name: String,
    /// Pairs of text.
    pub metadata: Metadata,
}

/// The body of `POST /v1/vaults/{id}`: what is left out stays.
#[derive(Debug, Clone)]
pub struct VaultUpdate {
    /// A name for people.
    pub display_name: Option<String>,
    /// Pairs of text to set or to remove.
    pub metadata: MetadataPatch,
}

impl VaultCreate {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// When the body is not a new vault; the error says where and how to mend it.
    pub fn from_json(body: &[u8]) -> Result<Self, RequestError> {
        let mut object = Input::body(body)?.object()?;
        let create = Self {
            display_name: object.required("display_name")?.text(1..=MAX_DISPLAY_NAME)?,
            metadata: metadata::read(&mut object)?,
        };
        object.finish()?;
        Ok(create)
    }
}

impl VaultUpdate {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// When the body is not an update of a vault; the error says where and how to mend it.
    pub fn from_json(body: &[u8]) -> Result<Self, RequestError> {
        let mut object = Input::body(body)?.object()?;
        let display_name = object.optional("display_name");
        let update = Self {
            display_name: display_name.map(|name| name.text(1..=MAX_DISPLAY_NAME)).transpose()?,
            metadata: metadata::read_patch(&mut object)?,
        };
        object.finish()?;
        Ok(update)
    }
}

/// Reads the list `vault_ids` of a new session, as the client wrote the ids.
pub(crate) fn read_vault_ids(object: &mut ObjectInput<'_>) -> Result<Vec<String>, RequestError> {
    let Some(input) = object.optional("vault_ids") else { return Ok(Vec::new()) };
    input.array("vaults", MAX_VAULTS)?.into_iter().map(|id| id.text(1..=MAX_ID)).collect()
}
