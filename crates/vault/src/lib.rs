//! Vaults: the credentials of a tenant, with which its sessions ask MCP servers.
//!
//! A credential belongs to the address of a server. Its secrets are sealed with the key of the installation ([`VaultKey`]) before they are
//! stored, and nothing that reads a record without the key can tell them. A session names vaults; the first one with a credential for a server's
//! address counts ([`CredentialStore::find`]).
//!
//! Nothing here speaks HTTP: who refreshes an access token stores it with [`CredentialStore::replace_secret`].

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
