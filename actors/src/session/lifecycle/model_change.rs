//! Changes a session's model between two turns.
//!
//! The session's factory builds the components for the new model first, so a model that cannot be used changes nothing.
//! Then the change is recorded, and then the components are replaced.
//!
//! State: none. If the journal fails while it records the change, it is unknown which model the session has. The actor
//! restarts then and reads it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use conjure_base::{SystemClock, with_deadline};
use conjure_conversation::{CommandKind, EventLogError, Model as _, ModelSummarizer, SessionProfile};
use futures_util::FutureExt as _;

use crate::session::error::{ReplyTo, SessionError};
use crate::session::spec::{ModelSetup, SessionComponents};
use crate::session::turn::conversation_task::{ConversationTask, ModelChange};
use crate::tenants::BudgetedModel;

impl ConversationTask {
    /// Changes the model. Only a failure of the journal ends the task.
    pub(crate) async fn set_model(&mut self, model: String, reply: ReplyTo<()>) -> Result<(), EventLogError> {
        let profile = self.conversation.state().profile();
        let mut profile = profile.map_or_else(SessionProfile::default, |profile| (**profile).clone());
        if profile.model.as_ref() == Some(&model) {
            reply.send(Ok(()));
            return Ok(());
        }
        profile.set_model(model.clone());
        let components = self.components_for(&profile, &model);
        let components = with_deadline(&SystemClock, reply.deadline(), components).await;
        let components = match components.unwrap_or(Err(SessionError::DeadlinePassed)) {
            Ok(components) => components,
            Err(error) => {
                reply.send(Err(error));
                return Ok(());
            }
        };
        let hosted = components.model.hosted_support();
        let submitted = self.submit(CommandKind::SetModel { model, hosted }).await;
        match &submitted {
            Ok(Ok(())) => self.components = Arc::new(components),
            Ok(Err(_)) => {}
            Err(_) => self.model_change = ModelChange::Unknown,
        }
        self.send_reply(reply, submitted, Ok(()))
    }

    /// The session's components with the model of this profile.
    async fn components_for(
        &self,
        profile: &SessionProfile,
        model: &str,
    ) -> Result<SessionComponents, SessionError> {
        let refused = |reason: String| SessionError::ModelRefused { model: model.to_owned(), reason };
        let setup = ModelSetup { key: &self.entry.key, profile, components: &self.components };
        let made =
            AssertUnwindSafe(self.entry.services.session_factory.with_model(setup)).catch_unwind().await;
        let made = made.map_err(|_| refused("the session factory panicked".to_owned()))?;
        let mut components = made.map_err(|failure| refused(failure.to_string()))?;
        let (account, session) = (Arc::clone(&self.entry.account), self.entry.key.session);
        components.model = Arc::new(BudgetedModel::new(components.model, account, session));
        // The history may be too long for the new model. The former model has read all of it, so it can summarize it.
        components.summarizer = Some(Arc::new(ModelSummarizer::new(Arc::clone(&self.components.model))));
        Ok(components)
    }
}
