//! The types of the Managed Agents API: what clients send and what they read. The crate has no HTTP and no I/O.
//!
//! [`RequestBody::from_json`] reads a request from the bytes of its body. It checks types and limits. It refuses unknown fields, and fields
//! for features that this server does not have. A [`RequestError`] says where the fault is, what is wrong and how to mend it.
//!
//! Responses are plain structs that `serde` writes. The types that are stored can be read again.
//!
//! The names and types are those of the vendor's official SDK. A field may be null here only if it may be null there.

mod agents;
mod common;
mod file;
mod messages;
mod model;
mod openapi;
mod sessions;
mod skill;
mod vaults;

pub use agents::agent::{Agent, AgentCreate, AgentUpdate, ExecutionIdentity, NoMultiagent};
pub use agents::environment::{
    CloudConfig, CloudUpdate, ConfigUpdate, Environment, EnvironmentConfig, EnvironmentCreate,
    EnvironmentScope, EnvironmentUpdate, LimitedNetworking, Networking, Packages,
};
pub use agents::mcp_server::{McpServer, check_mcp};
pub use agents::mcp_toolset::{McpToolConfig, McpToolset};
pub use agents::model_config::{Effort, ModelConfig, Speed};
pub use agents::permission_policy::{PermissionPolicy, ToolsetDefault};
pub use agents::skill_ref::{AgentSkill, SkillKind, SkillRef};
pub use agents::tool::{BuiltinTool, CustomTool, Tool, ToolConfig, Toolset};
pub use common::body::RequestBody;
pub use common::deleted::{Deleted, DeletedKind};
pub use common::error::{ErrorBody, ErrorDetails, ErrorKind, ErrorObject};
pub use common::id::{
    AgentId, ApiIdError, CredentialId, EnvironmentId, FileId, MessageId, RequestId, ResourceId, SkillId,
    SkillVersionId, VaultId,
};
pub use common::input::Patch;
pub use common::list_query::{
    AgentListQuery, ArchivableListQuery, EventListQuery, EventStreamQuery, FileListQuery, ModelListQuery,
    SessionListQuery, SkillListQuery, agent_version_query, no_query,
};
pub use common::metadata::{Metadata, MetadataPatch, patch_metadata};
pub use common::page::{Cursor, FilePage, IdPage, Order, Page, TwoWayPage};
pub use common::query::{ById, PageQuery, TimeRange};
pub use common::request_error::RequestError;
pub use common::time::{Time, TimeError};
pub use file::{FileMetadata, FileScope};
pub use messages::message_create::{MessageCreate, MessageHead, MessageInput, MessageRole, MessageTool};
pub use messages::message_options::{MessageOptions, MessageToolChoice};
pub use model::{Lifecycle, ModelInfo};
pub use openapi::OPENAPI;
pub use sessions::client_event::{ClientEvent, EventSend, ToolOutcome};
pub use sessions::content::{Citations, ContentBlock, DocumentSource, ImageSource, SearchText};
pub use sessions::event::{
    Confirmation, ContentDelta, EVENT_TYPES, EvaluatedPermission, Evaluation, Event, EventKind, ModelUsage,
    Preview, PreviewedEvent, SentEvents, StopDetails, StopReason,
};
pub use sessions::resource::{Resource, ResourceCreate};
pub use sessions::session::{
    AgentChoice, AgentOverrides, Budget, CacheCreation, Money, Session, SessionAgent, SessionCreate,
    SessionStats, SessionStatus, SessionUpdate, SessionUsage,
};
pub use sessions::session_error::{RetryStatus, SessionError, SessionErrorKind};
pub use skill::{Skill, SkillSource, SkillVersion};
pub use vaults::credential::{
    Credential, CredentialAuth, CredentialAuthUpdate, CredentialCreate, CredentialSecrets, CredentialUpdate,
    CredentialValidation, McpProbe, OAuthRefresh, RefreshProbe, RefreshStatus, RefreshUpdate, Secret,
    TokenEndpointAuth, ValidationStatus,
};
pub use vaults::vault::{Vault, VaultCreate, VaultUpdate};
