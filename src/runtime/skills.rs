//! Choosing the skills of a session that is opened: by name, from a catalog.

use std::sync::Arc;

use conjure_actors::registry::{CatalogKey, CatalogName, Registry};
use conjure_base::TenantId;
use conjure_skill::{Catalog, Skill, nearest};

use super::error::{RuntimeError, UnknownSkill};
use super::spec::Choice;

/// What the catalog of the configuration's folders is called.
pub(crate) const DEFAULT: &str = "default";

/// The key of the catalog of the configuration's folders.
pub(crate) fn default_key() -> Option<CatalogKey> {
    CatalogName::new(DEFAULT).ok().map(CatalogKey::of_host)
}

/// The skills that a spec names, of the catalog that it names: the tenant's own, where it has one, else the host's.
pub(crate) fn choose(
    registry: &Registry,
    tenant: &TenantId,
    catalog: Option<&str>,
    choice: &Choice,
) -> Result<Vec<Arc<Skill>>, RuntimeError> {
    if matches!(choice, Choice::Named(names) if names.is_empty()) {
        return Ok(Vec::new());
    }
    let name = catalog.unwrap_or(DEFAULT);
    let catalog = find(registry, tenant, name).ok_or_else(|| RuntimeError::UnknownCatalog {
        name: name.to_owned(),
        available: visible(registry, tenant),
    })?;
    let names = match choice {
        Choice::All => return Ok(catalog.iter().cloned().collect()),
        Choice::Named(names) => names,
    };
    let (mut chosen, mut unknown): (Vec<Arc<Skill>>, Vec<UnknownSkill>) = (Vec::new(), Vec::new());
    let known = || catalog.iter().map(|skill| skill.name().as_str());
    for wanted in names {
        match catalog.get(wanted) {
            Some(skill) if chosen.iter().any(|other| other.name() == skill.name()) => {}
            Some(skill) => chosen.push(Arc::clone(skill)),
            None => {
                let near = nearest(wanted, known()).map(str::to_owned);
                unknown.push(UnknownSkill { name: wanted.clone(), near });
            }
        }
    }
    if unknown.is_empty() {
        return Ok(chosen);
    }
    let available = known().map(str::to_owned).collect();
    Err(RuntimeError::UnknownSkills { unknown, catalog: name.to_owned(), available })
}

fn find(registry: &Registry, tenant: &TenantId, name: &str) -> Option<Arc<Catalog>> {
    let name = CatalogName::new(name).ok()?;
    let own = registry.catalog(&CatalogKey::of_tenant(tenant.clone(), name.clone()));
    own.or_else(|| registry.catalog(&CatalogKey::of_host(name)))
}

/// The catalogs that a tenant sees; those of others are none of its business.
fn visible(registry: &Registry, tenant: &TenantId) -> Vec<String> {
    let mut names: Vec<String> = registry
        .keys()
        .iter()
        .filter(|key| key.tenant().is_none_or(|owner| owner == tenant))
        .map(|key| key.name().to_string())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}
