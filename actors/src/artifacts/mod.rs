//! The artifacts of a session (ADR-0018, section 2): what it is given, by name, and what its host asks of them.
//!
//! What a session has is recorded by its conversation, and its bytes lie in its tenant's store, where they are kept from before that is
//! recorded until after it is recorded that the session has them no more ([`ContentPinner`]): a crash loses nothing. The
//! `ArtifactRegistryActor` does what takes long, beside the session's actor: it takes files in, resolves references, fetches URLs for
//! the host; then the session's actor records what came of it, also while a turn runs: the next call of a tool sees it. It is started by
//! the first request that needs it, stands below the session's actor, so that its death is not the session's, and goes when nobody asks
//! anything for a while: a session without artifacts has none.
//!
//! What a URL led to is only kept when it is recorded: what is lost of it is fetched again.
//!
//! Tools resolve references by themselves (`conjure_toolbox`): nothing of theirs passes through here.
//!
//! **When artifacts go.** With the session; when they are unregistered; and when nothing was recorded in the session for
//! [`ArtifactOptions::session_ttl`](conjure_artifact::ArtifactOptions::session_ttl), an hour unless the host says otherwise, and no turn
//! runs or waits for a person ([`have_expired`]). That is seen when somebody uses the session again: from then on they are gone as if they
//! were unregistered, and that is recorded. A host's janitor may see it before, and record the same of a session that is put away.
//!
//! State: requests under way, in memory. They end as lost with the actor or its session; what was recorded is recorded, and a content
//! that was stored and not recorded is garbage of its store, when nobody keeps it any more.

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
