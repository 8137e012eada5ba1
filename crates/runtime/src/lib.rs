//! The runtime: it is built from a configuration, and is what embedders and servers use.
//!
//! The runtime chooses the journal, the sandboxes, the skills and the models by the [`Config`]. It gives each tenant its
//! policy and each session its workspace, and maintains the data directory. The functions for one conversation
//! ([`run_loop`], [`execute`]) are here, too.
//!
//! Embedders use this crate through the crate `conjure`, which also re-exports the crates below it.

#[cfg(feature = "anthropic")]
pub mod anthropic;
mod config;
mod context;
mod conversation;
mod error;
mod expected_outputs;
#[cfg(feature = "mcp-server")]
mod mcp_server;
mod models;
mod prompt;
mod runtime;
mod sandbox;
mod skills;
mod workbench;
mod workspace;

pub use config::{
    ApiProfile, ArtifactSettings, CONFIG_KEYS, CompactionSettings, Config, ConfigError, ConfigKey,
    ExecutorKind, MODEL_KEYS, ModelSettings, PACKAGE_REGISTRIES, PoolSettings, ProcessEnv, ServeSettings,
    SessionTtl, Settings, SkillSettings, TokenPrice, VARIABLES, Variable, parse_activation, parse_network,
    parse_size,
};
pub use context::{ContextOptions, SessionContext, create_context};
pub use conversation::{
    ProcessedResponse, execute, execute_tool_calls, final_text, loop_options, process_response, run_loop,
    stop_error,
};
pub use error::{Error, ErrorKind};
pub use expected_outputs::{ExpectedOutput, OutputMatch};
#[cfg(feature = "mcp-server")]
pub use mcp_server::{OpenWorkbench, SandboxTools, SessionAgents};
pub use models::{CallSettings, ToolChoice};
#[cfg(feature = "model-http")]
pub use models::{ConnectError, ConnectedModel, ModelClients};
pub use models::{KeyVariable, ModelTarget, ModelTargetError};
pub use prompt::{build_system_prompt, system_prompt, tool_definitions};
#[cfg(feature = "anthropic")]
pub use runtime::MessagesService;
#[cfg(feature = "vaults")]
pub use runtime::{CredentialCheck, RenewalOutcome, Vaults};
pub use runtime::{
    DeletionReport, DiskUsage, EventCursor, EventOrder, EventQuery, ExecutorFactory, FileUpload, InputError,
    PythonRequirement, PythonRequirementError, RemainingFiles, RemainingSkills, RemoteSkillOutcome,
    ResumeReport, Runtime, RuntimeError, RuntimeOptions, SessionBody, SessionContents, SessionEventPage,
    SessionList, SessionSecrets, SessionSpec, SessionSummary, StoredFile, Tenant, TenantPolicy, TenantUsage,
    UnknownSkill, WorkspaceFile, redactor_of_inputs,
};
pub use sandbox::open_sandbox;
pub use skills::{find_skill, load, load_all, load_body, load_configured, load_skill_file, read_resource};
pub use workbench::Workbench;
pub use workspace::{ProducedFile, ProducedFiles, SessionWorkspace, WorkspaceSnapshot, noted_workspaces};
