//! [`CredentialStore`]: the records of credentials.

use std::sync::Arc;

use conjure_base::{Digest, TenantId, Timestamp};
use conjure_journal::{
    IndexName, NewRecord, Record, RecordContent, RecordErrorKind, RecordKey, RecordKind, RecordQuery,
    RecordWrite, Records,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use url::Url;

use crate::credential::CredentialSecret;
use crate::error::VaultError;
use crate::key::VaultKey;

/// The record kind of credentials.
pub static CREDENTIAL: RecordKind = RecordKind::from_static("credential");

/// The index of credentials by their vault.
pub const IN_VAULT: IndexName = IndexName::from_static("vault");

/// The vault for sign-ins at configured servers ([`CredentialStore::put_login`]).
pub const LOGIN_VAULT: &str = "login";

/// The number of credentials that are read at a time.
const PAGE: u32 = 100;

/// The body of a credential's record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredCredential {
    /// The vault of the credential.
    pub vault: String,
    /// The address of its server, in the form of [`server_address`].
    pub server: String,
    /// When the token expires, if known.
    pub expires_at: Option<Timestamp>,
    /// The part that its owner may see, as JSON. This crate does not read it.
    pub shown: Box<RawValue>,
    /// The sealed secrets; `None` once the credential is archived.
    sealed: Option<String>,
}

/// A credential that was found for a server.
#[derive(Debug, Clone)]
pub struct FoundCredential {
    /// Its id.
    pub id: String,
    /// Its secrets.
    pub secret: CredentialSecret,
    record: Record,
}

/// The credentials of a tenant.
#[derive(Clone)]
pub struct CredentialStore<'r> {
    records: &'r dyn Records,
    key: Arc<VaultKey>,
    tenant: &'r TenantId,
}

/// The address of a server in the form for comparison: without a fragment and without a trailing slash. `None` if it is not an HTTP
/// address.
#[must_use]
pub fn server_address(url: &str) -> Option<String> {
    let mut url = Url::parse(url).ok()?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return None;
    }
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    let text = url.to_string();
    // The URL parser writes an empty path as one slash.
    Some(if url.query().is_none() { text.trim_end_matches('/').to_owned() } else { text })
}

impl StoredCredential {
    /// Creates a body without secrets. [`CredentialStore::seal`] adds them.
    #[must_use]
    pub const fn new(vault: String, server: String, shown: Box<RawValue>) -> Self {
        Self { vault, server, expires_at: None, shown, sealed: None }
    }

    /// Removes the secrets.
    pub fn purge(&mut self) {
        self.sealed = None;
    }

    /// Whether the credential has secrets.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.sealed.is_some()
    }

    /// Reads the credential from a record.
    ///
    /// # Errors
    /// If the record is damaged.
    pub fn from_record(record: &Record) -> Result<Self, VaultError> {
        serde_json::from_slice(&record.content.body).map_err(VaultError::Record)
    }

    /// The content of the credential's record. Its unique key ensures that a vault has at most one active credential for a server.
    ///
    /// # Errors
    /// If the content cannot be written.
    pub fn content(&self) -> Result<RecordContent, VaultError> {
        let json = serde_json::to_vec(self).map_err(VaultError::Record)?;
        let content = RecordContent::new(json).with_index(IN_VAULT, self.vault.as_str());
        let name = Digest::of_bytes(format!("{}\0{}", self.vault, self.server).as_bytes()).to_hex();
        Ok(if self.is_active() { content.with_unique_name(name) } else { content })
    }
}

impl<'r> CredentialStore<'r> {
    /// Creates the store for this tenant.
    #[must_use]
    pub const fn new(records: &'r dyn Records, key: Arc<VaultKey>, tenant: &'r TenantId) -> Self {
        Self { records, key, tenant }
    }

    /// Seals the secrets of the credential `id`.
    ///
    /// # Errors
    /// If the secrets cannot be sealed.
    pub fn seal(
        &self,
        id: &str,
        credential: &mut StoredCredential,
        secret: &CredentialSecret,
    ) -> Result<(), VaultError> {
        let plain = serde_json::to_vec(secret).map_err(VaultError::Record)?;
        credential.sealed = Some(self.key.seal(&self.context(id), plain)?);
        credential.expires_at = secret.expires_at();
        Ok(())
    }

    /// Opens the secrets of the credential `id`; `None` if it has none.
    ///
    /// # Errors
    /// If the secrets were sealed with another key.
    pub fn open(
        &self,
        id: &str,
        credential: &StoredCredential,
    ) -> Result<Option<CredentialSecret>, VaultError> {
        let Some(sealed) = &credential.sealed else { return Ok(None) };
        let closed = || VaultError::Sealed { id: id.to_owned() };
        let plain = self.key.open(&self.context(id), sealed).ok_or_else(closed)?;
        serde_json::from_slice(&plain).map(Some).map_err(VaultError::Record)
    }

    /// Finds the credential for a server. The first of these vaults that has one counts.
    ///
    /// # Errors
    /// If the records cannot be read, or if a credential was sealed with another key.
    pub async fn find(&self, vaults: &[String], url: &str) -> Result<Option<FoundCredential>, VaultError> {
        let Some(server) = server_address(url) else { return Ok(None) };
        for vault in vaults {
            let mut query = RecordQuery::new(self.tenant, CREDENTIAL.clone())
                .with_filter(IN_VAULT, vault.as_str())
                .with_limit(PAGE);
            loop {
                let page = self.records.query(query.clone()).await?;
                for record in page.records {
                    let credential = StoredCredential::from_record(&record)?;
                    if credential.server != server {
                        continue;
                    }
                    if let Some(secret) = self.open(record.key.id(), &credential)? {
                        return Ok(Some(FoundCredential { id: record.key.id().to_owned(), secret, record }));
                    }
                }
                let Some(next) = page.next else { break };
                query = query.with_after(next);
            }
        }
        Ok(None)
    }

    /// Stores new secrets of a credential that [`CredentialStore::find`] returned. Other changes of the credential since then are kept. If
    /// the secrets have changed since then or are gone, this stores nothing and returns `false`.
    ///
    /// # Errors
    /// If the record cannot be read or written.
    pub async fn replace_secret(
        &self,
        found: &FoundCredential,
        secret: &CredentialSecret,
    ) -> Result<bool, VaultError> {
        let sealed = StoredCredential::from_record(&found.record)?.sealed;
        let mut record = found.record.clone();
        loop {
            let mut credential = StoredCredential::from_record(&record)?;
            if credential.sealed != sealed {
                return Ok(false);
            }
            self.seal(&found.id, &mut credential, secret)?;
            let content = RecordContent { body: credential.content()?.body, ..record.content.clone() };
            match self.records.replace(&record.key, record.version, content).await {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == RecordErrorKind::VersionConflict => {}
                Err(error) => return Err(error.into()),
            }
            // Another change, such as a new name, causes a conflict too. It leaves the secrets unchanged, so the loop tries again with the
            // new record.
            let Some(now) = self.records.get(&record.key).await? else { return Ok(false) };
            record = now;
        }
    }

    /// Stores the tokens of a sign-in at the server `url`, in the vault [`LOGIN_VAULT`]. They replace the tokens of an earlier sign-in.
    ///
    /// # Errors
    /// If the address is not one of a server, or if the tokens cannot be written.
    pub async fn put_login(&self, url: &str, secret: &CredentialSecret) -> Result<(), VaultError> {
        let (id, key, server) = self.login(url)?;
        let shown = RawValue::from_string("{}".to_owned()).map_err(VaultError::Record)?;
        let mut credential = StoredCredential::new(LOGIN_VAULT.to_owned(), server, shown);
        self.seal(&id, &mut credential, secret)?;
        // The tokens of the last sign-in replace any earlier ones, without a check.
        let delete = RecordWrite::Delete { key: key.clone(), expected_version: None };
        let insert = RecordWrite::Insert(NewRecord::new(key, credential.content()?));
        self.records.transact(vec![delete, insert]).await?;
        Ok(())
    }

    /// Removes the tokens of a sign-in at the server `url`. Returns whether there were any.
    ///
    /// # Errors
    /// If the address is not one of a server, or if the tokens cannot be deleted.
    pub async fn remove_login(&self, url: &str) -> Result<bool, VaultError> {
        let (_, key, _) = self.login(url)?;
        Ok(self.records.delete(&key, None).await?)
    }

    /// The id of the credential of a sign-in, its key, and the server's address.
    fn login(&self, url: &str) -> Result<(String, RecordKey, String), VaultError> {
        let server = server_address(url).ok_or_else(|| VaultError::Address { url: url.to_owned() })?;
        let id = format!("login-{}", Digest::of_bytes(server.as_bytes()).to_hex());
        let key = RecordKey::new(self.tenant, CREDENTIAL.clone(), id.clone());
        Ok((id, key.map_err(conjure_journal::RecordError::from)?, server))
    }

    /// The context of a sealed text, so that it cannot be opened for another tenant or credential.
    fn context(&self, id: &str) -> String {
        format!("conjure credential\0{}\0{id}", self.tenant)
    }
}

#[cfg(test)]
mod tests {
    use conjure_journal::MemoryRecords;
    use secrecy::{ExposeSecret as _, SecretString};

    use super::*;
    use crate::credential::{ClientAuth, OAuthRefresh, OAuthTokens};

    const URL: &str = "https://mcp.example.com/mcp";

    fn bearer(token: &str) -> CredentialSecret {
        CredentialSecret::Bearer { token: SecretString::from(token) }
    }

    async fn put(
        store: &CredentialStore<'_>,
        id: &str,
        vault: &str,
        url: &str,
        secret: &CredentialSecret,
    ) -> Result<Record, RecordErrorKind> {
        let shown = RawValue::from_string("{}".to_owned()).unwrap();
        let mut credential = StoredCredential::new(vault.to_owned(), server_address(url).unwrap(), shown);
        store.seal(id, &mut credential, secret).unwrap();
        let key = RecordKey::new(store.tenant, CREDENTIAL.clone(), id).unwrap();
        let record = NewRecord::new(key, credential.content().unwrap());
        store.records.insert(record).await.map_err(|error| error.kind())
    }

    fn token(found: Option<&FoundCredential>) -> Option<&str> {
        found.map(|found| found.secret.token().expose_secret())
    }

    #[tokio::test]
    async fn the_first_vault_with_a_credential_for_the_server_counts() {
        let (records, key) = (MemoryRecords::new(), Arc::new(VaultKey::from_hex(&"a1".repeat(32)).unwrap()));
        let (acme, other) = (TenantId::new("acme").unwrap(), TenantId::new("other").unwrap());
        let store = CredentialStore::new(&records, Arc::clone(&key), &acme);
        put(&store, "1", "v1", "https://else.example.com", &bearer("no")).await.unwrap();
        put(&store, "2", "v2", &format!("{URL}/"), &bearer("two")).await.unwrap();
        put(&store, "3", "v3", URL, &bearer("three")).await.unwrap();
        let vaults = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let found =
            store.find(&vaults(&["v1", "v3", "v2"]), "HTTPS://mcp.example.com:443/mcp").await.unwrap();
        assert_eq!(token(found.as_ref()), Some("three"));
        assert!(store.find(&vaults(&["v1"]), URL).await.unwrap().is_none());
        assert!(store.find(&[], URL).await.unwrap().is_none());
        // Of another tenant, and for another path of the same host.
        let stranger = CredentialStore::new(&records, Arc::clone(&key), &other);
        assert!(stranger.find(&vaults(&["v2"]), URL).await.unwrap().is_none());
        assert!(store.find(&vaults(&["v2"]), "https://mcp.example.com/other").await.unwrap().is_none());
        assert_eq!(
            put(&store, "4", "v2", URL, &bearer("again")).await.unwrap_err(),
            RecordErrorKind::NameTaken
        );
        // With another key it is an error, and not the next credential.
        let wrong = Arc::new(VaultKey::from_hex(&"b2".repeat(32)).unwrap());
        let error =
            CredentialStore::new(&records, wrong, &acme).find(&vaults(&["v2"]), URL).await.unwrap_err();
        assert!(matches!(error, VaultError::Sealed { id } if id == "2"));
    }

    #[tokio::test]
    async fn refreshed_tokens_are_sealed_and_do_not_overwrite_newer_ones() {
        let (records, key) = (MemoryRecords::new(), Arc::new(VaultKey::from_hex(&"a1".repeat(32)).unwrap()));
        let acme = TenantId::new("acme").unwrap();
        let store = CredentialStore::new(&records, Arc::clone(&key), &acme);
        let tokens = |access: &str, seconds: u64| {
            CredentialSecret::OAuth(OAuthTokens {
                access_token: SecretString::from(access),
                expires_at: Some(Timestamp::from_millis(seconds * 1_000)),
                refresh: Some(OAuthRefresh {
                    client_id: "client".to_owned(),
                    refresh_token: SecretString::from("refresh-me"),
                    token_endpoint: "https://auth.example.com/token".to_owned(),
                    client_auth: ClientAuth::Post { client_secret: SecretString::from("client-secret") },
                    resource: None,
                    scope: None,
                }),
                scope: None,
            })
        };
        put(&store, "1", "v", URL, &tokens("first", 10)).await.unwrap();
        let vaults = ["v".to_owned()];
        let found = store.find(&vaults, URL).await.unwrap().unwrap();
        assert!(store.replace_secret(&found, &tokens("second", 20)).await.unwrap());
        assert!(!store.replace_secret(&found, &tokens("third", 30)).await.unwrap(), "it has changed");
        // What changes beside the secrets loses none of them.
        let found = store.find(&vaults, URL).await.unwrap().unwrap();
        let mut renamed = StoredCredential::from_record(&found.record).unwrap();
        renamed.shown = RawValue::from_string(r#"{"display_name":"new"}"#.to_owned()).unwrap();
        let content = renamed.content().unwrap();
        records.replace(&found.record.key, found.record.version, content).await.unwrap();
        assert!(store.replace_secret(&found, &tokens("second", 20)).await.unwrap());
        let found = store.find(&vaults, URL).await.unwrap();
        assert_eq!(token(found.as_ref()), Some("second"));
        let shown = StoredCredential::from_record(&found.as_ref().unwrap().record).unwrap().shown;
        assert!(shown.get().contains("new"), "the name stays");
        let record =
            records.get(&RecordKey::new(&acme, CREDENTIAL.clone(), "1").unwrap()).await.unwrap().unwrap();
        assert_eq!(
            StoredCredential::from_record(&record).unwrap().expires_at,
            Some(Timestamp::from_millis(20_000))
        );
        let shown = format!("{record:?} {found:?} {}", String::from_utf8_lossy(&record.content.body));
        for secret in ["first", "second", "refresh-me", "client-secret"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        // A sealed text opens in its own record only.
        let stolen = StoredCredential::from_record(&record).unwrap();
        assert!(matches!(store.open("2", &stolen), Err(VaultError::Sealed { .. })));
    }

    #[tokio::test]
    async fn a_login_replaces_the_previous_one_and_can_be_removed() {
        let (records, key) = (MemoryRecords::new(), Arc::new(VaultKey::from_hex(&"a1".repeat(32)).unwrap()));
        let acme = TenantId::new("acme").unwrap();
        let store = CredentialStore::new(&records, Arc::clone(&key), &acme);
        let vaults = [LOGIN_VAULT.to_owned()];
        for text in ["one", "two"] {
            store.put_login(URL, &bearer(text)).await.unwrap();
            assert_eq!(token(store.find(&vaults, URL).await.unwrap().as_ref()), Some(text));
        }
        assert!(store.remove_login(&format!("{URL}/")).await.unwrap());
        assert!(!store.remove_login(URL).await.unwrap());
        assert!(store.find(&vaults, URL).await.unwrap().is_none());
        assert!(matches!(store.put_login("here", &bearer("x")).await, Err(VaultError::Address { .. })));
    }

    #[test]
    fn addresses_have_one_form() {
        for (url, form) in [
            ("https://Example.com", Some("https://example.com")),
            ("https://example.com/", Some("https://example.com")),
            ("https://example.com:443/mcp/#x", Some("https://example.com/mcp")),
            ("http://127.0.0.1:80/a/?b=/", Some("http://127.0.0.1/a?b=/")),
            ("ftp://example.com", None),
            ("example.com", None),
            ("", None),
        ] {
            assert_eq!(server_address(url).as_deref(), form, "{url}");
        }
    }
}
