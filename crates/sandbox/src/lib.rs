//! Executors for tool calls. One guest protocol, several kinds of sandbox.
//!
//! [`Executor`] is what a tool call needs: run a program, view, create, edit, list, read and write files. A host
//! may implement it for a backend of its own. A [`Sandbox`] implements it over the guest's protocol, for every
//! [`Connector`]; [`Local`] is the connector that isolates nothing.

#[cfg(all(feature = "local", not(target_os = "linux")))]
compile_error!(
    "the feature `local` of conjure-sandbox is for Linux only: the guest needs its process tree. Switch it off, or \
     run the host in a Linux machine or container"
);

#[cfg(all(feature = "jail", target_os = "linux"))]
mod cgroup;
mod connector;
mod context;
#[cfg(all(feature = "local", target_os = "linux"))]
mod data;
#[cfg(all(feature = "docker", target_os = "linux"))]
mod docker;
#[cfg(all(feature = "jail", target_os = "linux"))]
mod egress;
mod error;
mod executor;
mod gateway;
#[cfg(all(feature = "local", target_os = "linux"))]
mod guest_process;
mod isolation;
#[cfg(all(feature = "jail", target_os = "linux"))]
mod jail;
mod limits;
#[cfg(all(feature = "local", target_os = "linux"))]
mod local;
mod mux;
mod operation;
#[cfg(all(feature = "local", target_os = "linux"))]
mod places;
#[cfg(target_os = "linux")]
mod provision;
mod sandbox;
#[cfg(target_os = "linux")]
mod shelving;
#[cfg(all(feature = "jail", target_os = "linux"))]
mod spare;
#[cfg(all(feature = "local", target_os = "linux"))]
mod transfer;
mod types;

#[cfg(all(feature = "jail", target_os = "linux"))]
pub use cgroup::{Cgroup, Cgroups, MissingController};
#[cfg(target_os = "linux")]
pub use connector::Follower;
pub use connector::{Connection, Connector, SandboxGuard};
pub use context::{ExecutionContext, NetworkPolicy, SharedFolder};
#[cfg(all(feature = "local", target_os = "linux"))]
pub use data::{DataFolder, PrivateWorkspace};
#[cfg(all(feature = "docker", target_os = "linux"))]
pub use docker::{
    BuiltImage, ContainerEngine, Docker, DockerEnvironment, DockerOptions, EngineAddress, EngineKind,
    ImageError, ImageErrorKind, ImageName, ImageOptions, ImagePackages, ImageProgress, ImageSource,
    SweptContainers, Volume, build_image, seccomp_profile,
};
pub use error::{SandboxError, SandboxErrorKind};
pub use executor::{CallOptions, ContentStream, Executor};
pub use gateway::{Gateway, Proxy, TunnelStream};
pub use isolation::{Boundary, Isolation};
#[cfg(all(feature = "jail", target_os = "linux"))]
pub use jail::Jail;
pub use limits::{DiskLimit, LimitError, Limits};
#[cfg(all(feature = "local", target_os = "linux"))]
pub use local::Local;
#[cfg(all(feature = "local", target_os = "linux"))]
pub use places::{FolderId, Place, Places, Shelves, SweptPlaces, remove_folder};
#[cfg(target_os = "linux")]
pub use provision::{Consent, Provided, Provider, Provision, Shelf};
pub use sandbox::{RunEvent, RunStream, Sandbox};
#[cfg(all(feature = "jail", target_os = "linux"))]
pub use spare::{Spare, SpareSpec};
#[cfg(all(feature = "local", target_os = "linux"))]
pub use transfer::Transfer;
pub use types::{
    ArtifactFolder, BroughtBack, Command, CommandEnd, CommandOutcome, CommandOutput, DirectoryEntry,
    DiskUsage, EntryKind, Input, Layout, LeftBehind, LimitsReached, LineRange, Listing, ProcessLimits,
    QuotaExcess, Sharing, View, Written,
};
// What a connector of one's own says to the guest.
pub use conjure_guest::protocol::{
    Access, Confinement, Hello, PROTOCOL_VERSION, Root, RulesInForce, SetupFailure, SetupStep, Welcome,
};
