//! Skills that were uploaded for a tenant who is deleted: those that the record of uploads has under a key that is the tenant's alone.
//!
//! They are noted before that record forgets them, and deleted when nothing of the tenant is left here. What the record has again by then
//! was uploaded anew, by whoever comes by that name, and stays.

use std::collections::BTreeSet;

use conjure_anthropic::hosted::{HostedError, HostedErrorKind, HostedRemoval, SkillId, SkillSync};
use conjure_artifact::FileRemoval as _;
use conjure_base::{Clock as _, Deadline, SystemClock, TenantId};

use super::super::deleting::STOPPING;
use super::super::error::RuntimeError;
use super::super::handle::Runtime;
use super::super::options::Record;
use super::super::tenants::OwnKey;
use super::carrying::{Carried, FOR_ONE};
use super::noted::{Account, Remains, SkillsLeft};
use super::parting::Parting;
use super::report::{SkillFate, SkillsAtService};
use crate::anthropic::Client;

impl Runtime {
    /// Notes the skills that go with a tenant, and has the record of uploads forget them.
    pub(in crate::runtime) async fn note_skills(
        &self,
        tenant: &TenantId,
        parting: &mut Parting,
    ) -> Result<(), RuntimeError> {
        if self.inner.outfitter.home().record() == Record::InMemory {
            // The record of uploads is of those who keep something, whose tenant stays.
            return Ok(());
        }
        let (client, is_alone) = match self.inner.outfitter.policies().own_key(tenant) {
            OwnKey::None => return Ok(()),
            OwnKey::Shared(client) => (client, false),
            OwnKey::Alone(client) => (client, true),
        };
        let account = account_of(&client);
        let mut stay = |ids: &BTreeSet<String>, reason: String| {
            parting.kept.push(SkillsAtService {
                service: account.service.clone(),
                skills: ids.iter().cloned().collect(),
                fate: SkillFate::Stay,
                reason,
            });
        };
        let sync = self.uploads_of(&client);
        let ids: BTreeSet<String> = match sync.remembered().await {
            Ok(known) => known.into_values().map(|id| id.as_str().to_owned()).collect(),
            Err(error) => {
                stay(&BTreeSet::new(), error.to_string());
                return Ok(());
            }
        };
        if ids.is_empty() {
            return Ok(());
        }
        if !is_alone {
            stay(&ids, "others have the same key".to_owned());
            return Ok(());
        }
        let skills = SkillsLeft { account: account.clone(), ids: ids.clone() };
        let remains = Remains::of_skills(tenant.clone(), SystemClock.timestamp(), skills);
        let name = self.inner.remains.put(remains).await?;
        if let Err(error) = sync.forget(ids.iter().map(|id| SkillId::new(id.as_str())).collect()).await {
            // What it still has would count as uploaded anew.
            let taken = ids.clone();
            self.drop_skills(&name.unwrap_or_default(), taken).await?;
            stay(&ids, error.to_string());
        }
        Ok(())
    }

    fn uploads_of(&self, client: &Client) -> SkillSync {
        SkillSync::new(client.skills(), self.inner.outfitter.home().path().join("hosted"))
    }

    async fn drop_skills(&self, name: &str, ids: BTreeSet<String>) -> Result<(), RuntimeError> {
        let drop = move |noted: &mut Remains| {
            if let Some(skills) = &mut noted.skills {
                skills.ids.retain(|id| !ids.contains(id));
            }
        };
        self.inner.remains.update(name, SystemClock.deadline(STOPPING), drop).await
    }
}

fn account_of(client: &Client) -> Account {
    HostedRemoval::new(client.files()).account().into()
}

/// After how many failures that may pass the service is left alone for now.
const MOST_FAILURES: u32 = 3;

/// Deletes skills that are noted.
pub(super) async fn carry_skills(
    runtime: &Runtime,
    name: &str,
    noted: &Remains,
    skills: &SkillsLeft,
    deadline: Deadline,
) -> Result<Carried, RuntimeError> {
    let outfitter = &runtime.inner.outfitter;
    if outfitter.check_tenant(&noted.tenant).await.is_err() {
        // Its deletion is under way here, and may have to look them up again.
        return Ok(Carried::default());
    }
    let client = match outfitter.policies().own_key(&noted.tenant) {
        OwnKey::Alone(client) => Some(client),
        // Who came to have it since may use them.
        OwnKey::Shared(_) | OwnKey::None => None,
    };
    let client = client.filter(|client| account_of(client) == skills.account);
    let (mut gone, mut refused, mut passing) = (BTreeSet::new(), None, None);
    match client {
        None => {
            let reason =
                "the key that they were uploaded under is not known any more, or not the tenant's alone";
            refused = Some(reason.to_owned());
        }
        Some(client) => {
            let anew = match runtime.uploads_of(&client).remembered().await {
                Ok(known) => known.into_values().map(|id| id.as_str().to_owned()).collect(),
                Err(error) => {
                    passing = Some(error.to_string());
                    BTreeSet::new()
                }
            };
            // Without knowing what was uploaded anew, none is deleted.
            let mut failures = if passing.is_some() { MOST_FAILURES } else { 0 };
            for id in &skills.ids {
                if failures == MOST_FAILURES || SystemClock.remaining(deadline).is_zero() {
                    break;
                }
                if anew.contains(id) {
                    gone.insert(id.clone());
                    continue;
                }
                match delete(&client, id, deadline).await {
                    Ok(()) => drop(gone.insert(id.clone())),
                    // It may be this one's alone.
                    Err((Lasting::Passes, reason)) => {
                        failures += 1;
                        passing = Some(reason);
                    }
                    Err((Lasting::Stays, reason)) => refused = Some(reason),
                }
            }
        }
    }
    settle(runtime, name, noted, skills, gone, refused, passing).await
}

/// Whether a failure may pass by itself.
enum Lasting {
    Passes,
    Stays,
}

async fn delete(client: &Client, id: &str, deadline: Deadline) -> Result<(), (Lasting, String)> {
    use HostedErrorKind as Kind;
    let (skills, id) = (client.skills(), SkillId::new(id));
    let deadline = SystemClock.deadline(FOR_ONE).earlier(deadline);
    let deleted: Result<(), HostedError> = tokio::select! {
        biased;
        deleted = skills.delete_with_versions(&id) => deleted,
        () = SystemClock.sleep_until(deadline) => {
            return Err((Lasting::Passes, "the service did not answer in time".to_owned()));
        }
    };
    let Err(error) = deleted else { return Ok(()) };
    match error.kind() {
        Kind::NotFound => Ok(()),
        Kind::WrongKey | Kind::Forbidden | Kind::Refused | Kind::InvalidId => {
            Err((Lasting::Stays, error.to_string()))
        }
        _ => Err((Lasting::Passes, error.to_string())),
    }
}

/// Notes what came of it.
async fn settle(
    runtime: &Runtime,
    name: &str,
    noted: &Remains,
    skills: &SkillsLeft,
    gone: BTreeSet<String>,
    refused: Option<String>,
    passing: Option<String>,
) -> Result<Carried, RuntimeError> {
    let rest: Vec<String> = skills.ids.difference(&gone).cloned().collect();
    let is_refused = refused.is_some();
    let is_hopeless = is_refused && noted.is_hopeless(SystemClock.timestamp());
    let failure = passing.or(refused);
    let reason = failure.clone().unwrap_or_else(|| "there was no time for it yet".to_owned());
    let service = skills.account.service.clone();
    if is_hopeless {
        let tenant = &noted.tenant;
        tracing::warn!(
            %tenant, service, skills = ?rest, reason,
            "skills of a deleted tenant stay at the service for good, unless somebody deletes them there: it refuses"
        );
    }
    let fate = if is_hopeless { SkillFate::Stay } else { SkillFate::Later };
    let carried = Carried {
        gone: gone.len() as u64,
        skills: (!rest.is_empty()).then_some(SkillsAtService { service, skills: rest, fate, reason }),
        failure,
        ..Carried::default()
    };
    let changed = move |noted: &mut Remains| {
        noted.refusals += u32::from(is_refused);
        if let Some(skills) = &mut noted.skills {
            skills.ids.retain(|id| !is_hopeless && !gone.contains(id));
        }
    };
    runtime.inner.remains.update(name, SystemClock.deadline(FOR_ONE), changed).await?;
    Ok(carried)
}
