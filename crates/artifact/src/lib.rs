//! References instead of paths (ADR-0018): a model names what it works with as `file://sales`, `skill://csv-helper/assets/sample.csv`
//! or `https://example.com/data.json`, and sees no path of the host's.
//!
//! What a session was given is recorded by its conversation (`conjure_conversation::Artifact`), so that it survives; here it is taken
//! in and found again. The bytes lie in a store, by their digests. [`OutputStore`] is the other direction: the files that a session
//! produced.
//!
//! A crash loses nothing but what was under way: a content that was stored and not recorded is garbage of its store.
//!
//! ```
//! use std::sync::Arc;
//!
//! use conjure_artifact::{ArtifactOptions, ArtifactUri, Intake, Registration, Resolver, Source};
//! use conjure_base::{Deadline, TenantId};
//! use conjure_store::Store;
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let store = Store::open(&folder.path().join("store"))?;
//! let options = Arc::new(ArtifactOptions::default());
//! let cancel = CancellationToken::new();
//!
//! let registration = Registration::new("config".parse()?, Source::content(&b"{}"[..], "application/json"));
//! let artifact = Intake::new(Arc::clone(&options)).take_in(registration, &store, &cancel).await?;
//!
//! let resolver = Resolver::new(TenantId::new("acme")?, store, options);
//! let uri = ArtifactUri::parse("file://config")?;
//! let found = resolver.resolve(&uri, &[artifact.into()], Deadline::NEVER, &cancel).await?;
//! assert_eq!((found.content_type.as_str(), found.size), ("application/json", 2));
//! # Ok(())
//! # }
//! ```

mod error;
mod media;
mod options;
mod output;
mod removal;
mod service;
mod source;
mod upload;
mod uri;

mod blocking;
mod content;
mod plain;
mod shown;
mod walk;

mod fetch;
mod intake;
mod resolver;
mod workspace;

pub use error::{ArtifactError, ArtifactErrorKind, PanicMessage, Retry};
pub use fetch::{Fetch, FetchFuture, FetchRequest, Fetched};
#[cfg(feature = "fetch")]
pub use fetch::{HttpFetch, HttpFetchError, HttpFetchErrorKind};
pub use intake::{Intake, Opened};
pub use media::{HEAD_BYTES, content_type_of, is_content_type, is_text};
pub use options::{ArtifactOptions, UrlCache, UrlFetch};
pub use output::{ContentStream, OutputContent, OutputError, OutputStore, Produced, TurnRecord};
pub use removal::{FileRemoval, RemovalError, Removed, ServiceAccount};
pub use resolver::{Resolved, ResolvedPlace, Resolver};
pub use service::ServiceFiles;
pub use source::{Keep, Registration, Source};
pub use upload::{ArtifactUpload, Uploads};
pub use uri::{ArtifactUri, SkillPath};
pub use walk::{Walk, WalkBounds, Walked, walk};
pub use workspace::WorkspaceOutputs;
