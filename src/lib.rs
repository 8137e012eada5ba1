//! A supervised runtime for Agent Skills.
//!
//! A skill is a directory with instructions for a model, and the scripts and files that go with them. This library finds
//! skills, describes them to a model, runs the model's tool calls in a sandbox, and keeps going until the model is done.
//!
//! Start with [`Runtime`]: it has an example of ten lines. The names that most programs need are here; the rest is in the
//! modules, by subject:
//!
//! - [`skill`]: find, load, check and pack skills.
//! - [`prompt`]: the system prompt and the tool definitions.
//! - [`model`]: the [`Model`] trait, requests and responses, scripted models. `anthropic` (a feature, on by default) is the client
//!   of the Messages API.
//! - [`tool`]: tools of your own, approval of calls, and [`Workbench`]: a sandbox with tools.
//! - [`conversation`]: one whole conversation over any model ([`run_loop`]), or each step of it.
//! - [`session`], [`runtime`], [`tenant`]: sessions of many tenants, supervised and durable.
//! - [`sandbox`], [`artifact`], [`journal`], [`hosted`], [`metrics`], [`config`]: the parts.

pub use conjure_actors::metrics;
#[cfg(feature = "anthropic")]
pub use conjure_runtime::anthropic;

pub use conjure_actors::session::{Answer, Resume, Session, SessionError, TurnEvent, TurnHandle, Update};
pub use conjure_base::{Clock, SessionId, SystemClock, TenantId};
pub use conjure_conversation::{
    Block, Limits, Message, Model, ModelError, Request, Response, SessionEvent, SessionEventKind, StopReason,
    ToolDefinition, ToolResult, Usage, model_fn,
};
pub use conjure_runtime::{
    Config, Error, ErrorKind, ProcessEnv, Runtime, RuntimeError, RuntimeOptions, SessionSpec, Settings,
    TenantPolicy, Workbench, load, run_loop,
};
pub use conjure_skill::Skill;
pub use conjure_toolbox::{Approver, Tool, ToolOutput, approver_fn, tool_fn};

/// The files that sessions are given, and the files that they produce.
pub mod artifact {
    pub use conjure_actors::artifacts::{Artifacts, SharedArtifactError};
    pub use conjure_artifact::{
        ArtifactError, ArtifactErrorKind, ArtifactOptions, ArtifactUpload, ArtifactUri, DeleteError,
        DeleteOutcome, Fetch, FetchFuture, FetchRequest, FetchedContent, FinishedTurnInfo, OutputContent,
        OutputError, OutputStore, PanicMessage, Registration, RegistrationSource, ResolvedLocation,
        ResolvedReference, Retryable, TurnOutputs, UrlCache, UrlFetch, WorkspaceOutputs,
    };
    #[cfg(feature = "fetch")]
    pub use conjure_artifact::{HttpFetch, HttpFetchError};
    pub use conjure_base::Digest;
    pub use conjure_conversation::{
        Artifact, ArtifactContent, ArtifactName, ArtifactNameError, Completeness, ContentTypeOrigin,
        FileChange, FileSource, SessionFile,
    };
    #[cfg(feature = "fetch")]
    pub use conjure_egress::{AddressPolicy, Egress, EgressPolicy};
    pub use conjure_runtime::{ExpectedOutput, OutputMatch, ProducedFile, ProducedFiles};
}

/// Settings from a file, the environment and code.
pub mod config {
    pub use conjure_mcp::{
        AddressScope, HttpServer, McpConfigError, McpJson, McpServerName, McpServerSpec, McpTransport,
        ServerPlace, StdioServer, parse_mcp_json,
    };
    pub use conjure_runtime::{
        ApiProfile, ArtifactSettings, CONFIG_KEYS, CompactionSettings, Config, ConfigError, ConfigKey,
        ExecutorKind, MODEL_KEYS, ModelSettings, PoolSettings, ProcessEnv, SessionTtl, Settings,
        SkillSettings, TokenPrice, VARIABLES, Variable, parse_activation, parse_network, parse_size,
    };
}

/// The loop of a conversation, for embedders that run it themselves: turns, events, limits and compaction.
pub mod conversation {
    pub use conjure_conversation::{
        AfterResponse, AwaitedResult, CallOutcome, Compaction, CompactionError, CompactionPolicy, Composer,
        Conversation, ConversationObserver, Decision, DriveError, Event, EventKind, EventLog, EventLogError,
        InboxMessage, InboxMessageKind, Limit, Limits, LoopError, LoopOptions, LoopOutcome, MemoryEventLog,
        ModelSummarizer, PromptPrefix, QueueId, Receipt, Rejection, ResultFrom, Summarizer, Summary,
        TurnOptions, TurnOutcome, TurnServices, TurnStop, conversation_complete, extract_tool_uses,
        format_tool_results, format_tool_results_message, run_turn,
    };
    pub use conjure_runtime::{
        ProcessedResponse, execute_tool_calls, final_text, loop_options, process_response, run_loop,
        stop_error,
    };
}

/// Skills and files at the service of the model.
pub mod hosted {
    pub use conjure_artifact::{ServiceAccount, ServiceFileDeletion, ServiceFiles};
    pub use conjure_conversation::{HostedFiles, HostedSkill, HostedSource, HostedSupport};
}

/// The stores of event logs, which make sessions durable.
pub mod journal {
    #[cfg(feature = "sqlite")]
    pub use conjure_journal::SqliteOptions;
    pub use conjure_journal::{
        Direction, IndexName, IndexValue, Indexes, JournalError, JournalErrorKind, LeaseOwner, ListCursor,
        NewRecord, Record, RecordContent, RecordCursor, RecordError, RecordErrorKind, RecordFuture,
        RecordKey, RecordKind, RecordOrder, RecordPage, RecordQuery, RecordScope, RecordWrite, Records,
        RowStatus, SessionKey, SessionQuery,
    };
}

/// The model: the trait, requests and responses, scripted models, and the services behind names.
pub mod model {
    pub use conjure_base::ContainerId;
    pub use conjure_conversation::scripted::{
        RecordError, Recorder, Script, ScriptError, ScriptFormat, ScriptedModel,
    };
    pub use conjure_conversation::{
        ApiErrorKind, Block, BlockKind, Message, Model, ModelApi, ModelError, ModelErrorKind, ModelEvent,
        ModelStream, NativeContent, NativeItem, Origin, Request, Response, Role, SideEffects, StopReason,
        Usage, model_fn, parse_response,
    };
    #[cfg(feature = "model-http")]
    pub use conjure_model_http::{HttpConfigError, ListedModel, ModelPrices, Prices, Timeouts};
    #[cfg(feature = "model-http")]
    pub use conjure_runtime::{CallSettings, ConnectError, ConnectedModel, ModelClients, ToolChoice};
    pub use conjure_runtime::{KeyVariable, ModelTarget, ModelTargetError};
}

/// The model's view of skills: the system prompt and the tool definitions.
pub mod prompt {
    pub use conjure_prompt::{
        BuiltinTool, PromptOptions, SessionSkill, SessionSkills, SkillComposer, SkillLocations, SkillTool,
        SkillToolOptions, ToolOptions, available_skills_block, available_skills_block_at, build_tools_param,
        discovery_instructions, parse_tool_use, skill_tool_definitions,
    };
    pub use conjure_runtime::{build_system_prompt, system_prompt, tool_definitions};
}

/// The runtime of many sessions: options, admission, skills by tenant, maintenance, health.
pub mod runtime {
    pub use conjure_actors::admission::{AdmissionGate, AdmissionLoad, Overloaded, Permit, Share};
    pub use conjure_actors::catalogs::{
        CatalogKey, CatalogName, CatalogNameError, CatalogRegistry, CatalogSpec, RegistryError,
        RegistryOptions,
    };
    pub use conjure_actors::executors::{ConnectorSource, ExecutorOptions, ExecutorSource};
    pub use conjure_actors::maintenance::{LastRun, MaintenanceScheduler, TaskError, TaskStatus};
    pub use conjure_actors::pool::PoolStats;
    pub use conjure_actors::runtime::{Health, TurnAdmission};
    pub use conjure_actors::supervision::{ActorTree as LiveTree, ShutdownError};
    pub use conjure_base::{Clock, Deadline, SystemClock, Timestamp};
    pub use conjure_runtime::{
        DeletionReport, ExecutorFactory, RemainingFiles, RemainingSkills, RemoteSkillOutcome, ResumeReport,
        Runtime, RuntimeError, RuntimeOptions,
    };
}

/// Where tools run: jails, containers, the host itself; commands, limits and images.
pub mod sandbox {
    pub use conjure_runtime::open_sandbox;
    #[cfg(feature = "docker")]
    pub use conjure_sandbox::{
        Access as VolumeAccess, BuiltImage, ContainerEngine, ContainerSweepReport, Docker, DockerEnvironment,
        DockerOptions, EngineAddress, EngineKind, HostMount, ImageCommand, ImageError, ImageErrorKind,
        ImageName, ImageOptions, ImagePackages, ImageProgress, ImageSource, build_image, seccomp_profile,
    };
    pub use conjure_sandbox::{
        ArtifactDir, Boundary, CallOptions, Cgroups, Command, CommandEnd, CommandOutcome, CommandOutput,
        Connector, ContentDir, ContentItem, ContentStream, CopyOutReport, DataDir, DiskLimit,
        ExecutionContext, Executor, HostAccess, Input, Isolation, ItemContent, Jail, Layout, LineRange,
        Listing, Local, MissingController, NetworkPolicy, OwnedWorkspace, Process, ProcessCall,
        ProcessLimits, ReachedLimits, RunEvent, Sandbox, SandboxError, SandboxErrorKind, SharedDir,
        SkippedFile, View, WriteResult,
    };
    pub use conjure_store::{FileMode, Store, Tree, TreeOptions};
}

/// The Managed Agents API over HTTP.
#[cfg(feature = "serve")]
pub mod server {
    pub use conjure_runtime::ServeSettings;
    pub use conjure_server::{
        ApiKey, ApiKeyId, ApiKeyInfo, ApiKeyTextError, ApiKeys, ApiKeysError, Metrics, NewApiKey,
        ReloadError, RouteInfo, Scope, ServeError, Server, ServerHandle, ServerOptions, TlsCertificate,
        TlsError, route_table,
    };
}

/// A session: how to open it, how to send messages and decisions to it, and which events it reports.
pub mod session {
    pub use conjure_actors::session::{
        Accepted, Answer, Input as UserInput, Resume, Session, SessionError, SessionOptions, SessionSnapshot,
        SessionStatus, Subscription, TurnEvent, TurnHandle, Update,
    };
    pub use conjure_base::{Redactor, SessionId, TurnId, is_sensitive_variable};
    pub use conjure_conversation::{
        ActionNeed, Approval, EvaluatedPermission, EventId, EventIdError, EventProjection, FinishedTurn,
        ForkError, ForkPoint, Grant, GrantScope, InputAnswer, InputAnswers, InputForm, InputQuestion,
        InputRequest, PendingAction, PinnedSkill, ProfileChange, RequiredAction, RequiredNeed,
        SESSION_EVENT_SCHEMA, SecretNames, SessionEvent, SessionEventKind, SessionProfile, SessionStopReason,
        SessionView, SkillActivation, SkillDelivery, merge_events,
    };
    pub use conjure_runtime::{
        ContextOptions, EventCursor, EventOrder, EventQuery, InputError, SessionBody, SessionContents,
        SessionContext, SessionEventPage, SessionList, SessionSecrets, SessionSpec, SessionSummary,
        SessionWorkspace, UnknownSkill, WorkspaceSnapshot, create_context, noted_workspaces,
        redactor_of_inputs,
    };
}

/// Skills: find, load, check, pack.
pub mod skill {
    pub use conjure_runtime::{
        find_skill, load, load_all, load_body, load_configured, load_skill_file, read_resource,
    };
    pub use conjure_skill::{
        AllowRule, AllowRuleError, AllowedTools, Catalog, CommandProbe, Destructive, Diagnostic, Disclosure,
        Discovery, DiscoveryLimits, EnvVariable, Execution, Frontmatter, Input, InputProblem, Inputs,
        Manifest, ManifestError, ManifestVersion, Metadata, Missing, Mode, Network, OutputArtifact,
        OutputFile, OutputPattern, OutputPatternError, PackReport, Package, PackageFile, PackageLimits,
        PackageProblem, PackageProblemKind, ParsedManifest, PathBase, PathProblem, Preflight,
        PreflightFinding, PreflightReport, PreflightRule, Probe, ProbeError, ProbeFuture, Properties, Reload,
        Reloader, RequiredCommand, RequiredFile, Requirement, Resource, ResourceStart, Resources, RuleId,
        RuleOutcome, RuleReport, SIDECAR_FILE, Schema, SchemaMismatch, Scope, ScopeKind, Severity, Skill,
        SkillDigests, SkillError, SkillErrorKind, SkillName, Trust, UnpackedPackage, ValueType, Version,
        VersionQuery, discover, extract_skill_file, input_text, input_variable, pack, pack_file, validate,
    };
}

/// Tenants: policies, quotas, budgets and usage.
pub mod tenant {
    pub use conjure_actors::tenants::{
        Allowance, Budget, CostLimit, Period, Price, Quota, QuotaExceeded, Spent,
    };
    pub use conjure_base::TenantId;
    pub use conjure_runtime::{DiskUsage, Tenant, TenantPolicy, TenantUsage};
}

/// Tools that the model may call, and the approval of calls.
pub mod tool {
    pub use conjure_base::CallId;
    pub use conjure_conversation::{
        AgentToolset, Authorization, CallConcurrency, CallContext, CallTraits, PermissionPolicy,
        ProgressSink, ProvidedInput, RemoteToolServer, ResultContent, ToolCall, ToolDefinition, ToolEnding,
        ToolProgress, ToolResult, ToolRule, ToolRunOutcome, ToolRunner, ToolServerFailure, ToolsetTool,
    };
    pub use conjure_runtime::{Workbench, execute};
    pub use conjure_toolbox::{
        AllowAll, AllowedToolsPolicy, Approver, CallerIdentity, DenyAll, Interpreters, MAX_ACTIVE_SKILLS,
        OutputLimits, SandboxProbe, SkillTools, Tool, ToolContext, ToolOutput, ToolStatus, Toolbox,
        ToolboxBuilder, approver_fn, tool_fn,
    };
}

/// The examples of the README, which are compiled as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
