//! Executors for tool calls. One guest protocol, several kinds of sandbox.
//!
//! [`Executor`] has the operations that tool calls need: run a program, and view, create, edit, list, read and write
//! files. An embedder may implement it for its own backend. A [`Sandbox`] implements it over the guest's protocol,
//! for every [`Connector`]; [`Local`] is the connector that isolates nothing.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Conjure runs on Linux only: sandboxes need its processes and namespaces. Run it in a Linux machine or container"
);

mod calls;
#[cfg(feature = "jail")]
mod cgroup;
mod connector;
mod content;
#[cfg(feature = "local")]
mod copy;
#[cfg(feature = "local")]
mod data_dir;
#[cfg(feature = "docker")]
mod docker;
#[cfg(feature = "jail")]
mod egress;
mod error;
mod guest_connection;
#[cfg(feature = "local")]
mod guest_process;
#[cfg(feature = "local")]
mod host_dirs;
mod installed_content;
#[cfg(feature = "jail")]
mod jail;
#[cfg(feature = "local")]
mod local;
mod mux;
mod proxy_gateway;
mod sandbox;
mod settings;
#[cfg(feature = "jail")]
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
#[cfg(feature = "jail")]
pub use cgroup::{Cgroup, Cgroups, MissingController};
pub use connector::WorkspaceListener;
pub use connector::{Connector, SandboxGuard, StartedSandbox};
pub use content::{CommitToken, ContentDir, ContentInstaller, ContentItem, ItemContent};
#[cfg(feature = "local")]
pub use copy::CopyPlan;
#[cfg(feature = "local")]
pub use data_dir::{DataDir, OwnedWorkspace};
#[cfg(feature = "docker")]
pub use docker::{
    BuiltImage, ContainerEngine, ContainerSweepReport, Docker, DockerEnvironment, DockerOptions,
    EngineAddress, EngineKind, HostMount, ImageCommand, ImageError, ImageErrorKind, ImageName, ImageOptions,
    ImagePackages, ImageProgress, ImageSource, build_image, seccomp_profile,
};
pub use error::{SandboxError, SandboxErrorKind};
#[cfg(feature = "local")]
pub use host_dirs::{ContentDirs, DirSweepReport, SandboxDir, SandboxDirs, dir_id, remove_tree};
#[cfg(feature = "jail")]
pub use jail::Jail;
#[cfg(feature = "local")]
pub use local::Local;
pub use proxy_gateway::{Gateway, Proxy, TunnelStream};
pub use sandbox::Sandbox;
pub use settings::context::{ExecutionContext, NetworkPolicy, SharedDir, WorkspaceMount};
pub use settings::isolation::{Boundary, Isolation};
pub use settings::layout::{ArtifactDir, HostAccess, Layout};
pub use settings::limits::{DiskLimit, LimitError, Limits};
pub use settings::sandbox_network::{SandboxNetwork, StartupGuard};
#[cfg(feature = "jail")]
pub use warm_sandbox::{WarmSandbox, WarmSpec};
// The protocol types that an embedder's own connector needs.
pub use conjure_guest::protocol::{
    Access, Confinement, EnforcedRules, Hello, PROTOCOL_VERSION, Root, SetupError, SetupStep, Welcome,
};
