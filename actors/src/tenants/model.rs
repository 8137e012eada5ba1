//! A model whose calls are paid for by a tenant.

use std::sync::Arc;

use conjure_base::SessionId;
use conjure_conversation::{
    Block, CallEffects, Composition, HostedFiles, Hosting, Message, Model, ModelError, ModelErrorKind,
    ModelEvent, ModelStream, Request, ToolDefinition,
};
use futures_util::future::{Either, ready};
use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::account::{Account, NotReserved};

/// A model whose calls begin when what they may come to fits into the tenant's budget.
pub(crate) struct BudgetedModel {
    model: Arc<dyn Model>,
    account: Arc<Account>,
    session: SessionId,
}

impl BudgetedModel {
    pub(crate) fn new(model: Arc<dyn Model>, account: Arc<Account>, session: SessionId) -> Self {
        Self { model, account, session }
    }
}

impl Model for BudgetedModel {
    fn stream(&self, request: Request) -> ModelStream {
        let (model, account, session) = (Arc::clone(&self.model), Arc::clone(&self.account), self.session);
        // Nobody asks how large it is where nothing is limited.
        let bytes = match account.terms().budget.allowances() {
            [] => 0,
            _ => estimate_parts(&request.instructions, &request.tools, &request.messages, &[]),
        };
        let reserved = async move { account.reserve(session, bytes).await };
        let answering = reserved.map(move |reserved| match reserved {
            Ok(mut reservation) => Either::Left(model.stream(request).inspect(move |event| {
                if let Ok(ModelEvent::Finished(response)) = event {
                    reservation.settle(&response.usage);
                }
            })),
            Err(refused) => Either::Right(stream::once(ready(Err(refused.into())))),
        });
        answering.into_stream().flatten().boxed()
    }

    fn hosting(&self) -> Hosting {
        self.model.hosting()
    }

    fn hosted_files(&self) -> HostedFiles {
        self.model.hosted_files()
    }

    fn effects(&self, request: &Request) -> CallEffects {
        self.model.effects(request)
    }
}

impl From<NotReserved> for ModelError {
    fn from(refused: NotReserved) -> Self {
        match refused {
            NotReserved::Exceeded(exceeded) => {
                Self::new(ModelErrorKind::Exhausted(exceeded.quota.limit()), exceeded.to_string())
            }
            NotReserved::Waited => {
                let message =
                    "other calls have reserved what is left of the tenant's budget, and did not end in time";
                Self::new(ModelErrorKind::Overloaded, message)
            }
            NotReserved::Journal(error) => {
                let message = format!("what the tenant has spent is not known: {error}");
                Self::new(ModelErrorKind::Overloaded, message)
            }
        }
    }
}

/// How many bytes a call sends, as far as they are tokens: of these instructions and tools, these messages, and what is said next.
pub(crate) fn estimate(composition: &Composition, messages: &[Arc<Message>], next: &[Block]) -> u64 {
    estimate_parts(&composition.instructions, &composition.tools, messages, next)
}

fn estimate_parts(
    instructions: &[String],
    tools: &[ToolDefinition],
    messages: &[Arc<Message>],
    next: &[Block],
) -> u64 {
    let tool = |tool: &ToolDefinition| {
        tool.name.len() + tool.description.len() + tool.input_schema.to_string().len()
    };
    let blocks = messages.iter().flat_map(|message| &message.content).chain(next);
    let sum = instructions.iter().map(String::len).sum::<usize>()
        + tools.iter().map(tool).sum::<usize>()
        + blocks.map(|block| block.json().len()).sum::<usize>();
    sum as u64
}
