//! Vaults: one row for each.

use conjure_api::{ArchivableListQuery, Page, Vault, VaultId, VaultUpdate, patch_metadata};
use conjure_base::TenantId;
use conjure_journal::{NewRecord, Record, RecordContent, RecordKind, Records};

use crate::http::ApiError;
use crate::objects::rows::{ARCHIVED, Rows, archived, decode, encode, now, with_archived};

static VAULT: RecordKind = RecordKind::from_static("vault");

/// The vaults of a tenant.
#[derive(Clone, Copy)]
pub(crate) struct Vaults<'r> {
    rows: Rows<'r>,
}

impl<'r> Vaults<'r> {
    pub(crate) const fn new(records: &'r dyn Records, tenant: &'r TenantId) -> Self {
        Self { rows: Rows { records, tenant, kind: &VAULT } }
    }

    /// Stores a new vault.
    pub(crate) async fn create(&self, vault: Vault) -> Result<Vault, ApiError> {
        let record = NewRecord::new(self.rows.key(vault.id)?, content(&vault)?);
        read(&self.rows.records.insert(record).await?)
    }

    /// A vault.
    pub(crate) async fn get(&self, id: VaultId) -> Result<Vault, ApiError> {
        read(&self.rows.get(id).await?)
    }

    /// The vault with this id. Fails if it is archived.
    pub(crate) async fn get_active(&self, id: VaultId) -> Result<Vault, ApiError> {
        let vault = self.get(id).await?;
        if vault.archived_at.is_some() {
            return Err(ApiError::invalid(format!("the vault `{id}` is archived; name another")));
        }
        Ok(vault)
    }

    /// Changes a vault.
    pub(crate) async fn update(&self, id: VaultId, update: VaultUpdate) -> Result<Vault, ApiError> {
        self.rows
            .change(id, |record| {
                let mut vault = read(record)?;
                if vault.archived_at.is_some() {
                    let message = format!("the vault `{id}` is archived and cannot be changed");
                    return Err(ApiError::invalid(message));
                }
                if let Some(name) = &update.display_name {
                    vault.display_name.clone_from(name);
                }
                patch_metadata(&mut vault.metadata, update.metadata.clone())?;
                vault.updated_at = now();
                let content = content(&vault)?;
                Ok((vault, Some(content)))
            })
            .await
    }

    /// Archives a vault. Does nothing if it is archived already.
    pub(crate) async fn archive(&self, id: VaultId) -> Result<Vault, ApiError> {
        self.rows
            .change(id, |record| {
                let vault = read(record)?;
                if vault.archived_at.is_some() {
                    return Ok((vault, None));
                }
                let time = now();
                let vault = Vault { archived_at: Some(time), updated_at: time, ..vault };
                let content = content(&vault)?;
                Ok((vault, Some(content)))
            })
            .await
    }

    /// Deletes a vault.
    pub(crate) async fn delete(&self, id: VaultId) -> Result<(), ApiError> {
        self.rows.delete(id).await
    }

    /// A page of vaults, the newest first.
    pub(crate) async fn list(&self, query: &ArchivableListQuery) -> Result<Page<Vault>, ApiError> {
        self.rows.page(with_archived(self.rows.query(), query.include_archived), &query.page, read).await
    }
}

fn content(vault: &Vault) -> Result<RecordContent, ApiError> {
    Ok(encode(vault)?.with_index(ARCHIVED, archived(vault.archived_at.is_some())))
}

/// Decodes a vault from its row. Its creation time is that of the row, which orders lists.
fn read(record: &Record) -> Result<Vault, ApiError> {
    let mut vault: Vault = decode(record)?;
    vault.created_at = record.created_at.into();
    Ok(vault)
}
