//! Artifacts: named files and data of a session, which a model uses by reference instead of by path (ADR-0018).
//!
//! A reference is `file://sales`, `skill://csv-helper/assets/sample.csv` or `https://example.com/data.json`. The model never sees a
//! path of the machine that runs this process.
//!
//! The conversation records a session's artifacts (`conjure_conversation::Artifact`). This crate ingests them and resolves
//! references. The bytes are in a content-addressed store. [`OutputStore`] is the other direction: files that a session produced.
//!
//! After a crash, content that was stored and not recorded is garbage of its store.
//!
//! ```
//! use std::sync::Arc;
//!
//! use conjure_artifact::{ArtifactIngestor, ArtifactOptions, ArtifactUri, ReferenceResolver, Registration, RegistrationSource};
//! use conjure_base::{Deadline, TenantId};
//! use conjure_store::Store;
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let store = Store::open(&dir.path().join("store"))?;
//! let options = Arc::new(ArtifactOptions::default());
//! let cancel = CancellationToken::new();
//!
//! let registration = Registration::new("config".parse()?, RegistrationSource::content(&b"{}"[..], "application/json"));
//! let artifact = ArtifactIngestor::new(Arc::clone(&options)).ingest(registration, &store, &cancel).await?;
//!
//! let resolver = ReferenceResolver::new(TenantId::new("acme")?, store, options);
//! let uri = ArtifactUri::parse("file://config")?;
//! let resolved = resolver.resolve(&uri, &[artifact.into()], Deadline::NEVER, &cancel).await?;
//! assert_eq!((resolved.content_type.as_str(), resolved.size), ("application/json", 2));
//! # Ok(())
//! # }
//! ```

mod error;
mod options;
mod registration;
mod uri;

mod media;
mod output;
mod service_files;

mod dir_walk;
mod file_stream;

mod fetch;
mod ingest;
mod resolver;
mod workspace_outputs;

pub use dir_walk::{WalkBounds, WalkCoverage, walk};
pub use error::{ArtifactError, ArtifactErrorKind, PanicMessage, Retryable};
pub use fetch::{Fetch, FetchFuture, FetchRequest, FetchedContent};
#[cfg(feature = "fetch")]
pub use fetch::{HttpFetch, HttpFetchError};
pub use ingest::{ArtifactIngestor, OpenedArtifact};
pub use media::{HEAD_BYTES, content_type_of, is_content_type, is_text};
pub use options::{ArtifactOptions, UrlCache, UrlFetch};
pub use output::{ContentStream, FinishedTurnInfo, OutputContent, OutputError, OutputStore, TurnOutputs};
pub use registration::{Registration, RegistrationSource};
pub use resolver::{ReferenceResolver, ResolvedLocation, ResolvedReference};
pub use service_files::{
    ArtifactUpload, ArtifactUploader, DeleteError, DeleteOutcome, ServiceAccount, ServiceFileDeletion,
    ServiceFiles,
};
pub use uri::{ArtifactUri, SkillPath};
pub use workspace_outputs::WorkspaceOutputs;
