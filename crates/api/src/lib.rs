//! The types of the Managed Agents API: what clients send, and what they read. Pure: no HTTP, no I/O.
//!
//! Requests are read by [`AgentCreate::from_json`] and its like, from the bytes of a body. They check types and limits,
//! and refuse unknown fields and what this server does not have. A [`RequestError`] says where, what and how to mend it.
//! Answers are plain structs that `serde` writes; those that are stored are read again.
//!
//! The names and types are those of the vendor's official SDK. What is null there may be null here, and no more.

mod agent;
mod client_event;
mod content;
mod credential;
mod deleted;
mod environment;
mod error;
mod event;
mod file;
mod id;
mod input;
mod mcp_server;
mod mcp_toolset;
mod message_create;
mod message_options;
mod metadata;
mod model;
mod model_config;
mod openapi;
mod page;
mod permission_policy;
mod query;
mod request_error;
mod resource;
mod session;
mod session_error;
mod skill;
mod skill_ref;
mod time;
mod tool;
mod vault;

pub use agent::{Agent, AgentCreate, AgentUpdate, ExecutionIdentity, NoMultiagent};
pub use client_event::{ClientEvent, EventSend, ToolOutcome};
pub use content::{Citations, ContentBlock, DocumentSource, ImageSource, SearchText};
pub use credential::{
    Credential, CredentialAuth, CredentialAuthUpdate, CredentialCreate, CredentialSecrets, CredentialUpdate,
    CredentialValidation, McpProbe, OAuthRefresh, RefreshProbe, RefreshStatus, RefreshUpdate, Secret,
    TokenEndpointAuth, ValidationStatus,
};
pub use deleted::{Deleted, DeletedKind};
pub use environment::{
    CloudConfig, CloudUpdate, ConfigUpdate, Environment, EnvironmentConfig, EnvironmentCreate,
    EnvironmentScope, EnvironmentUpdate, LimitedNetworking, Networking, Packages,
};
pub use error::{ErrorBody, ErrorDetails, ErrorKind, ErrorObject};
pub use event::{
    Confirmation, ContentDelta, EVENT_TYPES, EvaluatedPermission, Evaluation, Event, EventKind, ModelUsage,
    Preview, PreviewedEvent, SentEvents, StopDetails, StopReason,
};
pub use file::{FileMetadata, FileScope};
pub use id::{
    AgentId, ApiIdError, CredentialId, EnvironmentId, FileId, MessageId, RequestId, ResourceId, SkillId,
    SkillVersionId, VaultId,
};
pub use input::Patch;
pub use mcp_server::{McpServer, check_mcp};
pub use mcp_toolset::{McpToolConfig, McpToolset};
pub use message_create::{MessageCreate, MessageHead, MessageInput, MessageRole, MessageTool};
pub use message_options::{MessageOptions, MessageToolChoice};
pub use metadata::{Metadata, MetadataPatch, patch_metadata};
pub use model::{Lifecycle, ModelInfo};
pub use model_config::{Effort, ModelConfig, Speed};
pub use openapi::OPENAPI;
pub use page::{Cursor, FilePage, IdPage, Order, Page, TwoWayPage};
pub use permission_policy::{PermissionPolicy, ToolsetDefault};
pub use query::{
    AgentListQuery, ById, EnvironmentListQuery, EventListQuery, EventStreamQuery, FileListQuery,
    ModelListQuery, PageQuery, SessionListQuery, SkillListQuery, TimeRange, VaultListQuery,
    agent_version_query, no_query, resource_list_query,
};
pub use request_error::RequestError;
pub use resource::{Resource, ResourceCreate};
pub use session::{
    AgentChoice, AgentOverrides, Budget, CacheCreation, Money, Session, SessionAgent, SessionCreate,
    SessionStats, SessionStatus, SessionUpdate, SessionUsage,
};
pub use session_error::{RetryStatus, SessionError, SessionErrorKind};
pub use skill::{Skill, SkillSource, SkillVersion};
pub use skill_ref::{AgentSkill, SkillKind, SkillRef};
pub use time::{Time, TimeError};
pub use tool::{BuiltinTool, CustomTool, Tool, ToolConfig, Toolset};
pub use vault::{Vault, VaultCreate, VaultUpdate};
