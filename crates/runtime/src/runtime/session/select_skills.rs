//! Selects the skills of a new session from a catalog, by name.

use std::sync::Arc;

use conjure_actors::catalogs::{CatalogKey, CatalogName, CatalogRegistry};
use conjure_base::TenantId;
use conjure_skill::{Catalog, Skill, closest_match};

use crate::runtime::error::{RuntimeError, UnknownSkill};

/// The skills that a spec selects from a catalog.
#[derive(Debug, Clone)]
pub(crate) enum SkillSelection {
    All,
    Named(Vec<String>),
}

/// The name of the catalog that holds the skills of the configured directories.
pub(crate) const DEFAULT: &str = "default";

/// The key of that catalog.
pub(crate) fn default_key() -> Option<CatalogKey> {
    CatalogName::new(DEFAULT).ok().map(CatalogKey::for_embedder)
}

/// Selects the skills that a spec names from the catalog that it names. If the tenant and the embedder both have a
/// catalog of that name, the tenant's is used.
pub(crate) fn choose(
    registry: &CatalogRegistry,
    tenant: &TenantId,
    catalog: Option<&str>,
    choice: &SkillSelection,
) -> Result<Vec<Arc<Skill>>, RuntimeError> {
    if matches!(choice, SkillSelection::Named(names) if names.is_empty()) {
        return Ok(Vec::new());
    }
    let name = catalog.unwrap_or(DEFAULT);
    let catalog = find(registry, tenant, name).ok_or_else(|| RuntimeError::UnknownCatalog {
        name: name.to_owned(),
        available: visible(registry, tenant),
    })?;
    let names = match choice {
        SkillSelection::All => return Ok(catalog.iter().cloned().collect()),
        SkillSelection::Named(names) => names,
    };
    let (mut chosen, mut unknown): (Vec<Arc<Skill>>, Vec<UnknownSkill>) = (Vec::new(), Vec::new());
    let known = || catalog.iter().map(|skill| skill.name().as_str());
    for wanted in names {
        match catalog.get(wanted) {
            Some(skill) if chosen.iter().any(|other| other.name() == skill.name()) => {}
            Some(skill) => chosen.push(Arc::clone(skill)),
            None => {
                let near = closest_match(wanted, known()).map(str::to_owned);
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

fn find(registry: &CatalogRegistry, tenant: &TenantId, name: &str) -> Option<Arc<Catalog>> {
    let name = CatalogName::new(name).ok()?;
    let own = registry.catalog(&CatalogKey::for_tenant(tenant.clone(), name.clone()));
    own.or_else(|| registry.catalog(&CatalogKey::for_embedder(name)))
}

/// The names of the catalogs that a tenant may see.
fn visible(registry: &CatalogRegistry, tenant: &TenantId) -> Vec<String> {
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
