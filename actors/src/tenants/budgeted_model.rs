//! A model whose calls are charged to a tenant's budget.

use std::sync::Arc;

use conjure_base::SessionId;
use conjure_conversation::{
    Block, BlockKind, Message, Model, ModelError, ModelErrorKind, ModelStream, PromptPrefix, Request,
    ToolDefinition,
};
use futures_util::future::{Either, ready};
use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::reservation::{ChargeTime, Reservation};
use super::tenant_account::{ReserveError, TenantAccount};

/// The estimated size of an image at most: 1,600 tokens of three bytes each.
const IMAGE: usize = 4_800;

/// A model whose calls start when their estimates fit in the tenant's budget.
pub(crate) struct BudgetedModel {
    model: Arc<dyn Model>,
    account: Arc<TenantAccount>,
    caller: Caller,
}

/// Who calls a model.
#[derive(Debug, Clone, Copy)]
enum Caller {
    /// A session, which records the responses.
    Session(SessionId),
    /// A caller without a session.
    Unrecorded,
}

impl BudgetedModel {
    /// The model of a session.
    pub(crate) fn new(model: Arc<dyn Model>, account: Arc<TenantAccount>, session: SessionId) -> Self {
        Self { model, account, caller: Caller::Session(session) }
    }

    /// A model whose calls no session records. Each is charged when its response arrives.
    pub(crate) fn unrecorded(model: Arc<dyn Model>, account: Arc<TenantAccount>) -> Self {
        Self { model, account, caller: Caller::Unrecorded }
    }
}

impl Model for BudgetedModel {
    fn stream(&self, request: Request) -> ModelStream {
        let (model, account, caller) = (Arc::clone(&self.model), Arc::clone(&self.account), self.caller);
        let bytes = estimate_parts(&request.instructions, &request.tools, &request.messages, &[]);
        let reserved = async move {
            // An unrecorded call reserves under a random id.
            let (session, charge_time) = match caller {
                Caller::Session(session) => (session, ChargeTime::Recording),
                Caller::Unrecorded => (SessionId::random().map_err(no_entropy)?, ChargeTime::Arrival),
            };
            Reservation::acquire(account, session, bytes, charge_time).await.map_err(ModelError::from)
        };
        let answering = reserved.map(move |reserved| match reserved {
            Ok(mut reservation) => {
                Either::Left(model.stream(request).inspect(move |event| reservation.observe(event)))
            }
            Err(refused) => Either::Right(stream::once(ready(Err(refused)))),
        });
        answering.into_stream().flatten().boxed()
    }

    fn inner(&self) -> Option<&dyn Model> {
        Some(&self.model)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is the argument of `map_err`")]
fn no_entropy(error: std::io::Error) -> ModelError {
    ModelError::new(ModelErrorKind::Overloaded, format!("the machine gives no entropy: {error}"))
}

impl From<ReserveError> for ModelError {
    fn from(refused: ReserveError) -> Self {
        match refused {
            ReserveError::QuotaExceeded(exceeded) => {
                Self::new(ModelErrorKind::Exhausted(exceeded.quota.limit()), exceeded.to_string())
            }
            ReserveError::TimedOut => {
                let message =
                    "other calls have reserved what is left of the tenant's budget, and did not end in time";
                Self::new(ModelErrorKind::Overloaded, message)
            }
            ReserveError::Journal(error) => {
                let message = format!("what the tenant has spent is not known: {error}");
                Self::new(ModelErrorKind::Overloaded, message)
            }
        }
    }
}

/// The number of bytes that a call sends, as far as they count as tokens: of the instructions and tools, the messages,
/// and the next message.
pub(crate) fn estimate(composition: &PromptPrefix, messages: &[Arc<Message>], next: &[Block]) -> u64 {
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
        + blocks.map(size).sum::<usize>();
    sum as u64
}

/// The number of bytes of text that a block counts as. Services count an image by its dimensions, not its bytes.
fn size(block: &Block) -> usize {
    let json = block.json();
    match block.kind() {
        BlockKind::Other(kind) if kind == "image" => json.len().min(IMAGE),
        BlockKind::ToolResult { text, .. } => match json.matches(r#""image""#).count() {
            0 => json.len(),
            images => json.len().min(text.len().saturating_add(images.saturating_mul(IMAGE))),
        },
        _ => json.len(),
    }
}

#[cfg(test)]
mod tests {
    use conjure_conversation::Block;

    use super::{IMAGE, size};

    #[test]
    fn an_image_is_worth_as_much_however_many_bytes_it_has() {
        let image = |bytes: usize| {
            let data = "A".repeat(bytes);
            let source = format!(r#"{{"type":"base64","media_type":"image/png","data":"{data}"}}"#);
            format!(r#"{{"type":"image","source":{source}}}"#)
        };
        let sized = |json: String| size(&Block::from_json(json).unwrap());
        assert_eq!(sized(image(1_000_000)), IMAGE);
        let small = image(10);
        assert_eq!(sized(small.clone()), small.len());
        let result =
            |content: String| format!(r#"{{"type":"tool_result","tool_use_id":"t","content":[{content}]}}"#);
        let text = r#"{"type":"text","text":"two"}"#;
        assert_eq!(sized(result(format!("{text},{0},{0}", image(1_000_000)))), 3 + 2 * IMAGE);
        let plain = result(text.to_owned());
        assert_eq!(sized(plain.clone()), plain.len());
        assert_eq!(sized(format!(r#"{{"type":"text","text":"{}"}}"#, "image ".repeat(10_000))), 60_025);
    }
}
