//! Skills: one row for each skill with its newest version, and one row for each version. The package of a version is stored among the
//! tenant's files, under the version's id.
//!
//! A package is stored before its row and deleted after it.

use conjure_api::{
    Page, PageQuery, Skill, SkillId, SkillListQuery, SkillSource, SkillVersion, SkillVersionId,
};
use conjure_base::TenantId;
use conjure_journal::{
    IndexName, NewRecord, Record, RecordContent, RecordKey, RecordKind, RecordWrite, Records,
};
use serde::{Deserialize, Serialize};

use crate::http::ApiError;
use crate::objects::rows::{MAX_ATTEMPTS, Rows, busy, decode, encode, unless_lost};

static SKILL: RecordKind = RecordKind::from_static("skill");
static VERSION: RecordKind = RecordKind::from_static("skill-version");

/// The index of versions by skill.
const OF_SKILL: IndexName = IndexName::from_static("skill");

/// How many versions are read or deleted at a time.
const BATCH: u32 = 100;

/// The skills of a tenant.
#[derive(Clone, Copy)]
pub(crate) struct Skills<'r> {
    records: &'r dyn Records,
    tenant: &'r TenantId,
}

/// The row of a skill.
#[derive(Clone, Serialize, Deserialize)]
struct SkillRow {
    skill: Skill,
    /// The name in `SKILL.md`, which is the same in all versions.
    name: String,
}

impl<'r> Skills<'r> {
    pub(crate) const fn new(records: &'r dyn Records, tenant: &'r TenantId) -> Self {
        Self { records, tenant }
    }

    const fn skills(&self) -> Rows<'r> {
        Rows { records: self.records, tenant: self.tenant, kind: &SKILL }
    }

    const fn all_versions(&self) -> Rows<'r> {
        Rows { records: self.records, tenant: self.tenant, kind: &VERSION }
    }

    /// Stores a new skill with its first version.
    pub(crate) async fn create(
        &self,
        display_name: String,
        version: &SkillVersion,
    ) -> Result<Skill, ApiError> {
        let skill = Skill {
            id: version.skill_id,
            created_at: version.created_at,
            display_name,
            latest_version_id: version.id,
            source: SkillSource::Custom,
            updated_at: version.created_at,
        };
        let row = SkillRow { skill, name: version.name.clone() };
        let writes = vec![
            RecordWrite::Insert(NewRecord::new(self.skills().key(row.skill.id)?, encode(&row)?)),
            RecordWrite::Insert(self.version_record(version)?),
        ];
        let written = self.records.transact(writes).await?;
        match written.first() {
            Some(Some(record)) => read_skill(record),
            _ => Ok(row.skill),
        }
    }

    /// Stores a new version of a skill.
    pub(crate) async fn add_version(&self, version: &SkillVersion) -> Result<SkillVersion, ApiError> {
        let id = version.skill_id;
        for _ in 0..MAX_ATTEMPTS {
            let record = self.skills().get(id).await?;
            let mut row: SkillRow = decode(&record)?;
            if row.name != version.name {
                return Err(ApiError::invalid(format!(
                    "files: the skill {id} has the name `{}`, and this version `{}`; keep the name, or create another skill",
                    row.name, version.name
                )));
            }
            row.skill.latest_version_id = version.id;
            row.skill.updated_at = version.created_at;
            let writes =
                vec![replace(&record, encode(&row)?), RecordWrite::Insert(self.version_record(version)?)];
            if let Some(written) = unless_lost(self.records.transact(writes).await)? {
                return match written.last() {
                    Some(Some(record)) => read_version(record),
                    _ => Ok(version.clone()),
                };
            }
        }
        Err(busy())
    }

    /// A skill.
    pub(crate) async fn get(&self, id: SkillId) -> Result<Skill, ApiError> {
        read_skill(&self.skills().get(id).await?)
    }

    /// A version of a skill, by its id or `latest`.
    pub(crate) async fn version(&self, id: SkillId, version: &str) -> Result<SkillVersion, ApiError> {
        let skill = self.get(id).await?;
        let wanted = match version {
            "latest" => skill.latest_version_id,
            text => text.parse()?,
        };
        let record = self.all_versions().find(wanted).await?;
        let found =
            record.map(|record| read_version(&record)).transpose()?.filter(|found| found.skill_id == id);
        found.ok_or_else(|| ApiError::not_found(format!("the skill {id} has no version {wanted}")))
    }

    /// A page of skills, the newest first.
    pub(crate) async fn list(&self, query: &SkillListQuery) -> Result<Page<Skill>, ApiError> {
        if query.source.as_deref().is_some_and(|source| source != "custom") {
            return Ok(Page { data: Vec::new(), next_page: None });
        }
        let rows = self.skills();
        rows.page(rows.query(), &query.page, read_skill).await
    }

    /// A page of a skill's versions, the newest first.
    pub(crate) async fn versions(
        &self,
        id: SkillId,
        page: &PageQuery,
    ) -> Result<Page<SkillVersion>, ApiError> {
        self.get(id).await?;
        let rows = self.all_versions();
        rows.page(rows.query().with_filter(OF_SKILL, id.to_string()), page, read_version).await
    }

    /// Deletes a version. The last remaining version cannot be deleted.
    pub(crate) async fn delete_version(&self, id: SkillId, version: SkillVersionId) -> Result<(), ApiError> {
        for _ in 0..MAX_ATTEMPTS {
            self.version(id, &version.to_string()).await?;
            let record = self.skills().get(id).await?;
            let mut row: SkillRow = decode(&record)?;
            let newest = self.newest_versions(id, 2).await?;
            let mut others = newest.iter().map(read_version).collect::<Result<Vec<_>, _>>()?;
            others.retain(|other| other.id != version);
            let Some(latest) = others.first() else {
                return Err(ApiError::invalid(format!(
                    "the skill {id} has no other version than {version}; delete the skill instead"
                )));
            };
            if row.skill.latest_version_id == version {
                row.skill.latest_version_id = latest.id;
            }
            // The skill's row is always rewritten, so that a concurrent addition or deletion of a version conflicts.
            let writes = vec![
                replace(&record, encode(&row)?),
                RecordWrite::Delete { key: self.all_versions().key(version)?, expected_version: None },
            ];
            if unless_lost(self.records.transact(writes).await)?.is_some() {
                return Ok(());
            }
        }
        Err(busy())
    }

    /// Deletes a skill with all its versions. Returns the ids of the versions.
    pub(crate) async fn delete(&self, id: SkillId) -> Result<Vec<SkillVersionId>, ApiError> {
        self.skills().delete(id).await?;
        let mut deleted = Vec::new();
        loop {
            let versions = self.newest_versions(id, BATCH).await?;
            if versions.is_empty() {
                return Ok(deleted);
            }
            let delete = |key: RecordKey| RecordWrite::Delete { key, expected_version: None };
            self.records.transact(versions.iter().map(|record| delete(record.key.clone())).collect()).await?;
            for record in &versions {
                deleted.push(read_version(record)?.id);
            }
        }
    }

    async fn newest_versions(&self, id: SkillId, limit: u32) -> Result<Vec<Record>, ApiError> {
        let query = self.all_versions().query().with_filter(OF_SKILL, id.to_string()).with_limit(limit);
        Ok(self.records.query(query).await?.records)
    }

    fn version_record(&self, version: &SkillVersion) -> Result<NewRecord, ApiError> {
        let content = encode(version)?.with_index(OF_SKILL, version.skill_id.to_string());
        Ok(NewRecord::new(self.all_versions().key(version.id)?, content))
    }
}

fn replace(record: &Record, content: RecordContent) -> RecordWrite {
    RecordWrite::Replace { key: record.key.clone(), expected_version: record.version, content }
}

/// Decodes a skill from its row. Its creation time is that of the row, which orders lists.
fn read_skill(record: &Record) -> Result<Skill, ApiError> {
    let SkillRow { skill, .. } = decode(record)?;
    Ok(Skill { created_at: record.created_at.into(), ..skill })
}

fn read_version(record: &Record) -> Result<SkillVersion, ApiError> {
    let version: SkillVersion = decode(record)?;
    Ok(SkillVersion { created_at: record.created_at.into(), ..version })
}
