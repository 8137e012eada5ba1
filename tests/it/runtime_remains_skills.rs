//! Skills that were uploaded for a tenant: they go with it, where its key is its own, and nobody else's do.

use std::collections::BTreeSet;

use conjure::{ExecutorKind, Runtime, RuntimeOptions, SkillFate, TenantPolicy};
use conjure_anthropic::fake::FakeMessages;
use conjure_anthropic::hosted::{SkillId, SkillSource, SkillSync};
use futures_util::TryStreamExt as _;

use crate::runtime_bed::{Host, soon, tenant};
use crate::runtime_remains::{CHORE, KEY, carried, client, is_down, notes, options, service};

/// A skill of this name, uploaded under this key from the data folder of this host. Their ids, of all that it has uploaded.
async fn pushed(host: &Host, fake: &FakeMessages, key: &str, name: &str) -> BTreeSet<SkillId> {
    host.write_skill(name, "Greets people.", "echo hello");
    let sync = SkillSync::new(client(fake, key).skills(), host.data().join("hosted"));
    assert!(sync.push(host.skill(name)).await.unwrap().is_good());
    sync.remembered().await.unwrap().into_values().collect()
}

async fn skills(fake: &FakeMessages) -> BTreeSet<SkillId> {
    let listed = client(fake, KEY).skills().list(Some(SkillSource::Custom));
    listed.map_ok(|skill| skill.id).try_collect().await.unwrap()
}

fn with_keys(host: &Host, fake: &FakeMessages, keys: &[(&str, &str)]) -> RuntimeOptions {
    let own = |key: &str| TenantPolicy::new().anthropic(key.into());
    let options = options(host, &fake.base_url(), KEY);
    keys.iter().fold(options, |options, (who, key)| options.tenant(tenant(who), own(key)))
}

#[tokio::test]
async fn skills_under_the_own_key_of_a_tenant_go_with_it_and_all_others_stay() {
    let host = Host::new(ExecutorKind::Local);
    let (fake, elsewhere) = (service().await, service().await);
    std::fs::create_dir(host.data()).unwrap();
    // One store of skills is behind all keys of the fake.
    let hosts = pushed(&host, &fake, KEY, "greeting").await;
    let theirs = pushed(&host, &elsewhere, "sk-of-acme", "greets-others").await;
    let its = pushed(&host, &fake, "sk-of-acme", "greets-acme").await;
    assert_eq!((hosts.len(), its.len(), theirs.len(), hosts.is_disjoint(&its)), (1, 1, 1, true));
    let keys = [("acme", "sk-of-acme"), ("globex", "sk-of-globex")];
    let runtime = Runtime::spawn(with_keys(&host, &fake, &keys)).await.unwrap();
    assert!(runtime.delete_tenant(&tenant("globex")).await.unwrap().is_whole());
    assert_eq!(skills(&fake).await.len(), 2);
    let ephemeral = Runtime::spawn(with_keys(&host, &fake, &keys).ephemeral()).await.unwrap();
    assert!(ephemeral.delete_tenant(&tenant("acme")).await.unwrap().is_whole());
    ephemeral.shutdown(soon()).await.unwrap();
    assert_eq!(skills(&fake).await.len(), 2, "who keeps nothing has no skills there");
    fake.set_hosted_outage(is_down());
    let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
    let [left] = deletion.skills.as_slice() else { panic!("{deletion:?}") };
    assert_eq!((left.fate, left.skills.len()), (SkillFate::Later, 1));
    let [note] = notes(&host).try_into().unwrap();
    assert!(!std::fs::read_to_string(note).unwrap().contains("sk-of-acme"));
    let known = SkillSync::new(client(&fake, "sk-of-acme").skills(), host.data().join("hosted"));
    assert!(known.remembered().await.unwrap().is_empty(), "nothing here tells of it");
    fake.set_hosted_outage(None);
    assert_eq!(carried(&runtime).await, Ok(1));
    assert_eq!((skills(&fake).await, skills(&elsewhere).await), (hosts, theirs));
    assert!(notes(&host).is_empty() && runtime.delete_tenant(&tenant("acme")).await.unwrap().is_whole());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn skills_under_a_key_that_others_have_stay_and_that_is_told() {
    for key in ["sk-of-acme", "sk-of-globex"] {
        let host = Host::new(ExecutorKind::Local);
        let fake = service().await;
        std::fs::create_dir(host.data()).unwrap();
        // Of another tenant, or of the host.
        let acmes = if key == "sk-of-acme" { key } else { KEY };
        let its = pushed(&host, &fake, acmes, "greeting").await;
        let keys = [("acme", acmes), ("globex", key)];
        let runtime = Runtime::spawn(with_keys(&host, &fake, &keys)).await.unwrap();
        let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
        let [left] = deletion.skills.as_slice() else { panic!("{deletion:?}") };
        assert_eq!((left.fate, left.reason.as_str()), (SkillFate::Stay, "others have the same key"));
        assert_eq!((skills(&fake).await, notes(&host).len()), (its, 0));
        runtime.shutdown(soon()).await.unwrap();
    }
}

#[tokio::test]
async fn a_skill_that_is_pushed_again_before_it_was_deleted_stays() {
    let host = Host::new(ExecutorKind::Local);
    let fake = service().await;
    std::fs::create_dir(host.data()).unwrap();
    let its = pushed(&host, &fake, "sk-of-acme", "greeting").await;
    let runtime = Runtime::spawn(with_keys(&host, &fake, &[("acme", "sk-of-acme")])).await.unwrap();
    fake.set_hosted_outage(is_down());
    assert_eq!(runtime.delete_tenant(&tenant("acme")).await.unwrap().skills.len(), 1);
    fake.set_hosted_outage(None);
    // Whoever begins anew under that name finds what is there yet.
    assert_eq!(pushed(&host, &fake, "sk-of-acme", "greeting").await, its);
    runtime.janitor().run(CHORE, soon()).await.unwrap();
    assert_eq!((skills(&fake).await, notes(&host).len()), (its, 0));
    runtime.shutdown(soon()).await.unwrap();
}
