//! The query strings of lists and streams.

use std::ops::RangeInclusive;

use crate::page::Order;
use crate::session::{STATUSES, SessionStatus};
use crate::{EVENT_TYPES, RequestError, Time};

/// The parameters of a query string, which are taken one after the other.
#[derive(Debug, Clone, Default)]
struct Query {
    known: Vec<&'static str>,
    /// Names without the `[]` of arrays, and values.
    pairs: Vec<(String, String)>,
}

/// Bounds on a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeRange {
    /// After this time.
    pub gt: Option<Time>,
    /// At or after this time.
    pub gte: Option<Time>,
    /// Before this time.
    pub lt: Option<Time>,
    /// At or before this time.
    pub lte: Option<Time>,
}

/// The parameters of a list that has no others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageQuery {
    /// How many elements a page has.
    pub limit: usize,
    /// Where the page begins.
    pub page: Option<String>,
}

/// The parameters of `GET /v1/agents`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentListQuery {
    /// When the agents were made.
    pub created_at: TimeRange,
    /// Whether archived agents are listed too.
    pub include_archived: bool,
    /// Which page.
    pub page: PageQuery,
}

/// The parameters of `GET /v1/environments`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentListQuery {
    /// Whether archived environments are listed too.
    pub include_archived: bool,
    /// Which page.
    pub page: PageQuery,
}

/// The parameters of `GET /v1/vaults`, and of the list of a vault's credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultListQuery {
    /// Whether what is archived is listed too.
    pub include_archived: bool,
    /// Which page.
    pub page: PageQuery,
}

/// The parameters of `GET /v1/sessions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionListQuery {
    /// Sessions of this agent.
    pub agent_id: Option<String>,
    /// Sessions of this version of the agent. It is null without `agent_id`.
    pub agent_version: Option<u64>,
    /// When the sessions were made.
    pub created_at: TimeRange,
    /// Whether archived sessions are listed too.
    pub include_archived: bool,
    /// In which order.
    pub order: Order,
    /// Which page.
    pub page: PageQuery,
    /// With one of these statuses; empty for all.
    pub statuses: Vec<SessionStatus>,
}

/// The parameters of `GET /v1/sessions/{id}/events`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventListQuery {
    /// When the events were processed.
    pub created_at: TimeRange,
    /// In which order.
    pub order: Order,
    /// Which page.
    pub page: PageQuery,
    /// Of these types; empty for all.
    pub types: Vec<&'static str>,
}

/// The parameters of `GET /v1/sessions/{id}/events/stream`: previews of which events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventStreamQuery {
    /// Of messages, with their text.
    pub previews_messages: bool,
    /// Of thinking.
    pub previews_thinking: bool,
}

/// The parameters of `GET /v1/files`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileListQuery {
    /// These files, on one page.
    pub ids: Option<Vec<String>>,
    /// Which page, by cursor.
    pub page: PageQuery,
    /// Which page, by the ids of older clients.
    pub by_id: ById,
    /// Files of this session.
    pub scope_id: Option<String>,
}

/// Which page of a list, by the id of an element.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ById {
    /// After this element.
    pub after_id: Option<String>,
    /// Before this element.
    pub before_id: Option<String>,
}

/// The parameters of `GET /v1/models`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelListQuery {
    /// How many elements a page has.
    pub limit: usize,
    /// Which page.
    pub by_id: ById,
    /// Whether models in use are wanted.
    pub active: bool,
}

/// The parameters of `GET /v1/skills`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillListQuery {
    /// Which page.
    pub page: PageQuery,
    /// Skills from this source; nothing for all.
    pub source: Option<String>,
}

const MAX_IDS: usize = 100;

impl Query {
    /// Reads a query string, without its `?`.
    fn new(text: &str) -> Result<Self, RequestError> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name)?;
            let value = decode(value)?;
            let name = name.strip_suffix("[]").map(str::to_owned).unwrap_or(name);
            pairs.push((name, value));
        }
        // What older clients send with each request of a beta.
        pairs.retain(|(name, _)| name != "beta");
        Ok(Self { known: Vec::new(), pairs })
    }

    fn many(&mut self, name: &'static str) -> Vec<String> {
        self.known.push(name);
        self.pairs.extract_if(.., |(found, _)| found == name).map(|(_, value)| value).collect()
    }

    fn one(&mut self, name: &'static str) -> Result<Option<String>, RequestError> {
        let mut values = self.many(name);
        match values.len() {
            0 | 1 => Ok(values.pop().filter(|value| !value.is_empty())),
            found => {
                Err(RequestError::new(name, format!("the parameter is there {found} times; give it once")))
            }
        }
    }

    fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, RequestError> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| {
            let (min, max) = (range.start(), range.end());
            let wanted = if *max == u64::MAX { format!("{min} or more") } else { format!("{min} to {max}") };
            RequestError::new(name, format!("`{text}` is not allowed; give an integer of {wanted}"))
        })
    }

    fn flag(&mut self, name: &'static str) -> Result<bool, RequestError> {
        match self.one(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => {
                Err(RequestError::new(name, format!("`{other}` is not allowed; give `true` or `false`")))
            }
        }
    }

    fn time(&mut self, name: &'static str) -> Result<Option<Time>, RequestError> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|error| RequestError::new(name, format!("{error}")))
    }

    fn created_at(&mut self) -> Result<TimeRange, RequestError> {
        Ok(TimeRange {
            gt: self.time("created_at[gt]")?,
            gte: self.time("created_at[gte]")?,
            lt: self.time("created_at[lt]")?,
            lte: self.time("created_at[lte]")?,
        })
    }

    fn order(&mut self, default: Order) -> Result<Order, RequestError> {
        match self.one("order")?.as_deref() {
            None => Ok(default),
            Some("asc") => Ok(Order::Ascending),
            Some("desc") => Ok(Order::Descending),
            Some(other) => {
                Err(RequestError::new("order", format!("`{other}` is not allowed; give `asc` or `desc`")))
            }
        }
    }

    fn page(&mut self, default: usize, max: usize) -> Result<PageQuery, RequestError> {
        Ok(PageQuery { limit: self.limit(default, max)?, page: self.one("page")? })
    }

    fn limit(&mut self, default: usize, max: usize) -> Result<usize, RequestError> {
        let limit = self.integer("limit", 1..=u64::try_from(max).unwrap_or(u64::MAX))?;
        Ok(limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(default))
    }

    fn by_id(&mut self) -> Result<ById, RequestError> {
        let by_id = ById { after_id: self.one("after_id")?, before_id: self.one("before_id")? };
        match by_id {
            ById { after_id: Some(_), before_id: Some(_) } => {
                Err(RequestError::new("before_id", "the parameter excludes `after_id`; give one of them"))
            }
            by_id => Ok(by_id),
        }
    }

    /// Refuses a filter for things that this server does not have.
    fn unsupported(&mut self, name: &'static str, what: &str) -> Result<(), RequestError> {
        match self.one(name)? {
            Some(_) => Err(RequestError::unsupported(name, what)),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<(), RequestError> {
        let Some((unknown, _)) = self.pairs.first() else { return Ok(()) };
        let known: Vec<String> = self.known.iter().map(|name| format!("`{name}`")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(RequestError::new(
            unknown.escape_debug().to_string(),
            format!("the parameter is unknown; remove it (known here: {known})"),
        ))
    }
}

/// Decodes `%XX` and `+`.
fn decode(text: &str) -> Result<String, RequestError> {
    let bytes = text.as_bytes();
    let digit = |index: usize| bytes.get(index).and_then(|byte| char::from(*byte).to_digit(16));
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(byte) = bytes.get(index) {
        let escaped = (*byte == b'%').then(|| digit(index + 1).zip(digit(index + 2))).flatten();
        match (byte, escaped) {
            (_, Some((high, low))) => {
                decoded.push(u8::try_from(high * 16 + low).unwrap_or(u8::MAX));
                index += 2;
            }
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(*byte),
        }
        index += 1;
    }
    String::from_utf8(decoded)
        .map_err(|_| RequestError::new("", "the query string is not UTF-8; encode its values as UTF-8"))
}

impl TimeRange {
    /// Whether `time` is within the bounds.
    #[must_use]
    pub fn contains(&self, time: Time) -> bool {
        self.gt.is_none_or(|bound| time > bound)
            && self.gte.is_none_or(|bound| time >= bound)
            && self.lt.is_none_or(|bound| time < bound)
            && self.lte.is_none_or(|bound| time <= bound)
    }
}

/// Refuses all parameters, for a route that has none.
///
/// # Errors
/// When there is one.
pub fn no_query(text: &str) -> Result<(), RequestError> {
    Query::new(text)?.finish()
}

/// Reads the query string of `GET /v1/sessions/{id}/resources`: all resources unless a `limit` is given.
///
/// # Errors
/// When a parameter is unknown or its value is not allowed.
pub fn resource_list_query(text: &str) -> Result<PageQuery, RequestError> {
    let mut query = Query::new(text)?;
    let page = query.page(1000, 1000)?;
    query.finish()?;
    Ok(page)
}

/// Reads the parameter `version` of `GET /v1/agents/{id}`.
///
/// # Errors
/// When the query string is not what it should be.
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
            /// When a parameter is unknown or its value is not allowed; the error says which and how to mend it.
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
    EnvironmentListQuery(query) Self {
        include_archived: query.flag("include_archived")?,
        page: query.page(20, 100)?,
    };
    VaultListQuery(query) Self {
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
        let wanted: Vec<bool> =
            lifecycle.iter().map(|text| by_name("lifecycle", text, &stages)).collect::<Result<_, _>>()?;
        Self {
            limit: query.limit(20, 1_000)?,
            by_id: query.by_id()?,
            active: wanted.is_empty() || wanted.contains(&true),
        }
    };
    SkillListQuery(query) Self {
        page: query.page(20, 1_000)?,
        source: query.one("source")?,
    };
}

impl PageQuery {
    /// Reads the query string of a list of an agent's versions: pages of 20, at most 100.
    ///
    /// # Errors
    /// When a parameter is unknown or its value is not allowed.
    pub fn agent_versions(text: &str) -> Result<Self, RequestError> {
        Self::read(text, 20, 100)
    }

    /// Reads the query string of a list of a skill's versions: pages of 20, at most 1,000.
    ///
    /// # Errors
    /// When a parameter is unknown or its value is not allowed.
    pub fn skill_versions(text: &str) -> Result<Self, RequestError> {
        Self::read(text, 20, 1_000)
    }

    /// Reads the query string of a list of a session's resources: all on one page, if nothing else is wanted.
    ///
    /// # Errors
    /// When a parameter is unknown or its value is not allowed.
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

/// The value with this name.
fn by_name<T: Copy>(parameter: &str, text: &str, allowed: &[(&str, T)]) -> Result<T, RequestError> {
    allowed.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<String> = allowed.iter().map(|(name, _)| format!("`{name}`")).collect();
        let text = text.escape_debug();
        RequestError::new(parameter, format!("`{text}` is not allowed; give one of {}", names.join(", ")))
    })
}
