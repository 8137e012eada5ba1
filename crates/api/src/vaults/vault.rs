//! Vaults: collections of credentials that sessions use.

use serde::{Deserialize, Serialize};

use crate::common::input::ObjectInput;
use crate::common::metadata::{self, Metadata, MetadataPatch};
use crate::{RequestBody, RequestError, Time, VaultId};

pub(crate) const MAX_DISPLAY_NAME: usize = 255;

const MAX_VAULTS: usize = 20;
const MAX_ID: usize = 256;

/// A vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "vault")]
pub struct Vault {
    /// The id of the vault.
    pub id: VaultId,
    /// When it was archived; null while it is in use.
    pub archived_at: Option<Time>,
    /// When it was created.
    pub created_at: Time,
    /// A display name.
    pub display_name: String,
    /// Key-value pairs of the client.
    pub metadata: Metadata,
    /// When it was last changed.
    pub updated_at: Time,
}

/// The body of `POST /v1/vaults`.
#[derive(Debug, Clone)]
pub struct VaultCreate {
    /// A display name.
    pub display_name: String,
    /// Key-value pairs of the client.
    pub metadata: Metadata,
}

/// The body of `POST /v1/vaults/{id}`. Absent fields keep their values.
#[derive(Debug, Clone)]
pub struct VaultUpdate {
    /// A display name.
    pub display_name: Option<String>,
    /// The keys to set or to remove.
    pub metadata: MetadataPatch,
}

impl RequestBody for VaultCreate {
    fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError> {
        Ok(Self {
            display_name: object.required("display_name")?.text(1..=MAX_DISPLAY_NAME)?,
            metadata: metadata::read(object)?,
        })
    }
}

impl RequestBody for VaultUpdate {
    fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError> {
        let display_name = object.optional("display_name");
        Ok(Self {
            display_name: display_name.map(|name| name.text(1..=MAX_DISPLAY_NAME)).transpose()?,
            metadata: metadata::read_patch(object)?,
        })
    }
}

/// Reads the list `vault_ids` of a new session, with the ids as the client sent them.
pub(crate) fn read_vault_ids(object: &mut ObjectInput<'_>) -> Result<Vec<String>, RequestError> {
    let Some(input) = object.optional("vault_ids") else { return Ok(Vec::new()) };
    input.array("vaults", MAX_VAULTS)?.into_iter().map(|id| id.text(1..=MAX_ID)).collect()
}
