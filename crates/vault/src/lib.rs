//! Vaults: the credentials of a tenant, which its sessions use at MCP servers.
//!
//! A credential belongs to the address of a server. The key of the installation ([`VaultKey`]) seals its secrets before they are stored. A
//! record shows no secret without that key. A session names vaults. For a server's address, the first vault with a credential counts
//! ([`CredentialStore::find`]).
//!
//! This crate does not speak HTTP. The caller that refreshes an access token stores it with [`CredentialStore::replace_secret`].

mod credential;
mod error;
mod key;
mod store;

pub use credential::{ClientAuth, CredentialSecret, OAuthRefresh, OAuthTokens};
pub use error::VaultError;
pub use key::VaultKey;
pub use store::{
    CREDENTIAL, CredentialStore, FoundCredential, IN_VAULT, LOGIN_VAULT, StoredCredential, server_address,
};
