//! The query parameters of lists and streams.

use crate::common::page::Order;
use crate::common::query::{ById, PageQuery, Query, TimeRange, by_name};
use crate::sessions::session::{STATUSES, SessionStatus};
use crate::{EVENT_TYPES, RequestError};

const MAX_IDS: usize = 100;

/// The parameters of `GET /v1/agents`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentListQuery {
    /// The range of creation times.
    pub created_at: TimeRange,
    /// Whether archived agents are listed too.
    pub include_archived: bool,
    /// The requested page.
    pub page: PageQuery,
}

/// The parameters of `GET /v1/environments`, `GET /v1/vaults`, and of the list of a vault's credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivableListQuery {
    /// Whether archived objects are listed too.
    pub include_archived: bool,
    /// The requested page.
    pub page: PageQuery,
}

/// The parameters of `GET /v1/sessions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionListQuery {
    /// Only sessions of this agent.
    pub agent_id: Option<String>,
    /// Only sessions of this version of the agent. `None` without `agent_id`.
    pub agent_version: Option<u64>,
    /// The range of creation times.
    pub created_at: TimeRange,
    /// Whether archived sessions are listed too.
    pub include_archived: bool,
    /// The order of the list.
    pub order: Order,
    /// The requested page.
    pub page: PageQuery,
    /// Only sessions with one of these statuses; empty for all.
    pub statuses: Vec<SessionStatus>,
}

/// The parameters of `GET /v1/sessions/{id}/events`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventListQuery {
    /// The range of processing times.
    pub created_at: TimeRange,
    /// The order of the list.
    pub order: Order,
    /// The requested page.
    pub page: PageQuery,
    /// Only events of these types; empty for all.
    pub types: Vec<&'static str>,
}

/// The parameters of `GET /v1/sessions/{id}/events/stream`: the events that the client wants previews of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventStreamQuery {
    /// Whether messages are previewed, with their text.
    pub previews_messages: bool,
    /// Whether thinking is previewed.
    pub previews_thinking: bool,
}

/// The parameters of `GET /v1/files`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileListQuery {
    /// Only these files, on one page.
    pub ids: Option<Vec<String>>,
    /// The requested page, by cursor.
    pub page: PageQuery,
    /// The requested page, by the ids that older clients send.
    pub by_id: ById,
    /// Only files of this session.
    pub scope_id: Option<String>,
}

/// The parameters of `GET /v1/models`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelListQuery {
    /// The number of elements on a page.
    pub limit: usize,
    /// The requested page.
    pub by_id: ById,
    /// Whether models in use are listed.
    pub active: bool,
}

/// The parameters of `GET /v1/skills`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillListQuery {
    /// The requested page.
    pub page: PageQuery,
    /// Only skills from this source; `None` for all.
    pub source: Option<String>,
}

/// Refuses all parameters. For a route that has none.
///
/// # Errors
/// If there is a parameter.
pub fn no_query(text: &str) -> Result<(), RequestError> {
    Query::new(text)?.finish()
}

/// Reads the parameter `version` of `GET /v1/agents/{id}`.
///
/// # Errors
/// If the query string is invalid.
pub fn agent_version_query(text: &str) -> Result<Option<u64>, RequestError> {
    let mut query = Query::new(text)?;
    let version = query.integer("version", 1..=u64::MAX)?;
    query.finish()?;
    Ok(version)
}

macro_rules! queries {
    ($($name:ident($query:ident) $build:expr;)+) => {$(
        impl $name {
            /// Reads a query string, without its `?`.
            ///
            /// # Errors
            /// If a parameter is unknown or its value is not allowed. The error says which one and how to mend it.
            pub fn from_query(text: &str) -> Result<Self, RequestError> {
                let mut $query = Query::new(text)?;
                let value = $build;
                $query.finish()?;
                Ok(value)
            }
        }
    )+};
}

queries! {
    AgentListQuery(query) Self {
        created_at: TimeRange {
            gte: query.time("created_at[gte]")?,
            lte: query.time("created_at[lte]")?,
            ..TimeRange::default()
        },
        include_archived: query.flag("include_archived")?,
        page: query.page(20, 100)?,
    };
    ArchivableListQuery(query) Self {
        include_archived: query.flag("include_archived")?,
        page: query.page(20, 100)?,
    };
    SessionListQuery(query) {
        query.unsupported("deployment_id", "deployments (`deployment_id`)")?;
        query.unsupported("memory_store_id", "memory stores (`memory_store_id`)")?;
        let agent_id = query.one("agent_id")?;
        let agent_version = query.integer("agent_version", 1..=u64::MAX)?;
        Self {
            agent_version: agent_version.filter(|_| agent_id.is_some()),
            agent_id,
            created_at: query.created_at()?,
            include_archived: query.flag("include_archived")?,
            order: query.order(Order::Descending)?,
            page: query.page(20, 100)?,
            statuses: (query.many("statuses").iter())
                .map(|text| by_name("statuses", text, &STATUSES))
                .collect::<Result<_, _>>()?,
        }
    };
    EventListQuery(query) Self {
        created_at: query.created_at()?,
        order: query.order(Order::Ascending)?,
        page: query.page(1_000, 1_000)?,
        types: (query.many("types").iter())
            .map(|text| by_name("types", text, &EVENT_TYPES.map(|name| (name, name))))
            .collect::<Result<_, _>>()?,
    };
    EventStreamQuery(query) {
        let mut stream = Self::default();
        for text in query.many("event_deltas") {
            match by_name("event_deltas", &text, &[("agent.message", true), ("agent.thinking", false)])? {
                true => stream.previews_messages = true,
                false => stream.previews_thinking = true,
            }
        }
        stream
    };
    FileListQuery(query) {
        let ids = query.many("ids");
        let by_id = query.by_id()?;
        let limit = query.one("limit")?;
        let cursor = query.one("page")?;
        if ids.len() > MAX_IDS {
            return Err(RequestError::new("ids", format!("{} ids are too many; at most {MAX_IDS} are allowed", ids.len())));
        }
        if !ids.is_empty() && (limit.is_some() || cursor.is_some()) {
            return Err(RequestError::new("ids", "the parameter excludes `limit` and `page`; leave them out"));
        }
        if cursor.is_some() && by_id != ById::default() {
            return Err(RequestError::new("page", "the parameter excludes `after_id` and `before_id`; give one of them"));
        }
        query.pairs.extend(limit.map(|limit| ("limit".to_owned(), limit)));
        Self {
            ids: Some(ids).filter(|ids| !ids.is_empty()),
            page: PageQuery { limit: query.limit(20, 1_000)?, page: cursor },
            by_id,
            scope_id: query.one("scope_id")?,
        }
    };
    ModelListQuery(query) {
        let lifecycle = query.many("lifecycle");
        let stages = [("active", true), ("deprecated", false), ("retired", false)];
        let flags: Vec<bool> =
            lifecycle.iter().map(|text| by_name("lifecycle", text, &stages)).collect::<Result<_, _>>()?;
        Self {
            limit: query.limit(20, 1_000)?,
            by_id: query.by_id()?,
            active: flags.is_empty() || flags.contains(&true),
        }
    };
    SkillListQuery(query) Self {
        page: query.page(20, 1_000)?,
        source: query.one("source")?,
    };
}

impl PageQuery {
    /// Reads the query string for the list of an agent's versions: 20 on a page by default, at most 100.
    ///
    /// # Errors
    /// If a parameter is unknown or its value is not allowed.
    pub fn agent_versions(text: &str) -> Result<Self, RequestError> {
        Self::read(text, 20, 100)
    }

    /// Reads the query string for the list of a skill's versions: 20 on a page by default, at most 1,000.
    ///
    /// # Errors
    /// If a parameter is unknown or its value is not allowed.
    pub fn skill_versions(text: &str) -> Result<Self, RequestError> {
        Self::read(text, 20, 1_000)
    }

    /// Reads the query string for the list of a session's resources: by default all are on one page.
    ///
    /// # Errors
    /// If a parameter is unknown or its value is not allowed.
    pub fn resources(text: &str) -> Result<Self, RequestError> {
        Self::read(text, 1_000, 1_000)
    }

    fn read(text: &str, default: usize, max: usize) -> Result<Self, RequestError> {
        let mut query = Query::new(text)?;
        let page = query.page(default, max)?;
        query.finish()?;
        Ok(page)
    }
}
