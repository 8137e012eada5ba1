//! Skills that were uploaded for a tenant: they are deleted with it if its key is its own, and others stay.

use std::collections::BTreeSet;

use conjure::config::ExecutorKind;
use conjure::runtime::RemoteSkillOutcome;
use conjure::{Runtime, RuntimeOptions, TenantPolicy};
use conjure_anthropic::fake::FakeMessages;
use conjure_anthropic::hosted::{SkillId, SkillSource, SkillSync};
use conjure_conversation::ApiErrorKind;
use futures_util::TryStreamExt as _;

use crate::runtime::fixture::{Fixture, soon, tenant};
use crate::runtime::remote_cleanup::deletion::{
    KEY, TASK, age, carried, client, is_down, notes, options, outage, service, until,
};

/// A skill of this name, uploaded under this key from the data directory of this host. Their ids, of all that it has uploaded.
async fn pushed(fixture: &Fixture, fake: &FakeMessages, key: &str, name: &str) -> BTreeSet<SkillId> {
    fixture.write_skill(name, "Greets people.", "echo hello");
    let sync = SkillSync::new(client(fake, key).skills(), fixture.data().join("hosted"));
    assert!(sync.push(fixture.skill(name)).await.unwrap().is_complete());
    sync.uploaded_skills().await.unwrap().into_values().collect()
}

async fn skills(fake: &FakeMessages) -> BTreeSet<SkillId> {
    let listed = client(fake, KEY).skills().list(Some(SkillSource::Custom));
    listed.map_ok(|skill| skill.id).try_collect().await.unwrap()
}

fn with_keys(fixture: &Fixture, fake: &FakeMessages, keys: &[(&str, &str)]) -> RuntimeOptions {
    let own_policy = |key: &str| TenantPolicy::new().anthropic(key.into());
    let options = options(fixture, &fake.base_url(), KEY);
    keys.iter().fold(options, |options, (who, key)| options.tenant(tenant(who), own_policy(key)))
}

#[tokio::test]
async fn skills_under_a_tenants_own_key_are_deleted_with_it_and_others_stay() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let (fake, other_service) = (service().await, service().await);
    std::fs::create_dir(fixture.data()).unwrap();
    // One store of skills is behind all keys of the fake.
    let hosts = pushed(&fixture, &fake, KEY, "greeting").await;
    let theirs = pushed(&fixture, &other_service, "sk-of-acme", "greets-others").await;
    let skill = pushed(&fixture, &fake, "sk-of-acme", "greets-acme").await;
    assert_eq!((hosts.len(), skill.len(), theirs.len(), hosts.is_disjoint(&skill)), (1, 1, 1, true));
    let keys = [("acme", "sk-of-acme"), ("globex", "sk-of-globex")];
    let runtime = Runtime::spawn(with_keys(&fixture, &fake, &keys)).await.unwrap();
    assert!(runtime.delete_tenant(&tenant("globex")).await.unwrap().is_complete());
    assert_eq!(skills(&fake).await.len(), 2);
    let ephemeral = Runtime::spawn(with_keys(&fixture, &fake, &keys).ephemeral()).await.unwrap();
    assert!(ephemeral.delete_tenant(&tenant("acme")).await.unwrap().is_complete());
    ephemeral.shutdown(soon()).await.unwrap();
    assert_eq!(skills(&fake).await.len(), 2, "who keeps nothing has no skills there");
    fake.set_hosted_outage(is_down());
    let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
    let [leftovers] = deletion.skills.as_slice() else { panic!("{deletion:?}") };
    assert_eq!((leftovers.outcome, leftovers.skills.len()), (RemoteSkillOutcome::DeletedLater, 1));
    let [note] = notes(&fixture).try_into().unwrap();
    assert!(!std::fs::read_to_string(note).unwrap().contains("sk-of-acme"));
    let known = SkillSync::new(client(&fake, "sk-of-acme").skills(), fixture.data().join("hosted"));
    assert!(known.uploaded_skills().await.unwrap().is_empty(), "nothing here tells of it");
    fake.set_hosted_outage(None);
    assert_eq!(carried(&runtime).await, Ok(1));
    assert_eq!((skills(&fake).await, skills(&other_service).await), (hosts, theirs));
    assert!(
        notes(&fixture).is_empty() && runtime.delete_tenant(&tenant("acme")).await.unwrap().is_complete()
    );
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn skills_under_a_shared_key_stay_and_are_reported() {
    for key in ["sk-of-acme", "sk-of-globex"] {
        let fixture = Fixture::new(ExecutorKind::Local);
        let fake = service().await;
        std::fs::create_dir(fixture.data()).unwrap();
        // Of another tenant, or of the host.
        let acmes = if key == "sk-of-acme" { key } else { KEY };
        let skill = pushed(&fixture, &fake, acmes, "greeting").await;
        let keys = [("acme", acmes), ("globex", key)];
        let runtime = Runtime::spawn(with_keys(&fixture, &fake, &keys)).await.unwrap();
        let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
        let [leftovers] = deletion.skills.as_slice() else { panic!("{deletion:?}") };
        assert_eq!(
            (leftovers.outcome, leftovers.reason.as_str()),
            (RemoteSkillOutcome::Kept, "others have the same key")
        );
        assert_eq!((skills(&fake).await, notes(&fixture).len()), (skill, 0));
        runtime.shutdown(soon()).await.unwrap();
    }
}

#[tokio::test]
async fn a_skill_that_is_pushed_again_before_it_was_deleted_stays() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    std::fs::create_dir(fixture.data()).unwrap();
    let skill = pushed(&fixture, &fake, "sk-of-acme", "greeting").await;
    let runtime = Runtime::spawn(with_keys(&fixture, &fake, &[("acme", "sk-of-acme")])).await.unwrap();
    fake.set_hosted_outage(is_down());
    assert_eq!(runtime.delete_tenant(&tenant("acme")).await.unwrap().skills.len(), 1);
    fake.set_hosted_outage(None);
    // A new tenant of that name finds the remaining skills.
    assert_eq!(pushed(&fixture, &fake, "sk-of-acme", "greeting").await, skill);
    runtime.maintenance().run(TASK, soon()).await.unwrap();
    assert_eq!((skills(&fake).await, notes(&fixture).len()), (skill, 0));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_skill_whose_deletion_is_rejected_is_abandoned_alone() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    std::fs::create_dir(fixture.data()).unwrap();
    let runtime = Runtime::spawn(with_keys(&fixture, &fake, &[("acme", "sk-of-acme")])).await.unwrap();
    for name in ["greeting", "greets-again"] {
        pushed(&fixture, &fake, "sk-of-acme", name).await;
    }
    fake.set_hosted_outage(outage(ApiErrorKind::Permission, 403));
    let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
    let [leftovers] = deletion.skills.as_slice() else { panic!("{deletion:?}") };
    assert_eq!((leftovers.outcome, leftovers.skills.len()), (RemoteSkillOutcome::DeletedLater, 2));
    fake.set_hosted_outage(None);
    age(&fixture, 20);
    // It refuses the one, and fails of the other.
    fake.add_hosted_fault(outage(ApiErrorKind::Permission, 403).unwrap());
    fake.add_hosted_fault(is_down().unwrap());
    assert!(carried(&runtime).await.unwrap_err().contains("500"));
    assert_eq!((skills(&fake).await.len(), notes(&fixture).len()), (2, 1));
    assert_eq!(carried(&runtime).await, Ok(1));
    assert_eq!((skills(&fake).await.len(), notes(&fixture).len()), (1, 0), "the one stays");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn failing_skill_deletions_block_no_others() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    std::fs::create_dir(fixture.data()).unwrap();
    let runtime = Runtime::spawn(with_keys(&fixture, &fake, &[("acme", "sk-of-acme")])).await.unwrap();
    for name in ["a", "b", "c", "d"] {
        pushed(&fixture, &fake, "sk-of-acme", name).await;
    }
    fake.set_hosted_outage(is_down());
    assert_eq!(runtime.delete_tenant(&tenant("acme")).await.unwrap().skills[0].skills.len(), 4);
    fake.set_hosted_outage(None);
    // Three have failed, and the one that was not tried is the first now.
    let first_new = fake.requests().len();
    fake.add_hosted_fault(is_down().unwrap());
    assert_eq!(carried(&runtime).await, Ok(3));
    let first = fake.requests()[first_new].path().to_owned();
    let [remaining] = skills(&fake).await.into_iter().collect::<Vec<_>>().try_into().unwrap();
    assert!(first.contains(remaining.as_str()), "{first}");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn no_skill_is_deleted_during_a_push() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    std::fs::create_dir(fixture.data()).unwrap();
    let skill = pushed(&fixture, &fake, "sk-of-acme", "greeting").await;
    let runtime = Runtime::spawn(with_keys(&fixture, &fake, &[("acme", "sk-of-acme")])).await.unwrap();
    fake.set_hosted_outage(is_down());
    assert_eq!(runtime.delete_tenant(&tenant("acme")).await.unwrap().skills.len(), 1);
    fake.set_hosted_outage(None);
    // A push may have found it by its title, and be about to put that down.
    let path = fixture.data().join("hosted/skills.lock");
    let lock = std::fs::File::open(&path).unwrap();
    lock.lock().unwrap();
    let error = carried(&runtime).await.unwrap_err();
    assert!(error.contains("another push is under way"), "{error}");
    assert_eq!((skills(&fake).await, notes(&fixture).len()), (skill, 1));
    drop(lock);
    // A process that another test is just starting has what was open here until it runs its program.
    until(|| std::fs::File::open(&path).unwrap().try_lock_shared().is_ok()).await;
    assert_eq!(carried(&runtime).await, Ok(1));
    assert!(skills(&fake).await.is_empty() && notes(&fixture).is_empty());
    runtime.shutdown(soon()).await.unwrap();
}
