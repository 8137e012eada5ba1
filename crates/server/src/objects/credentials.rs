//! Credentials of a vault. Each has one row with its public fields and its sealed secrets, so both change atomically.

use conjure_api::{
    ArchivableListQuery, Credential, CredentialAuth, CredentialAuthUpdate, CredentialCreate, CredentialId,
    CredentialSecrets, CredentialUpdate, Page, Patch, Secret, TokenEndpointAuth, VaultId, patch_metadata,
};
use conjure_base::TenantId;
use conjure_journal::{NewRecord, Record, RecordContent, RecordErrorKind, RecordQuery};
use conjure_vault::{
    CREDENTIAL, ClientAuth, CredentialSecret, CredentialStore, IN_VAULT, OAuthRefresh, OAuthTokens,
    StoredCredential, server_address,
};
use serde_json::value::{RawValue, to_raw_value};

use crate::http::ApiError;
use crate::objects::rows::{
    ARCHIVED, MAX_ATTEMPTS, Rows, archived, busy, damaged, now, unless_lost, with_archived,
};
use crate::state::ServerState;

/// The maximum number of active credentials of a vault.
const MAX_CREDENTIALS: u32 = 20;

/// The credentials of one vault.
pub(crate) struct Credentials<'r> {
    rows: Rows<'r>,
    store: CredentialStore<'r>,
    vault: VaultId,
}

impl<'r> Credentials<'r> {
    pub(crate) async fn open(
        state: &'r ServerState,
        tenant: &'r TenantId,
        vault: VaultId,
    ) -> Result<Self, ApiError> {
        let rows = Rows { records: &*state.records, tenant, kind: &CREDENTIAL };
        Ok(Self { rows, store: state.runtime.vaults().credentials(tenant).await?, vault })
    }

    /// Stores a new credential. A vault has at most one active credential for each server.
    pub(crate) async fn create(&self, create: CredentialCreate) -> Result<Credential, ApiError> {
        let id = CredentialId::random().map_err(|error| ApiError::internal(error.to_string()))?;
        let url = create.auth.mcp_server_url().to_owned();
        let address = server_address(&url)
            .ok_or_else(|| ApiError::invalid("auth.mcp_server_url: the value is no address of a server"))?;
        let active = with_archived(self.in_vault(), false).with_limit(MAX_CREDENTIALS);
        if self.rows.records.query(active).await?.records.len() >= MAX_CREDENTIALS as usize {
            let message = format!(
                "a vault has at most {MAX_CREDENTIALS} credentials; archive one, or use another vault"
            );
            return Err(ApiError::invalid(message));
        }
        let time = now();
        let secret = new_secret(&create.auth, create.secrets);
        let credential = Credential {
            id,
            archived_at: None,
            auth: create.auth,
            created_at: time,
            display_name: create.display_name,
            metadata: create.metadata,
            updated_at: time,
            vault_id: self.vault,
        };
        let mut stored = StoredCredential::new(self.vault.to_string(), address, shown(&credential)?);
        self.store.seal(&id.to_string(), &mut stored, &secret)?;
        let record = NewRecord::new(self.rows.key(id)?, content(&stored)?);
        match self.rows.records.insert(record).await {
            Ok(record) => read(&record, &stored),
            Err(error) if error.kind() == RecordErrorKind::NameTaken => Err(ApiError::conflict(format!(
                "auth.mcp_server_url: the vault has a credential for `{url}` already; update or archive that one"
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// A credential.
    pub(crate) async fn get(&self, id: CredentialId) -> Result<Credential, ApiError> {
        let (record, stored) = self.stored(id).await?;
        read(&record, &stored)
    }

    /// Changes a credential.
    pub(crate) async fn update(
        &self,
        id: CredentialId,
        update: &CredentialUpdate,
    ) -> Result<Credential, ApiError> {
        self.change(id, |credential, stored| {
            let Some(secret) = self.store.open(&id.to_string(), stored)? else {
                let message = format!("the credential `{id}` is archived and cannot be changed");
                return Err(ApiError::invalid(message));
            };
            if let Some(auth) = &update.auth {
                let secret = changed_secret(&mut credential.auth, secret, auth)?;
                self.store.seal(&id.to_string(), stored, &secret)?;
            }
            credential.display_name = update.display_name.clone().apply(credential.display_name.take());
            patch_metadata(&mut credential.metadata, update.metadata.clone())?;
            credential.updated_at = now();
            Ok(true)
        })
        .await
    }

    /// Archives a credential, and erases its secrets. Does nothing if it is archived already.
    pub(crate) async fn archive(&self, id: CredentialId) -> Result<Credential, ApiError> {
        self.change(id, |credential, stored| {
            if credential.archived_at.is_some() {
                return Ok(false);
            }
            let time = now();
            (credential.archived_at, credential.updated_at) = (Some(time), time);
            stored.purge();
            Ok(true)
        })
        .await
    }

    /// Deletes a credential.
    pub(crate) async fn delete(&self, id: CredentialId) -> Result<(), ApiError> {
        let (record, _) = self.stored(id).await?;
        self.rows.records.delete(&record.key, None).await?;
        Ok(())
    }

    /// Archives all credentials of the vault.
    pub(crate) async fn archive_all(&self) -> Result<(), ApiError> {
        for id in self.all().await? {
            match self.archive(id).await {
                Err(error) if error.status() != axum::http::StatusCode::NOT_FOUND => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Deletes all credentials of the vault.
    pub(crate) async fn delete_all(&self) -> Result<(), ApiError> {
        for id in self.all().await? {
            self.rows.remove(id).await?;
        }
        Ok(())
    }

    /// A page of credentials, the newest first.
    pub(crate) async fn list(&self, query: &ArchivableListQuery) -> Result<Page<Credential>, ApiError> {
        let wanted = with_archived(self.in_vault(), query.include_archived);
        self.rows
            .page(wanted, &query.page, |record| read(record, &StoredCredential::from_record(record)?))
            .await
    }

    /// A query for the credentials of the vault.
    fn in_vault(&self) -> RecordQuery {
        self.rows.query().with_filter(IN_VAULT, self.vault.to_string())
    }

    async fn all(&self) -> Result<Vec<CredentialId>, ApiError> {
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let query = self.in_vault().with_after(after);
            let page = self.rows.records.query(query).await?;
            for record in page.records {
                ids.push(record.key.id().parse()?);
            }
            after = page.next;
            if after.is_none() {
                return Ok(ids);
            }
        }
    }

    /// The record of a credential of this vault.
    async fn stored(&self, id: CredentialId) -> Result<(Record, StoredCredential), ApiError> {
        let missing = || ApiError::not_found(format!("the vault `{}` has no credential `{id}`", self.vault));
        let record = self.rows.find(id).await?.ok_or_else(missing)?;
        let stored = StoredCredential::from_record(&record)?;
        if stored.vault != self.vault.to_string() {
            return Err(missing());
        }
        Ok((record, stored))
    }

    /// Changes a credential. `change` returns whether to store the result, and runs again after a conflicting write.
    async fn change(
        &self,
        id: CredentialId,
        change: impl Fn(&mut Credential, &mut StoredCredential) -> Result<bool, ApiError>,
    ) -> Result<Credential, ApiError> {
        for _ in 0..MAX_ATTEMPTS {
            let (record, mut stored) = self.stored(id).await?;
            let mut credential = read(&record, &stored)?;
            if !change(&mut credential, &mut stored)? {
                return Ok(credential);
            }
            stored.shown = shown(&credential)?;
            let written = self.rows.records.replace(&record.key, record.version, content(&stored)?).await;
            if let Some(record) = unless_lost(written)? {
                return read(&record, &stored);
            }
        }
        Err(busy())
    }
}

fn shown(credential: &Credential) -> Result<Box<RawValue>, ApiError> {
    to_raw_value(credential).map_err(|error| damaged(&error))
}

fn content(stored: &StoredCredential) -> Result<RecordContent, ApiError> {
    Ok(stored.content()?.with_index(ARCHIVED, archived(!stored.is_active())))
}

/// Decodes a credential from its row. Its creation time is that of the row. Its token may have been renewed since a client wrote it.
fn read(record: &Record, stored: &StoredCredential) -> Result<Credential, ApiError> {
    let mut credential: Credential =
        serde_json::from_str(stored.shown.get()).map_err(|error| damaged(&error))?;
    credential.created_at = record.created_at.into();
    if let CredentialAuth::McpOauth { expires_at, .. } = &mut credential.auth {
        *expires_at = stored.expires_at.map(Into::into);
    }
    Ok(credential)
}

/// The secrets of a new credential.
fn new_secret(auth: &CredentialAuth, secrets: CredentialSecrets) -> CredentialSecret {
    let CredentialSecrets { token: Secret(token), refresh_token, client_secret } = secrets;
    match auth {
        CredentialAuth::StaticBearer { .. } => CredentialSecret::Bearer { token: token.into() },
        CredentialAuth::McpOauth { expires_at, refresh, .. } => {
            let secret = |secret: Option<Secret>| secret.map(|Secret(text)| text).unwrap_or_default();
            let refresh = refresh.as_ref().map(|refresh| OAuthRefresh {
                client_id: refresh.client_id.clone(),
                refresh_token: secret(refresh_token).into(),
                token_endpoint: refresh.token_endpoint.clone(),
                client_auth: match refresh.token_endpoint_auth {
                    TokenEndpointAuth::None => ClientAuth::None,
                    TokenEndpointAuth::ClientSecretBasic => {
                        ClientAuth::Basic { client_secret: secret(client_secret).into() }
                    }
                    TokenEndpointAuth::ClientSecretPost => {
                        ClientAuth::Post { client_secret: secret(client_secret).into() }
                    }
                },
                resource: refresh.resource.clone(),
                scope: refresh.scope.clone(),
            });
            let expires_at = expires_at.map(|time| time.0);
            CredentialSecret::OAuth(OAuthTokens {
                access_token: token.into(),
                expires_at,
                refresh,
                scope: None,
            })
        }
    }
}

/// The secrets after an update, and the public fields about them.
fn changed_secret(
    auth: &mut CredentialAuth,
    secret: CredentialSecret,
    update: &CredentialAuthUpdate,
) -> Result<CredentialSecret, ApiError> {
    match (auth, secret, update) {
        (
            CredentialAuth::StaticBearer { .. },
            CredentialSecret::Bearer { token },
            CredentialAuthUpdate::StaticBearer { token: new },
        ) => {
            let token = new.as_ref().map_or(token, |Secret(new)| new.as_str().into());
            Ok(CredentialSecret::Bearer { token })
        }
        (
            CredentialAuth::McpOauth { refresh: shown, .. },
            CredentialSecret::OAuth(mut tokens),
            CredentialAuthUpdate::McpOauth { access_token, expires_at, refresh },
        ) => {
            if let Some(Secret(new)) = access_token {
                tokens.access_token = new.as_str().into();
            }
            match expires_at {
                Patch::Keep => {}
                Patch::Clear => tokens.expires_at = None,
                Patch::Set(time) => tokens.expires_at = Some(time.0),
            }
            if let Some(update) = refresh {
                let (Some(refresh), Some(shown)) = (&mut tokens.refresh, shown) else {
                    return Err(ApiError::invalid(
                        "auth.refresh: the credential was made without a refresh token; make a new credential",
                    ));
                };
                if let Some(Secret(new)) = &update.refresh_token {
                    refresh.refresh_token = new.as_str().into();
                }
                if let Some(scope) = &update.scope {
                    refresh.scope = Some(scope.clone()).filter(|scope| !scope.is_empty());
                    shown.scope.clone_from(&refresh.scope);
                }
                match (&mut refresh.client_auth, &update.client_secret) {
                    (_, None) => {}
                    (ClientAuth::None, Some(_)) => {
                        return Err(ApiError::invalid(
                            "auth.refresh.token_endpoint_auth: the credential's client has no secret; make a new credential",
                        ));
                    }
                    (
                        ClientAuth::Basic { client_secret } | ClientAuth::Post { client_secret },
                        Some(Secret(new)),
                    ) => *client_secret = new.as_str().into(),
                }
            }
            Ok(CredentialSecret::OAuth(tokens))
        }
        _ => Err(ApiError::invalid("auth.type: the type of a credential cannot change; make another one")),
    }
}
