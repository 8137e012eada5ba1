//! Executors for tool calls. One guest protocol, several kinds of sandbox.
//!
//! [`Executor`] has the operations that tool calls need: run a program, and view, create, edit, list, read and write
//! files. An embedder may implement it for its own backend. A [`Sandbox`] implements it over the guest's protocol,
//! for every [`Connector`]; [`Local`] is the connector that isolates nothing.

#[cfg(all(feature = "local", not(target_os = "linux")))]
compile_error!(
    "the feature `local` of conjure-sandbox is for Linux only: the guest needs its process tree. Switch it off, or \
     run the host in a Linux machine or container"
);

mod calls;
#[cfg(all(feature = "jail", target_os = "linux"))]
mod cgroup;
mod connector;
#[cfg(target_os = "linux")]
mod content;
#[cfg(all(feature = "local", target_os = "linux"))]
mod copy;
#[cfg(all(feature = "local", target_os = "linux"))]
mod data_dir;
#[cfg(all(feature = "docker", target_os = "linux"))]
mod docker;
#[cfg(all(feature = "jail", target_os = "linux"))]
mod egress;
mod error;
mod guest_connection;
#[cfg(all(feature = "local", target_os = "linux"))]
mod guest_process;
#[cfg(all(feature = "local", target_os = "linux"))]
mod host_dirs;
#[cfg(target_os = "linux")]
mod installed_content;
#[cfg(all(feature = "jail", target_os = "linux"))]
mod jail;
#[cfg(all(feature = "local", target_os = "linux"))]
mod local;
mod mux;
mod proxy_gateway;
mod sandbox;
mod settings;
#[cfg(all(feature = "jail", target_os = "linux"))]
mod warm_sandbox;

pub use calls::call_options::CallOptions;
pub use calls::command::{
    Command, CommandEnd, CommandOutcome, CommandOutput, DiskUsage, Input, ProcessLimits, QuotaExcess,
    ReachedLimits, RunEvent,
};
pub use calls::executor::{ContentStream, Executor};
pub use calls::files::{
    CopyOutReport, DirectoryEntry, EntryKind, LineRange, Listing, SkippedFile, View, WriteResult,
};
pub use calls::process::{Process, ProcessCall};
#[cfg(all(feature = "jail", target_os = "linux"))]
pub use cgroup::{Cgroup, Cgroups, MissingController};
#[cfg(target_os = "linux")]
pub use connector::WorkspaceListener;
pub use connector::{Connector, SandboxGuard, StartedSandbox};
#[cfg(target_os = "linux")]
pub use content::{CommitToken, ContentDir, ContentInstaller, ContentItem, ItemContent};
#[cfg(all(feature = "local", target_os = "linux"))]
pub use copy::CopyPlan;
#[cfg(all(feature = "local", target_os = "linux"))]
pub use data_dir::{DataDir, OwnedWorkspace};
#[cfg(all(feature = "docker", target_os = "linux"))]
pub use docker::{
    BuiltImage, ContainerEngine, ContainerSweepReport, Docker, DockerEnvironment, DockerOptions,
    EngineAddress, EngineKind, HostMount, ImageCommand, ImageError, ImageErrorKind, ImageName, ImageOptions,
    ImagePackages, ImageProgress, ImageSource, build_image, seccomp_profile,
};
pub use error::{SandboxError, SandboxErrorKind};
#[cfg(all(feature = "local", target_os = "linux"))]
pub use host_dirs::{ContentDirs, DirSweepReport, SandboxDir, SandboxDirs, dir_id, remove_tree};
#[cfg(all(feature = "jail", target_os = "linux"))]
pub use jail::Jail;
#[cfg(all(feature = "local", target_os = "linux"))]
pub use local::Local;
pub use proxy_gateway::{Gateway, Proxy, TunnelStream};
pub use sandbox::Sandbox;
pub use settings::context::{ExecutionContext, NetworkPolicy, SharedDir, WorkspaceMount};
pub use settings::isolation::{Boundary, Isolation};
pub use settings::layout::{ArtifactDir, HostAccess, Layout};
pub use settings::limits::{DiskLimit, LimitError, Limits};
pub use settings::sandbox_network::{SandboxNetwork, StartupGuard};
#[cfg(all(feature = "jail", target_os = "linux"))]
pub use warm_sandbox::{WarmSandbox, WarmSpec};
// The protocol types that an embedder's own connector needs.
pub use conjure_guest::protocol::{
    Access, Confinement, EnforcedRules, Hello, PROTOCOL_VERSION, Root, SetupError, SetupStep, Welcome,
};
