//! Agents: one row for the newest version of each agent, and one row for every version.

use conjure_api::{Agent, AgentId, AgentListQuery, Page, PageQuery};
use conjure_base::TenantId;
use conjure_journal::{IndexName, NewRecord, Record, RecordContent, RecordKind, RecordWrite, Records};

use crate::http::ApiError;
use crate::objects::rows::{
    ARCHIVED, MAX_ATTEMPTS, Rows, archived, busy, created_at, decode, encode, now, unless_lost, with_archived,
};

static AGENT: RecordKind = RecordKind::from_static("agent");
static VERSION: RecordKind = RecordKind::from_static("agent-version");

/// The index of versions by agent.
const OF_AGENT: IndexName = IndexName::from_static("agent");

/// The agents of a tenant.
#[derive(Clone, Copy)]
pub(crate) struct Agents<'r> {
    records: &'r dyn Records,
    tenant: &'r TenantId,
}

impl<'r> Agents<'r> {
    pub(crate) const fn new(records: &'r dyn Records, tenant: &'r TenantId) -> Self {
        Self { records, tenant }
    }

    const fn agents(&self) -> Rows<'r> {
        Rows { records: self.records, tenant: self.tenant, kind: &AGENT }
    }

    const fn versions_of_all(&self) -> Rows<'r> {
        Rows { records: self.records, tenant: self.tenant, kind: &VERSION }
    }

    /// Stores a new agent with the version 1.
    pub(crate) async fn create(&self, agent: Agent) -> Result<Agent, ApiError> {
        let key = self.agents().key(agent.id)?;
        let writes = vec![
            RecordWrite::Insert(NewRecord::new(key, agent_content(&agent)?)),
            RecordWrite::Insert(self.version_record(&agent)?),
        ];
        let written = self.records.transact(writes).await?;
        match written.into_iter().flatten().next() {
            Some(record) => read_agent(&record),
            None => Ok(agent),
        }
    }

    /// The newest version of an agent.
    pub(crate) async fn newest(&self, id: AgentId) -> Result<Agent, ApiError> {
        read_agent(&self.agents().get(id).await?)
    }

    /// A version of an agent, by default the newest.
    pub(crate) async fn version(&self, id: AgentId, version: Option<u64>) -> Result<Agent, ApiError> {
        let newest = self.newest(id).await?;
        match version {
            None => Ok(newest),
            Some(version) if version == newest.version => Ok(newest),
            Some(version) => {
                let record = self.versions_of_all().find(version_id(id, version)).await?;
                let record = record.ok_or_else(|| {
                    ApiError::not_found(format!(
                        "the agent {id} has no version {version}; its newest is {}",
                        newest.version
                    ))
                })?;
                read_version(&record, &newest)
            }
        }
    }

    /// Stores a new version of an agent, which `change` makes from the newest one. Stores nothing if nothing differs. If `expected` is set,
    /// it must be the newest version.
    pub(crate) async fn update(
        &self,
        id: AgentId,
        expected: Option<u64>,
        mut change: impl FnMut(Agent) -> Result<Agent, ApiError>,
    ) -> Result<Agent, ApiError> {
        for _ in 0..MAX_ATTEMPTS {
            let record = self.agents().get(id).await?;
            let newest = read_agent(&record)?;
            if newest.archived_at.is_some() {
                return Err(ApiError::invalid(format!("the agent {id} is archived and cannot be changed")));
            }
            if let Some(expected) = expected.filter(|expected| *expected != newest.version) {
                return Err(ApiError::conflict(format!(
                    "the agent {id} has the version {}, not {expected}; read it again, and update that version",
                    newest.version
                )));
            }
            let changed = change(newest.clone())?;
            if changed == newest {
                return Ok(newest);
            }
            let changed = Agent { version: newest.version + 1, updated_at: now(), ..changed };
            let writes = vec![
                RecordWrite::Replace {
                    key: record.key.clone(),
                    expected_version: record.version,
                    content: agent_content(&changed)?,
                },
                RecordWrite::Insert(self.version_record(&changed)?),
            ];
            if unless_lost(self.records.transact(writes).await)?.is_some() {
                return Ok(changed);
            }
        }
        Err(busy())
    }

    /// Archives an agent. Does nothing if it is archived already.
    pub(crate) async fn archive(&self, id: AgentId) -> Result<Agent, ApiError> {
        self.agents()
            .change(id, |record| {
                let agent = read_agent(record)?;
                if agent.archived_at.is_some() {
                    return Ok((agent, None));
                }
                let time = now();
                let agent = Agent { archived_at: Some(time), updated_at: time, ..agent };
                let content = agent_content(&agent)?;
                Ok((agent, Some(content)))
            })
            .await
    }

    /// A page of agents, the newest first.
    pub(crate) async fn list(&self, query: &AgentListQuery) -> Result<Page<Agent>, ApiError> {
        let rows = self.agents();
        let mut wanted = with_archived(rows.query(), query.include_archived);
        wanted.order = created_at(&query.created_at);
        rows.page(wanted, &query.page, read_agent).await
    }

    /// A page of an agent's versions, the newest first.
    pub(crate) async fn versions(&self, id: AgentId, page: &PageQuery) -> Result<Page<Agent>, ApiError> {
        let newest = self.newest(id).await?;
        let rows = self.versions_of_all();
        let wanted = rows.query().with_filter(OF_AGENT, id.to_string());
        rows.page(wanted, page, |record| read_version(record, &newest)).await
    }

    fn version_record(&self, agent: &Agent) -> Result<NewRecord, ApiError> {
        let key = self.versions_of_all().key(version_id(agent.id, agent.version))?;
        Ok(NewRecord::new(key, encode(agent)?.with_index(OF_AGENT, agent.id.to_string())))
    }
}

fn version_id(id: AgentId, version: u64) -> String {
    format!("{id}.{version}")
}

fn agent_content(agent: &Agent) -> Result<RecordContent, ApiError> {
    Ok(encode(agent)?.with_index(ARCHIVED, archived(agent.archived_at.is_some())))
}

/// Decodes an agent from its row. Its creation time is that of the row, which orders and filters lists.
fn read_agent(record: &Record) -> Result<Agent, ApiError> {
    let mut agent: Agent = decode(record)?;
    agent.created_at = record.created_at.into();
    if agent.version == 1 && agent.archived_at.is_none() {
        agent.updated_at = agent.created_at;
    }
    Ok(agent)
}

/// Decodes a version from its row. Fields that all versions share are taken from the newest version.
fn read_version(record: &Record, newest: &Agent) -> Result<Agent, ApiError> {
    let version: Agent = decode(record)?;
    Ok(Agent {
        created_at: newest.created_at,
        archived_at: newest.archived_at,
        updated_at: record.created_at.into(),
        ..version
    })
}
