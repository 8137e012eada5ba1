//! Resolves the model names of clients to configured models.

use std::collections::BTreeSet;
use std::sync::Arc;

use conjure_api::{ById, IdPage, Lifecycle, ModelConfig, ModelInfo, ModelListQuery, Time};
use conjure_base::TenantId;
use conjure_runtime::{Runtime, ServeSettings};

use crate::http::ApiError;

/// The models of a tenant, by the names that clients use.
pub(crate) struct ModelNames<'r> {
    pub(crate) runtime: &'r Runtime,
    pub(crate) serve: Arc<ServeSettings>,
    pub(crate) tenant: &'r TenantId,
}

impl ModelNames<'_> {
    /// Replaces the model's name with the name of the configured model that answers. A configured name is kept.
    pub(crate) fn resolve(&self, model: ModelConfig) -> Result<ModelConfig, ApiError> {
        let id = self.find(&model.id).map_err(ApiError::invalid)?;
        Ok(ModelConfig { id, ..model })
    }

    /// The name of the model that answers for `name`, or the reason why none does.
    fn find(&self, name: &str) -> Result<String, String> {
        let names = self.runtime.model_names(self.tenant);
        let found = match self.serve.model(name) {
            _ if names.iter().any(|known| known == name) => name,
            Some(found) => found,
            None => name,
        };
        match self.runtime.check_model(self.tenant, found) {
            Ok(()) => Ok(found.to_owned()),
            Err(error) if found == name => Err(format!(
                "model: no model answers for `{name}`: {error}; name another model, or add a pattern for this name to \
                 `[serve.models]` in the server's configuration"
            )),
            Err(error) => Err(format!(
                "model: `{found}` should answer for `{name}`, by `[serve.models]` in the server's configuration, and \
                 cannot: {error}"
            )),
        }
    }

    /// The name of the configured model that answers for this name.
    pub(crate) fn answering(&self, name: &str) -> Result<String, ApiError> {
        self.find(name).map_err(ApiError::not_found)
    }

    /// The model with this name, which may be an alias.
    pub(crate) fn get(&self, name: &str) -> Result<ModelInfo, ApiError> {
        self.find(name).map(info).map_err(ApiError::not_found)
    }

    /// A page of the models with exact names. Names that only match a pattern are not listed.
    pub(crate) fn list(&self, query: &ModelListQuery) -> Result<IdPage<ModelInfo>, ApiError> {
        let exact = self.serve.models.keys().filter(|pattern| !pattern.contains('*')).cloned();
        let names: BTreeSet<String> =
            self.runtime.model_names(self.tenant).into_iter().chain(exact).collect();
        let models = if query.active { names.into_iter().map(info).collect() } else { Vec::new() };
        page_by_id(models, |model| &model.id, &query.by_id, query.limit)
    }
}

fn info(name: String) -> ModelInfo {
    ModelInfo {
        display_name: name.clone(),
        id: name,
        created_at: Time::default(),
        lifecycle: Lifecycle::Active,
        max_input_tokens: None,
        max_tokens: None,
    }
}

/// The page of a complete list after or before an element.
fn page_by_id<T>(
    mut list: Vec<T>,
    id: impl Fn(&T) -> &str,
    by_id: &ById,
    limit: usize,
) -> Result<IdPage<T>, ApiError> {
    let place = |parameter: &str, wanted: &str| {
        list.iter().position(|element| id(element) == wanted).ok_or_else(|| {
            ApiError::invalid(format!(
                "{parameter}: there is no element `{wanted}` in the list; start without it"
            ))
        })
    };
    let (data, has_more) = match (&by_id.after_id, &by_id.before_id) {
        (None, Some(before)) => {
            let end = place("before_id", before)?;
            let start = end.saturating_sub(limit);
            list.truncate(end);
            (list.split_off(start), start > 0)
        }
        (after, _) => {
            let start = after.as_deref().map_or(Ok(0), |after| place("after_id", after).map(|at| at + 1))?;
            let mut data = list.split_off(start);
            let has_more = data.len() > limit;
            data.truncate(limit);
            (data, has_more)
        }
    };
    let id_of = |element: Option<&T>| element.map(|element| id(element).to_owned());
    Ok(IdPage { first_id: id_of(data.first()), last_id: id_of(data.last()), has_more, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_lie_after_or_before_an_element() {
        let page = |after: Option<&str>, before: Option<&str>| {
            let by_id = ById { after_id: after.map(str::to_owned), before_id: before.map(str::to_owned) };
            let page = page_by_id(vec!["a", "b", "c", "d", "e"], |id| *id, &by_id, 2)?;
            Ok::<_, ApiError>((page.data, page.has_more, page.first_id, page.last_id))
        };
        let some = |id: &str| Some(id.to_owned());
        assert_eq!(page(None, None).unwrap(), (vec!["a", "b"], true, some("a"), some("b")));
        assert_eq!(page(Some("b"), None).unwrap(), (vec!["c", "d"], true, some("c"), some("d")));
        assert_eq!(page(Some("d"), None).unwrap(), (vec!["e"], false, some("e"), some("e")));
        assert_eq!(page(Some("e"), None).unwrap(), (vec![], false, None, None));
        assert_eq!(page(None, Some("d")).unwrap(), (vec!["b", "c"], true, some("b"), some("c")));
        assert_eq!(page(None, Some("b")).unwrap(), (vec!["a"], false, some("a"), some("a")));
        assert_eq!(page(Some("x"), None).unwrap_err().status().as_u16(), 400);
    }
}
