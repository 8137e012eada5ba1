//! Environments: one row for each. The unique name of the row is derived from the environment's name.

use conjure_api::{
    ArchivableListQuery, ConfigUpdate, Environment, EnvironmentConfig, EnvironmentId, EnvironmentUpdate,
    Page, Patch, patch_metadata,
};
use conjure_base::{Digest, TenantId};
use conjure_journal::{NewRecord, Record, RecordContent, RecordKind, Records};

use crate::http::ApiError;
use crate::objects::environment_config::check_config;
use crate::objects::rows::{ARCHIVED, Rows, archived, decode, encode, not_written, now, with_archived};

static ENVIRONMENT: RecordKind = RecordKind::from_static("environment");

/// The environments of a tenant.
#[derive(Clone, Copy)]
pub(crate) struct Environments<'r> {
    rows: Rows<'r>,
}

impl<'r> Environments<'r> {
    pub(crate) const fn new(records: &'r dyn Records, tenant: &'r TenantId) -> Self {
        Self { rows: Rows { records, tenant, kind: &ENVIRONMENT } }
    }

    /// Stores a new environment.
    pub(crate) async fn create(&self, environment: Environment) -> Result<Environment, ApiError> {
        check_config(&environment.config)?;
        let record = NewRecord::new(self.rows.key(environment.id)?, content(&environment)?);
        let written = self.rows.records.insert(record).await;
        written.map_err(not_written).and_then(|record| read(&record))
    }

    /// An environment.
    pub(crate) async fn get(&self, id: EnvironmentId) -> Result<Environment, ApiError> {
        read(&self.rows.get(id).await?)
    }

    /// Changes an environment.
    pub(crate) async fn update(
        &self,
        id: EnvironmentId,
        update: EnvironmentUpdate,
    ) -> Result<Environment, ApiError> {
        self.rows
            .change(id, |record| {
                let environment = read(record)?;
                if environment.archived_at.is_some() {
                    let message = format!("the environment {id} is archived and cannot be changed");
                    return Err(ApiError::invalid(message).with_code(Some("environment_archived")));
                }
                let changed = updated(environment, update.clone())?;
                let content = content(&changed)?;
                Ok((changed, Some(content)))
            })
            .await
    }

    /// Archives an environment, and frees its name. Does nothing if it is archived already.
    pub(crate) async fn archive(&self, id: EnvironmentId) -> Result<Environment, ApiError> {
        self.rows
            .change(id, |record| {
                let environment = read(record)?;
                if environment.archived_at.is_some() {
                    return Ok((environment, None));
                }
                let time = now();
                let environment = Environment { archived_at: Some(time), updated_at: time, ..environment };
                let content = content(&environment)?;
                Ok((environment, Some(content)))
            })
            .await
    }

    /// Deletes an environment.
    pub(crate) async fn delete(&self, id: EnvironmentId) -> Result<(), ApiError> {
        self.rows.delete(id).await
    }

    /// A page of environments, the newest first.
    pub(crate) async fn list(&self, query: &ArchivableListQuery) -> Result<Page<Environment>, ApiError> {
        self.rows.page(with_archived(self.rows.query(), query.include_archived), &query.page, read).await
    }
}

/// The environment after an update.
fn updated(mut environment: Environment, update: EnvironmentUpdate) -> Result<Environment, ApiError> {
    let changes_config = update.config.is_some();
    environment.config = match (environment.config, update.config) {
        (config, None) => config,
        (EnvironmentConfig::SelfHosted, Some(ConfigUpdate::SelfHosted)) => EnvironmentConfig::SelfHosted,
        (EnvironmentConfig::Cloud(cloud), Some(ConfigUpdate::Cloud(update))) => {
            EnvironmentConfig::Cloud(cloud.updated(update)?)
        }
        (_, Some(_)) => {
            let message = "config.type: the type of an environment cannot change; make another environment";
            return Err(ApiError::invalid(message).with_code(Some("invalid_config_type_change")));
        }
    };
    // An unchanged configuration is not checked, since it may be older than a rule.
    if changes_config {
        check_config(&environment.config)?;
    }
    environment.description = match update.description {
        Patch::Keep => environment.description,
        Patch::Clear => None,
        Patch::Set(text) => Some(text),
    };
    patch_metadata(&mut environment.metadata, update.metadata)?;
    environment.name = update.name.unwrap_or(environment.name);
    environment.updated_at = now();
    Ok(environment)
}

fn content(environment: &Environment) -> Result<RecordContent, ApiError> {
    let is_archived = environment.archived_at.is_some();
    let content = encode(environment)?.with_index(ARCHIVED, archived(is_archived));
    // The name is hashed: it may be longer than a unique name, and may contain any characters.
    let name = Digest::of_bytes(environment.name.as_bytes()).to_hex();
    Ok(if is_archived { content } else { content.with_unique_name(name) })
}

/// Decodes an environment from its row. Its creation time is that of the row, which orders lists.
fn read(record: &Record) -> Result<Environment, ApiError> {
    let mut environment: Environment = decode(record)?;
    environment.created_at = record.created_at.into();
    if record.version == 1 {
        environment.updated_at = environment.created_at;
    }
    Ok(environment)
}
