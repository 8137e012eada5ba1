//! The model of the chat: which one answers, and `/model NAME`, which changes it between turns.

use conjure::{Config, ProcessEnv, Session};

use crate::cli::cli_error::CliError;
use crate::cli::run::{ModelArgs, PriceCheck, run_blocking, select_model};

/// The model of a chat.
pub(super) struct ChatModel {
    /// Describes the model that answers now in one line.
    label: String,
    /// The model that the chat began with.
    first: NamedModel,
    /// Whether what the first model says is recorded, which what another one says is not.
    recording: RecordingState,
    /// The models that were used, and have no known price.
    price_checks: Vec<PriceCheck>,
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
        let price_checks = price_check.into_iter().collect();
        Self { label: first.label.clone(), first, recording, price_checks }
    }

    /// Describes the model that answers now in one line.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Lets another model answer from the next message on. The session keeps its model if that fails.
    pub(super) async fn change(
        &mut self,
        name: &str,
        session: &Session,
        config: &Config,
        environment: &ProcessEnv,
    ) -> Result<(), CliError> {
        if self.recording == RecordingState::Recorded {
            return Err(CliError::usage("`/model`: `--record` records one model alone")
                .with_hint("leave, and go on without `--record`"));
        }
        if name == self.first.name {
            session.set_model(name).await?;
            self.label.clone_from(&self.first.label);
            return Ok(());
        }
        let (own_name, own_config, own_environment) = (name.to_owned(), config.clone(), environment.clone());
        // The trusted certificates are read from files.
        let selected = run_blocking(move || {
            let source = ModelArgs { model: Some(&own_name), script: None, calls_before: 0 };
            select_model(source, None, &own_config, &own_environment)
        });
        let selected = selected.await?;
        session.set_model(name).await?;
        self.label = selected.label;
        self.price_checks.extend(selected.price_check);
        Ok(())
    }

    /// The models that were used and have no known price; `None` if no model costs anything.
    pub(super) fn into_price_check(self) -> Option<PriceCheck> {
        let checks = self.price_checks;
        (!checks.is_empty()).then(|| {
            let all = move || {
                let mut unpriced: Vec<String> = checks.iter().flat_map(|check| check()).collect();
                unpriced.sort();
                unpriced.dedup();
                unpriced
            };
            Box::new(all) as PriceCheck
        })
    }
}
