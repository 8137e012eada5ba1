//! The API keys of a data directory. Each key is a row outside the scope of any tenant.
//!
//! Nothing is cached, so a running server immediately sees the changes of `conjure keys` in another process.

use std::collections::BTreeSet;
use std::sync::Arc;

use conjure_base::{Digest, TenantId, Timestamp};
use conjure_journal::{
    IndexName, NewRecord, Record, RecordContent, RecordError, RecordKey, RecordKind, RecordQuery,
    RecordScope, Records,
};
use serde::{Deserialize, Serialize};

use super::key::{ApiKey, ApiKeyId};
use super::scope::Scope;

const API_KEY: RecordKind = RecordKind::from_static("api_key");
const TENANT: IndexName = IndexName::from_static("tenant");

/// The maximum length of a key's name, in characters.
const MAX_NAME: usize = 256;

/// How many rows are read at once.
const PAGE: u32 = 200;

/// The data of a key, except its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ApiKeyInfo {
    /// The public id.
    pub id: ApiKeyId,
    /// The purpose of the key, in its creator's words.
    pub name: String,
    /// The tenant that the key acts for.
    pub tenant: TenantId,
    /// The permissions of the key.
    pub scopes: BTreeSet<Scope>,
    /// When it was created.
    pub created_at: Timestamp,
    /// The time from which the key is refused; `None`: never.
    pub expires_at: Option<Timestamp>,
}

impl ApiKeyInfo {
    /// Whether the key has expired at this time.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// A key to create.
#[derive(Debug, Clone)]
pub struct NewApiKey {
    /// The tenant that the key acts for.
    pub tenant: TenantId,
    /// The purpose of the key.
    pub name: String,
    /// The permissions of the key.
    pub scopes: BTreeSet<Scope>,
    /// The time of the creation.
    pub created_at: Timestamp,
    /// The time from which the key is refused; `None`: never.
    pub expires_at: Option<Timestamp>,
}

/// Why the keys cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiKeysError {
    /// The name is not valid.
    #[error("the name of a key must have 1 to 256 characters, none of them a control character")]
    Name,
    /// The key has no scope, so it would permit nothing.
    #[error("a key needs a scope: `read`, `run` or `admin`")]
    NoScope,
    /// The machine has no entropy.
    #[error("no key can be made: {0}")]
    Entropy(#[from] std::io::Error),
    /// The rows cannot be read or written.
    #[error("the keys cannot be read or written: {0}")]
    Records(#[from] RecordError),
    /// A row cannot be read.
    #[error("the row of the key `{id}` is damaged: {reason}; revoke the key and create another one")]
    Damaged {
        /// The id of the row.
        id: String,
        /// The reason.
        reason: String,
    },
}

/// A stored key.
#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    info: ApiKeyInfo,
    secret: Digest,
}

/// The API keys of a data directory.
///
/// ```
/// # use std::sync::Arc;
/// # use conjure_base::{TenantId, Timestamp};
/// # use conjure_journal::MemoryRecords;
/// # use conjure_server::{ApiKeys, NewApiKey, Scope};
/// # futures_util::FutureExt::now_or_never(async {
/// let keys = ApiKeys::new(Arc::new(MemoryRecords::new()));
/// let new = NewApiKey {
///     tenant: TenantId::new("acme")?,
///     name: "build server".to_owned(),
///     scopes: [Scope::Read, Scope::Run].into(),
///     created_at: Timestamp::from_millis(0),
///     expires_at: None,
/// };
/// let key = keys.create(new).await?;
/// assert_eq!(keys.find(&key).await?.map(|known| known.name).as_deref(), Some("build server"));
/// assert!(keys.revoke(key.id()).await?);
/// assert_eq!(keys.find(&key).await?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ApiKeys {
    records: Arc<dyn Records>,
}

impl ApiKeys {
    /// Uses the keys in these records.
    #[must_use]
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self { records }
    }

    /// Creates a key. Only its digest is stored, so from then on only the caller knows the secret.
    ///
    /// # Errors
    /// If the name or the scopes are not valid, or the row cannot be written.
    pub async fn create(&self, new: NewApiKey) -> Result<ApiKey, ApiKeysError> {
        let NewApiKey { tenant, name, scopes, created_at, expires_at } = new;
        let length = name.chars().count();
        if length == 0 || length > MAX_NAME || name.chars().any(char::is_control) {
            return Err(ApiKeysError::Name);
        }
        if scopes.is_empty() {
            return Err(ApiKeysError::NoScope);
        }
        let key = ApiKey::random()?;
        let info = ApiKeyInfo { id: key.id(), name, tenant, scopes, created_at, expires_at };
        let row = Row { info, secret: key.secret_digest() };
        let body = serde_json::to_vec(&row).map_err(|error| damaged(&key.id().to_string(), &error))?;
        let content = RecordContent::new(body).with_index(TENANT, row.info.tenant.as_str());
        self.records.insert(NewRecord::new(row_key(key.id())?, content)).await?;
        Ok(key)
    }

    /// The data of a key. `None` if it does not exist or was revoked. The key may have expired.
    ///
    /// # Errors
    /// If the row cannot be read.
    pub async fn find(&self, key: &ApiKey) -> Result<Option<ApiKeyInfo>, ApiKeysError> {
        let Some(record) = self.records.get(&row_key(key.id())?).await? else { return Ok(None) };
        let row = read(&record)?;
        Ok(key.has_digest(&row.secret).then_some(row.info))
    }

    /// The data of the key with this id. `None` if it does not exist or was revoked. The key may have expired.
    ///
    /// # Errors
    /// If the row cannot be read.
    pub async fn get(&self, id: ApiKeyId) -> Result<Option<ApiKeyInfo>, ApiKeysError> {
        let record = self.records.get(&row_key(id)?).await?;
        record.map(|record| Ok(read(&record)?.info)).transpose()
    }

    /// Whether any key exists.
    ///
    /// # Errors
    /// If the rows cannot be read.
    pub async fn any(&self) -> Result<bool, ApiKeysError> {
        let query = RecordQuery::new(RecordScope::System, API_KEY).with_limit(1);
        Ok(!self.records.query(query).await?.records.is_empty())
    }

    /// All keys of this tenant, or of all tenants, the newest first.
    ///
    /// # Errors
    /// If the rows cannot be read.
    pub async fn list(&self, tenant: Option<&TenantId>) -> Result<Vec<ApiKeyInfo>, ApiKeysError> {
        let mut query = RecordQuery::new(RecordScope::System, API_KEY).with_limit(PAGE);
        if let Some(tenant) = tenant {
            query = query.with_filter(TENANT, tenant.as_str());
        }
        let mut found = Vec::new();
        loop {
            let page = self.records.query(query.clone()).await?;
            for record in &page.records {
                found.push(read(record)?.info);
            }
            let Some(next) = page.next else { return Ok(found) };
            query = query.with_after(next);
        }
    }

    /// Revokes a key: it is refused from now on, and its streams end. Returns whether the key existed.
    ///
    /// # Errors
    /// If the row cannot be deleted.
    pub async fn revoke(&self, id: ApiKeyId) -> Result<bool, ApiKeysError> {
        Ok(self.records.delete(&row_key(id)?, None).await?)
    }
}

fn row_key(id: ApiKeyId) -> Result<RecordKey, RecordError> {
    Ok(RecordKey::new(RecordScope::System, API_KEY, id.to_string())?)
}

fn read(record: &Record) -> Result<Row, ApiKeysError> {
    serde_json::from_slice(&record.content.body).map_err(|error| damaged(record.key.id(), &error))
}

fn damaged(id: &str, error: &serde_json::Error) -> ApiKeysError {
    ApiKeysError::Damaged { id: id.to_owned(), reason: error.to_string() }
}
