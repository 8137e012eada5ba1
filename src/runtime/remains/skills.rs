//! Skills that were uploaded for a tenant who is deleted: those that the record of uploads has under a key that is the tenant's alone.
//!
//! They are noted before that record forgets them, and deleted when nothing of the tenant is left here. What the record has again by then
//! was uploaded anew, by whoever comes by that name, and stays; nobody uploads while that is looked at and one is deleted.

use std::collections::BTreeSet;

use conjure_anthropic::hosted::{Forgotten, HostedErrorKind, HostedRemoval, SkillId, SkillSync, SyncError};
use conjure_artifact::FileRemoval as _;
use conjure_base::{Clock as _, Deadline, SystemClock, TenantId};

use super::super::deleting::STOPPING;
use super::super::error::RuntimeError;
use super::super::handle::Runtime;
use super::super::options::Record;
use super::super::tenants::OwnKey;
use super::carrying::{Carried, FOR_ONE, MOST_FAILURES, NO_TIME, for_note};
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
        let skills = SkillsLeft { account: account.clone(), ids: ids.iter().cloned().collect() };
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
    let tried = match client {
        None => Tried {
            refused: skills.ids.iter().cloned().collect(),
            why: Some(
                "the key that they were uploaded under is not known any more, or not the tenant's alone"
                    .to_owned(),
            ),
            ..Tried::default()
        },
        Some(client) => try_some(&runtime.uploads_of(&client), skills, deadline).await,
    };
    Ok(settle(runtime, name, noted, skills, tried, deadline).await)
}

/// What came of some skills.
#[derive(Default)]
struct Tried {
    /// They are gone, or were uploaded anew.
    gone: BTreeSet<String>,
    /// The service refused these, or there is no key.
    refused: BTreeSet<String>,
    /// Why.
    why: Option<String>,
    /// These may well be gone later.
    passing: BTreeSet<String>,
    /// Why not now.
    why_not: Option<String>,
}

/// Why a skill was not deleted.
enum Failed {
    /// It may be this one's alone, and may pass by itself.
    Passing(String),
    /// The service refuses.
    Refused(String),
    /// The record of uploads cannot be had. Without knowing what was uploaded anew, none is deleted.
    Record(String),
}

async fn try_some(sync: &SkillSync, skills: &SkillsLeft, deadline: Deadline) -> Tried {
    let mut tried = Tried::default();
    let mut failures = 0;
    for id in &skills.ids {
        if failures == MOST_FAILURES || SystemClock.remaining(deadline).is_zero() {
            break;
        }
        failures = match delete(sync, id, deadline).await {
            Ok(()) => {
                tried.gone.insert(id.clone());
                0
            }
            Err(Failed::Refused(reason)) => {
                tried.refused.insert(id.clone());
                tried.why = Some(reason);
                0
            }
            Err(Failed::Passing(reason)) => {
                tried.passing.insert(id.clone());
                tried.why_not = Some(reason);
                failures + 1
            }
            Err(Failed::Record(reason)) => {
                tried.why_not = Some(reason);
                break;
            }
        };
    }
    tried
}

/// Deletes one that is not remembered: what somebody has pushed anew stays, and is none of those that are noted any more.
async fn delete(sync: &SkillSync, id: &str, deadline: Deadline) -> Result<(), Failed> {
    use HostedErrorKind as Kind;
    let id = SkillId::new(id);
    let deadline = SystemClock.deadline(FOR_ONE).earlier(deadline);
    let deleted = tokio::select! {
        biased;
        deleted = sync.delete_forgotten(&id) => deleted,
        () = SystemClock.sleep_until(deadline) => {
            return Err(Failed::Passing("the service did not answer in time".to_owned()));
        }
    };
    match deleted {
        Ok(Forgotten::Deleted | Forgotten::Remembered) => Ok(()),
        Err(SyncError::Service(error)) => Err(match error.kind() {
            Kind::WrongKey | Kind::Forbidden | Kind::Refused | Kind::InvalidId => {
                Failed::Refused(error.to_string())
            }
            _ => Failed::Passing(error.to_string()),
        }),
        // Such as while somebody pushes, who may be about to remember it.
        Err(error) => Err(Failed::Record(error.to_string())),
    }
}

/// Notes what came of it.
async fn settle(
    runtime: &Runtime,
    name: &str,
    noted: &Remains,
    skills: &SkillsLeft,
    tried: Tried,
    deadline: Deadline,
) -> Carried {
    let Tried { gone, refused, why, passing, why_not } = tried;
    let is_refused = !refused.is_empty();
    let given_up = if is_refused && noted.is_hopeless(SystemClock.timestamp()) {
        refused.clone()
    } else {
        BTreeSet::new()
    };
    let service = &skills.account.service;
    let left = |fate: SkillFate, reason: Option<&String>| {
        let ids = skills.ids.iter().filter(|id| !gone.contains(*id));
        let ids: Vec<String> =
            ids.filter(|id| given_up.contains(*id) == (fate == SkillFate::Stay)).cloned().collect();
        let reason = reason.map_or(NO_TIME, String::as_str).to_owned();
        (!ids.is_empty()).then(|| SkillsAtService { service: service.clone(), skills: ids, fate, reason })
    };
    if !given_up.is_empty() {
        let (tenant, reason) = (&noted.tenant, why.as_deref().unwrap_or_default());
        tracing::warn!(
            %tenant, service, skills = ?given_up, reason,
            "skills of a deleted tenant stay at the service for good, unless somebody deletes them there: it refuses"
        );
    }
    let stay = left(SkillFate::Stay, why.as_ref());
    let later = left(SkillFate::Later, why_not.as_ref().or(why.as_ref()));
    let mut carried = Carried {
        gone: gone.len() as u64,
        skills: stay.into_iter().chain(later).collect(),
        failure: why_not.or(why),
        ..Carried::default()
    };
    let changed = move |noted: &mut Remains| {
        noted.refusals += u32::from(is_refused);
        if let Some(skills) = &mut noted.skills {
            skills.ids.retain(|id| !gone.contains(id) && !given_up.contains(id));
            // The others have their turn first.
            skills.ids.sort_by_key(|id| refused.contains(id) || passing.contains(id));
        }
    };
    if let Err(error) = runtime.inner.remains.update(name, for_note(deadline), changed).await {
        carried.failure = Some(error.to_string());
    }
    carried
}
