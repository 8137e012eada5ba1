//! The model of the chat, and the command `/model NAME`, which changes it between turns.

use std::collections::BTreeSet;

use conjure::model::ModelTarget;
use conjure::{Config, ProcessEnv, Session};

use crate::cli::cli_error::CliError;
use crate::cli::run::{CommandSession, ModelArgs, PriceCheck, run_blocking, select_model};

/// The model of a chat.
pub(super) struct ChatModel {
    /// The model that answers now.
    current: NamedModel,
    /// The model that the chat began with.
    first: NamedModel,
    /// Whether the responses of the first model are recorded. Responses of other models are not.
    recording: RecordingState,
    /// Returns the models of the first model's service that were used and have no known price.
    first_price_check: Option<PriceCheck>,
    /// The other models that answered and have no known price; `None` if there was no other.
    unpriced: Option<BTreeSet<String>>,
}

/// A model's name in the session, and its description.
#[derive(Debug, Clone)]
pub(super) struct NamedModel {
    pub(super) name: String,
    pub(super) label: String,
}

/// Whether `--record` writes a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordingState {
    Recorded,
    NotRecorded,
}

impl ChatModel {
    pub(super) fn new(first: NamedModel, recording: RecordingState, price_check: Option<PriceCheck>) -> Self {
        let current = first.clone();
        Self { current, first, recording, first_price_check: price_check, unpriced: None }
    }

    /// Describes the model that answers now in one line.
    pub(super) fn label(&self) -> &str {
        &self.current.label
    }

    /// Uses another model from the next message on. If this fails, the session keeps its model.
    pub(super) async fn change(
        &mut self,
        name: &str,
        session: &Session,
        config: &Config,
        environment: &ProcessEnv,
    ) -> Result<(), CliError> {
        if self.recording == RecordingState::Recorded {
            return Err(CliError::usage("`/model`: `--record` records one model alone")
                .with_hint("leave, and continue without `--record`"));
        }
        let model = self.find(name, config, environment).await?;
        session.set_model(name).await?;
        self.set(model);
        Ok(())
    }

    /// Reads the session's model after a change. If that model cannot be called, or the responses are recorded, the session gets the first
    /// model. Returns whether the model differs from the current one.
    pub(super) async fn refresh(
        &mut self,
        opened: &CommandSession,
        config: &Config,
        environment: &ProcessEnv,
    ) -> Result<bool, CliError> {
        let profile = opened.host.runtime.profile(&opened.host.tenant, opened.session.id()).await?;
        let Some(name) = profile.model.filter(|name| *name != self.current.name) else { return Ok(false) };
        let found = match self.recording {
            RecordingState::Recorded => None,
            RecordingState::NotRecorded => self.find(&name, config, environment).await.ok(),
        };
        let model = match found {
            Some(model) => model,
            None => {
                opened.session.set_model(self.first.name.as_str()).await?;
                self.first.clone()
            }
        };
        let is_other = model.name != self.current.name;
        self.set(model);
        Ok(is_other)
    }

    fn set(&mut self, model: NamedModel) {
        if model.name != self.first.name {
            self.unpriced.get_or_insert_default();
        }
        self.current = model;
    }

    async fn find(
        &self,
        name: &str,
        config: &Config,
        environment: &ProcessEnv,
    ) -> Result<NamedModel, CliError> {
        if name == self.first.name {
            return Ok(self.first.clone());
        }
        let (own_name, own_config, own_environment) = (name.to_owned(), config.clone(), environment.clone());
        // The trusted certificates are read from files.
        let selected = run_blocking(move || {
            let source = ModelArgs { model: Some(&own_name), script: None, calls_before: 0 };
            select_model(source, None, &own_config, &own_environment)
        });
        Ok(NamedModel { name: name.to_owned(), label: selected.await?.label })
    }

    /// Records the models of responses without a cost. The first model's client does this itself.
    pub(super) fn count_unpriced(
        &mut self,
        models: BTreeSet<Option<String>>,
        config: &Config,
        environment: &ProcessEnv,
    ) {
        let Some(unpriced) = self.unpriced.as_mut().filter(|_| self.current.name != self.first.name) else {
            return;
        };
        let target = ModelTarget::of_name(&self.current.name, config, environment).ok();
        // A configured price may be 0, so a free response does not mean an unknown price.
        if target.as_ref().is_some_and(|target| target.settings.price.is_some()) {
            return;
        }
        let asked =
            || target.as_ref().map_or_else(|| self.current.name.clone(), |target| target.model.clone());
        unpriced.extend(models.into_iter().map(|model| model.unwrap_or_else(asked)));
    }

    /// The models that were used and have no known price. `None` if no model costs anything.
    pub(super) fn into_price_check(self) -> Option<PriceCheck> {
        let Self { first_price_check, unpriced, .. } = self;
        if first_price_check.is_none() && unpriced.is_none() {
            return None;
        }
        let others = unpriced.unwrap_or_default();
        let all = move || {
            let first = first_price_check.iter().flat_map(|check| check());
            let all: BTreeSet<String> = first.chain(others.iter().cloned()).collect();
            all.into_iter().collect()
        };
        Some(Box::new(all))
    }
}
