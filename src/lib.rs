//! A supervised runtime for Agent Skills: the front door of Conjure.
//!
//! A skill is a folder with instructions for a model, and the scripts and files that go with them. This library finds
//! skills, tells a model of them, runs the model's tool calls in a sandbox, and keeps going until the model is done.
//!
//! - [`load`], [`load_all`], [`load_skill_file`], [`load_body`], [`read_resource`]: skills.
//! - [`system_prompt`], [`tool_definitions`], [`build_system_prompt`], [`build_tools_param`]: what the model is told.
//! - [`Workbench`]: where tools run; [`execute`], [`execute_tool_calls`], [`process_response`]: running them.
//! - [`Runtime`]: sessions of many tenants, supervised and durable; see its example.
//! - [`run_loop`]: a whole conversation, over any [`Model`]; see its example.
//! - `anthropic` (a feature, on by default): the client of the Messages API, a [`Model`].
//! - [`Config`]: settings from a file, the environment and code.
//!
//! The rooms below can be used alone; what a host needs of them is named here.

#[cfg(feature = "anthropic")]
pub mod anthropic;
mod config;
mod context;
mod conversation;
mod error;
mod outputs;
mod prompting;
mod runtime;
mod sandbox;
mod skills;
mod workbench;
mod workspace;

// Of this crate.
pub use config::{
    ApiProfile, ArtifactSettings, CompactionSettings, Config, ConfigError, Environment, ExecutorKind,
    PoolSettings, SessionTtl, Settings, SkillSettings, VARIABLES, Variable, parse_activation, parse_network,
    parse_size,
};
pub use context::{ContextOptions, SessionContext, create_context};
pub use conversation::{
    Processed, execute, execute_tool_calls, final_text, loop_options, process_response, run_loop, stop_error,
};
pub use error::{Error, ErrorKind};
pub use outputs::{ExpectedOutput, FoundOutputs};
pub use prompting::{build_system_prompt, system_prompt, tool_definitions};
pub use runtime::{
    Contents, Deletion, DiskUsage, ExecutorFactory, Given, InputFault, LeftAtService, Runtime, RuntimeError,
    RuntimeOptions, SessionContents, SessionList, SessionSpec, SessionSummary, SkillFate, SkillsAtService,
    Tenant, TenantPolicy, TenantUsage, UnknownSkill, redactor_of_inputs,
};
pub use sandbox::open_sandbox;
pub use skills::{find_skill, load, load_all, load_body, load_configured, load_skill_file, read_resource};
pub use workbench::Workbench;
pub use workspace::{ProducedFile, ProducedFiles, Snapshot, Workspace};

// Ids, time, secrets.
pub use conjure_base::{
    CallId, Clock, ContainerId, Deadline, Digest, Redactor, SessionId, SystemClock, TenantId, Timestamp,
    TurnId, looks_sensitive,
};

// Skills.
pub use conjure_skill::{
    AllowRule, AllowRuleError, AllowedTools, AskVersion, Base, Bounds, Catalog, CommandFound, CommandNeed,
    Destructive, Diagnostic, Disclosure, Discovery, EnvVariable, Execution, Extracted, FileNeed, Frontmatter,
    Input as SkillInput, InputProblem, Inputs as SkillInputs, Manifest, ManifestError, ManifestVersion,
    Metadata, Mismatch, Missing, Mode, Need, Network, Outcome as RuleOutcome, OutputArtifact, OutputFile,
    OutputPattern, OutputPatternError, Package, PackageFile, PackageLimits, PackageProblem,
    PackageProblemKind, Packed, ParsedManifest, PathProblem, Preflight, PreflightFinding, PreflightReport,
    PreflightRule, Probe, ProbeError, ProbeFuture, Properties, Reload, Reloader, Resource, ResourceStart,
    Resources, RuleId, RuleReport, SIDECAR_FILE, Schema, Scope, ScopeKind, Severity, Skill, SkillDigests,
    SkillError, SkillErrorKind, SkillName, Trust, ValueType, Version, discover, extract_skill_file,
    input_text, input_variable, pack, pack_file, validate,
};

// What the model is told.
pub use conjure_prompt::{
    BuiltinTool, Locations, PromptOptions, SessionSkill, SessionSkills, SkillComposer, SkillTool,
    SkillToolOptions, ToolOptions, available_skills_block, available_skills_block_at, build_tools_param,
    discovery_instructions, parse_tool_use, skill_tool_definitions,
};

// Conversations.
pub use conjure_conversation::scripted::{
    RecordError, Recorder, Script, ScriptError, ScriptFormat, ScriptedModel,
};
pub use conjure_conversation::{
    Access, AfterAnswer, ApiErrorKind, Authorization, Block, BlockKind, CallContext, CallEffects, CallTraits,
    Compaction, CompactionError, CompactionPolicy, Composer, Composition, Conversation, DriveError, Event,
    EventKind, HostedFiles, HostedSkill, HostedSource, Hosting, Ledger, LedgerError, Limit, Limits,
    LoopError, LoopOptions, LoopOutcome, MemoryLedger, Message, Model, ModelError, ModelErrorKind,
    ModelEvent, ModelStream, ModelSummarizer, Observer, Post, PostKind, Receipt, Rejection, Request,
    Response, ResultContent, Rim, Role, SessionEvent, SessionEventKind, SessionStopReason, StopReason,
    Summarizer, Summary, ToolCall, ToolDefinition, ToolResult, ToolRunner, TurnOptions, TurnOutcome,
    TurnStop, Usage, conversation_complete, extract_tool_uses, format_tool_results,
    format_tool_results_message, model_fn, parse_response, run_turn, session_events,
};

// Sessions that survive.
pub use conjure_actors::admission::{Gate, GateLoad, Overloaded, Permit, Share};
pub use conjure_actors::executors::{ConnectorSource, ExecutorOptions, ExecutorSource};
pub use conjure_actors::janitor::{ChoreError, ChoreStatus, Janitor, LastRun};
pub use conjure_actors::pool::PoolStats;
pub use conjure_actors::registry::{
    CatalogKey, CatalogName, CatalogNameError, CatalogSpec, Registry, RegistryError, RegistryOptions,
};
pub use conjure_actors::runtime::{Health, Turns};
pub use conjure_actors::session::{
    Accepted, Input as UserInput, Resume, Session, SessionError, SessionOptions, SessionSnapshot,
    SessionStatus, Subscription, Turn, TurnEvent, Update,
};
pub use conjure_actors::supervision::{ShutdownError, Tree as LiveTree};
pub use conjure_actors::tenants::{Allowance, Budget, Money, Period, Price, Quota, QuotaExceeded, Spent};
pub use conjure_conversation::{
    Activation, Approval, Decision, Delivery, FinishedTurn, Grant, GrantScope, PinnedSkill, Profile, QueueId,
    Standing, ToolOutcome as CallOutcome, Withheld,
};
#[cfg(feature = "sqlite")]
pub use conjure_journal::SqliteOptions;
pub use conjure_journal::{JournalError, JournalErrorKind, ListCursor, Owner, SessionKey};

// What sessions are given, and what they produce.
pub use conjure_actors::artifacts::{ArtifactFailure, Artifacts};
pub use conjure_artifact::{
    ArtifactError, ArtifactErrorKind, ArtifactOptions, ArtifactUpload, ArtifactUri, Fetch, FetchFuture,
    FetchRequest, Fetched, FileRemoval, Keep, OutputContent, OutputError, OutputStore, PanicMessage,
    Produced, Registration, RemovalError, Removed, Resolved, ResolvedPlace, Retry, ServiceAccount,
    ServiceFiles, Source as ArtifactSource, TurnRecord, UrlCache, UrlFetch, WorkspaceOutputs,
};
#[cfg(feature = "fetch")]
pub use conjure_artifact::{HttpFetch, HttpFetchError};
pub use conjure_conversation::{
    Artifact, ArtifactContent, ArtifactName, ArtifactNameError, Completeness, ContentTypeOrigin, FileChange,
    FileSource, SessionFile,
};
#[cfg(feature = "fetch")]
pub use conjure_egress::{AddressPolicy, Egress, Policy as EgressPolicy};

// What is counted.
pub use conjure_actors::metrics;

// Tools of the host, and who allows calls.
pub use conjure_toolbox::{
    AllowAll, AllowedToolsPolicy, Approver, Caller, DenyAll, Interpreters, MOST_ACTIVE, OutputLimits,
    SandboxProbe, SkillTools, Tool, ToolContext, ToolOutcome, ToolStatus, Toolbox, ToolboxBuilder,
    approver_fn, tool_fn,
};

// Sandboxes.
pub use conjure_sandbox::{
    ArtifactFolder, Boundary, BroughtBack, CallOptions, Cgroups, Command, CommandEnd, CommandOutcome,
    CommandOutput, Connector, ContentStream, DataFolder, DiskLimit, ExecutionContext, Executor, Input,
    Isolation, Jail, Layout, LeftBehind, LimitsReached, LineRange, Listing, Local, MissingController,
    NetworkPolicy, PrivateWorkspace, ProcessLimits, Provided, Provision, Sandbox, SandboxError,
    SandboxErrorKind, SharedFolder, Sharing, Shelf, View, Written,
};
#[cfg(feature = "docker")]
pub use conjure_sandbox::{
    BuiltImage, ImageError, ImageErrorKind, ImageName, ImageOptions, ImagePackages, ImageProgress,
    ImageSource, build_image,
};

// Containers.
#[cfg(feature = "docker")]
pub use conjure_sandbox::{
    Access as VolumeAccess, ContainerEngine, Docker, DockerEnvironment, DockerOptions, EngineAddress,
    EngineKind, SweptContainers, Volume, seccomp_profile,
};

// Content by digest, which sandboxes read.
pub use conjure_store::{Store, Tree, TreeOptions, Variant};

/// The examples of the README, so that they stay true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
