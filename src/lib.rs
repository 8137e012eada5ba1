//! A supervised runtime for Agent Skills.
//!
//! A skill is a folder with instructions for a model, and the scripts and files that go with them. This library finds
//! skills, describes them to a model, runs the model's tool calls in a sandbox, and keeps going until the model is done.
//!
//! - [`load`], [`load_all`], [`load_skill_file`], [`load_body`], [`read_resource`]: skills.
//! - [`system_prompt`], [`tool_definitions`], [`build_system_prompt`], [`build_tools_param`]: the prompt and the tool definitions.
//! - [`Workbench`]: a sandbox with tools; [`execute`], [`execute_tool_calls`], [`process_response`]: run them.
//! - [`Runtime`]: sessions of many tenants, supervised and durable; see its example.
//! - [`run_loop`]: a whole conversation, over any [`Model`]; see its example.
//! - `anthropic` (a feature, on by default): the client of the Messages API, a [`Model`].
//! - [`Config`]: settings from a file, the environment and code.
//!
//! The crates below can be used alone. This one exports what an embedder needs of them.

#[cfg(feature = "anthropic")]
pub mod anthropic;
mod config;
mod context;
mod conversation;
mod error;
mod expected_outputs;
mod prompt;
mod runtime;
mod sandbox;
mod skills;
mod workbench;
mod workspace;

// Of this crate.
pub use config::{
    ApiProfile, ArtifactSettings, CONFIG_KEYS, CompactionSettings, Config, ConfigError, ConfigKey,
    ExecutorKind, PoolSettings, ProcessEnv, SessionTtl, Settings, SkillSettings, VARIABLES, Variable,
    parse_activation, parse_network, parse_size,
};
pub use context::{ContextOptions, SessionContext, create_context};
pub use conversation::{
    ProcessedResponse, execute, execute_tool_calls, final_text, loop_options, process_response, run_loop,
    stop_error,
};
pub use error::{Error, ErrorKind};
pub use expected_outputs::{ExpectedOutput, OutputMatch};
pub use prompt::{build_system_prompt, system_prompt, tool_definitions};
pub use runtime::{
    DeletionReport, DiskUsage, ExecutorFactory, InputError, RemainingFiles, RemainingSkills,
    RemoteSkillOutcome, Runtime, RuntimeError, RuntimeOptions, SessionBody, SessionContents, SessionList,
    SessionSecrets, SessionSpec, SessionSummary, Tenant, TenantPolicy, TenantUsage, UnknownSkill,
    redactor_of_inputs,
};
pub use sandbox::open_sandbox;
pub use skills::{find_skill, load, load_all, load_body, load_configured, load_skill_file, read_resource};
pub use workbench::Workbench;
pub use workspace::{ProducedFile, ProducedFiles, SessionWorkspace, WorkspaceSnapshot};

// Ids, time, secrets.
pub use conjure_base::{
    CallId, Clock, ContainerId, Deadline, Digest, Redactor, SessionId, SystemClock, TenantId, Timestamp,
    TurnId, is_sensitive_variable,
};

// Skills.
pub use conjure_skill::{
    AllowRule, AllowRuleError, AllowedTools, Catalog, CommandProbe, Destructive, Diagnostic, Disclosure,
    Discovery, DiscoveryLimits, EnvVariable, Execution, Frontmatter, Input as SkillInput, InputProblem,
    Inputs as SkillInputs, Manifest, ManifestError, ManifestVersion, Metadata, Missing, Mode, Network,
    OutputArtifact, OutputFile, OutputPattern, OutputPatternError, PackReport, Package, PackageFile,
    PackageLimits, PackageProblem, PackageProblemKind, ParsedManifest, PathBase, PathProblem, Preflight,
    PreflightFinding, PreflightReport, PreflightRule, Probe, ProbeError, ProbeFuture, Properties, Reload,
    Reloader, RequiredCommand, RequiredFile, Requirement, Resource, ResourceStart, Resources, RuleId,
    RuleOutcome, RuleReport, SIDECAR_FILE, Schema, SchemaMismatch, Scope, ScopeKind, Severity, Skill,
    SkillDigests, SkillError, SkillErrorKind, SkillName, Trust, UnpackedPackage, ValueType, Version,
    VersionQuery, discover, extract_skill_file, input_text, input_variable, pack, pack_file, validate,
};

// What the model is told.
pub use conjure_prompt::{
    BuiltinTool, PromptOptions, SessionSkill, SessionSkills, SkillComposer, SkillLocations, SkillTool,
    SkillToolOptions, ToolOptions, available_skills_block, available_skills_block_at, build_tools_param,
    discovery_instructions, parse_tool_use, skill_tool_definitions,
};

// Conversations.
pub use conjure_conversation::scripted::{
    RecordError, Recorder, Script, ScriptError, ScriptFormat, ScriptedModel,
};
pub use conjure_conversation::{
    AfterResponse, ApiErrorKind, Authorization, Block, BlockKind, CallConcurrency, CallContext, CallTraits,
    Compaction, CompactionError, CompactionPolicy, Composer, Conversation, ConversationObserver, DriveError,
    Event, EventKind, EventLog, EventLogError, HostedFiles, HostedSkill, HostedSource, HostedSupport,
    InboxMessage, InboxMessageKind, Limit, Limits, LoopError, LoopOptions, LoopOutcome, MemoryEventLog,
    Message, Model, ModelError, ModelErrorKind, ModelEvent, ModelStream, ModelSummarizer, PromptPrefix,
    Receipt, Rejection, Request, Response, ResultContent, Role, SessionEvent, SessionEventKind,
    SessionStopReason, SideEffects, StopReason, Summarizer, Summary, ToolCall, ToolDefinition, ToolResult,
    ToolRunner, TurnOptions, TurnOutcome, TurnServices, TurnStop, Usage, conversation_complete,
    extract_tool_uses, format_tool_results, format_tool_results_message, model_fn, parse_response, run_turn,
    session_events,
};

// Sessions that survive.
pub use conjure_actors::admission::{AdmissionGate, AdmissionLoad, Overloaded, Permit, Share};
pub use conjure_actors::catalogs::{
    CatalogKey, CatalogName, CatalogNameError, CatalogRegistry, CatalogSpec, RegistryError, RegistryOptions,
};
pub use conjure_actors::executors::{ConnectorSource, ExecutorOptions, ExecutorSource};
pub use conjure_actors::maintenance::{LastRun, MaintenanceScheduler, TaskError, TaskStatus};
pub use conjure_actors::pool::PoolStats;
pub use conjure_actors::runtime::{Health, TurnAdmission};
pub use conjure_actors::session::{
    Accepted, Answer, Input as UserInput, Resume, Session, SessionError, SessionOptions, SessionSnapshot,
    SessionStatus, Subscription, TurnEvent, TurnHandle, Update,
};
pub use conjure_actors::supervision::{ActorTree as LiveTree, ShutdownError};
pub use conjure_actors::tenants::{Allowance, Budget, CostLimit, Period, Price, Quota, QuotaExceeded, Spent};
pub use conjure_conversation::{
    Approval, CallOutcome, Decision, FinishedTurn, Grant, GrantScope, PinnedSkill, QueueId, SecretNames,
    SessionProfile, SessionView, SkillActivation, SkillDelivery,
};
#[cfg(feature = "sqlite")]
pub use conjure_journal::SqliteOptions;
pub use conjure_journal::{JournalError, JournalErrorKind, LeaseOwner, ListCursor, SessionKey};

// What sessions are given, and what they produce.
pub use conjure_actors::artifacts::{Artifacts, SharedArtifactError};
pub use conjure_artifact::{
    ArtifactError, ArtifactErrorKind, ArtifactOptions, ArtifactUpload, ArtifactUri, DeleteError,
    DeleteOutcome, Fetch, FetchFuture, FetchRequest, FetchedContent, FinishedTurnInfo, OutputContent,
    OutputError, OutputStore, PanicMessage, Registration, RegistrationSource, ResolvedLocation,
    ResolvedReference, Retryable, ServiceAccount, ServiceFileDeletion, ServiceFiles, StorageMode,
    TurnOutputs, UrlCache, UrlFetch, WorkspaceOutputs,
};
#[cfg(feature = "fetch")]
pub use conjure_artifact::{HttpFetch, HttpFetchError};
pub use conjure_conversation::{
    Artifact, ArtifactContent, ArtifactName, ArtifactNameError, Completeness, ContentTypeOrigin, FileChange,
    FileSource, SessionFile,
};
#[cfg(feature = "fetch")]
pub use conjure_egress::{AddressPolicy, Egress, EgressPolicy};

// What is counted.
pub use conjure_actors::metrics;

// Tools of the host, and who allows calls.
pub use conjure_toolbox::{
    AllowAll, AllowedToolsPolicy, Approver, CallerIdentity, DenyAll, Interpreters, MAX_ACTIVE_SKILLS,
    OutputLimits, SandboxProbe, SkillTools, Tool, ToolContext, ToolOutput, ToolStatus, Toolbox,
    ToolboxBuilder, approver_fn, tool_fn,
};

// Sandboxes.
pub use conjure_sandbox::{
    ArtifactDir, Boundary, CallOptions, Cgroups, Command, CommandEnd, CommandOutcome, CommandOutput,
    Connector, ContentDir, ContentItem, ContentStream, CopyOutReport, DataDir, DiskLimit, ExecutionContext,
    Executor, HostAccess, Input, Isolation, ItemContent, Jail, Layout, LineRange, Listing, Local,
    MissingController, NetworkPolicy, OwnedWorkspace, ProcessLimits, ReachedLimits, Sandbox, SandboxError,
    SandboxErrorKind, SharedFolder, SkippedFile, View, WriteResult,
};
#[cfg(feature = "docker")]
pub use conjure_sandbox::{
    BuiltImage, ImageError, ImageErrorKind, ImageName, ImageOptions, ImagePackages, ImageProgress,
    ImageSource, build_image,
};

// Containers.
#[cfg(feature = "docker")]
pub use conjure_sandbox::{
    Access as VolumeAccess, ContainerEngine, ContainerSweepReport, Docker, DockerEnvironment, DockerOptions,
    EngineAddress, EngineKind, HostMount, seccomp_profile,
};

// Content by digest, which sandboxes read.
pub use conjure_store::{FileMode, Store, Tree, TreeOptions};

/// The examples of the README, so that they stay true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
