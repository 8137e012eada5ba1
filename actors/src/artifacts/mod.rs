//! The artifacts of a session (ADR-0018, section 2): the named files and data given to it, and the embedder's requests about them.
//!
//! The conversation records which artifacts a session has. Their bytes are in its tenant's store. They are pinned before the
//! artifact is recorded and unpinned after its removal is recorded ([`ContentPinner`]), so a crash loses nothing.
//!
//! The `ArtifactRegistryActor` does the slow work beside the session's actor: it ingests files, resolves references and fetches
//! URLs. The session's actor then records the result, also while a turn runs, and the next tool call sees it. The first request
//! that needs the registry starts it below the session's actor, so a failure of the registry does not fail the session. It stops
//! after a while without requests. A session without artifacts has no registry.
//!
//! The content of a URL is kept only when it is recorded. If it is lost, it is fetched again.
//!
//! Tools resolve references by themselves (`conjure_toolbox`) and do not use this registry.
//!
//! **When artifacts end.** An artifact ends in one of three cases:
//!
//! - The session ends.
//! - The artifact is unregistered.
//! - Nothing was recorded in the session for [`ArtifactOptions::session_ttl`](conjure_artifact::ArtifactOptions::session_ttl) (one
//!   hour by default), and no turn runs or waits for a person.
//!
//! The next use of the session detects the third case. From then on the artifacts count as unregistered, and the session records
//! that. A maintenance task may detect it earlier, and records the same for a passivated session.
//!
//! State: running requests, in memory. They are lost with the actor or its session. A content that was stored but not recorded is
//! garbage of its store once its last pin is gone.

mod actor;
mod handle;
mod lazy_registry;
mod pinning;
mod request;
mod services;
mod shared_error;

pub use handle::Artifacts;
pub use request::ArtifactRequest;
pub use services::{ArtifactServices, ContentPinner, SpaceReservation, StoreQuota, have_expired};
pub use shared_error::SharedArtifactError;

pub(crate) use actor::RegistryDeps;
pub(crate) use lazy_registry::LazyRegistry;
pub(crate) use pinning::ContentPinning;
