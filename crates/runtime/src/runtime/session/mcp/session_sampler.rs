//! [`SessionSampler`]: lets the MCP servers of a session ask its model in the middle of a tool call ("sampling").

use std::fmt;
use std::sync::Arc;

use conjure_base::TenantId;
use conjure_conversation::{ModelEvent, Request, Response, SessionProfile};
use conjure_journal::SessionKey;
use conjure_mcp::{Sampler, SamplingRequest};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;

use crate::models::CallSettings;
use crate::runtime::session::factory::session_factory::RuntimeSessionFactory;

/// The most tokens of a response to a server.
const MAX_TOKENS: u32 = 8_192;

/// Asks the model that the session had when it was loaded. The responses are not recorded. The tenant's budget pays for
/// them, the session's budget does not.
struct SessionSampler {
    factory: RuntimeSessionFactory,
    tenant: TenantId,
    /// The name of the model. `None` stands for the model of sessions that name none.
    model: Option<String>,
}

impl RuntimeSessionFactory {
    /// The sampler for the servers of a session.
    pub(in crate::runtime::session) fn sampler(
        &self,
        key: &SessionKey,
        profile: &SessionProfile,
    ) -> Arc<dyn Sampler> {
        let (tenant, model) = (key.tenant.clone(), profile.model.clone());
        Arc::new(SessionSampler { factory: self.with_presence(None), tenant, model })
    }
}

impl SessionSampler {
    async fn ask(&self, asked: SamplingRequest) -> Result<Response, String> {
        let tokens =
            CallSettings { max_tokens: Some(asked.max_tokens.min(MAX_TOKENS)), ..CallSettings::default() };
        let settings = CallSettings {
            temperature: asked.temperature,
            stop_sequences: asked.stop_sequences,
            ..tokens.clone()
        };
        let find = |name: String| {
            let find = |settings| self.factory.model_for_calls(&self.tenant, &name, settings);
            // The protocol lets a client ignore settings that its model does not support.
            find(&settings).or_else(|_| find(&tokens))
        };
        let name = self.factory.model_name(&self.tenant, self.model.as_deref());
        let model = name.and_then(find).map_err(|error| error.to_string())?;
        let Some(accounts) = self.factory.inner.accounts.get() else {
            return Err("the runtime has not started".to_owned());
        };
        let request = Request {
            instructions: asked.instructions.into_iter().collect(),
            ..Request::new(asked.messages)
        };
        let mut events = accounts.budgeted_model(&self.tenant, model).stream(request);
        while let Some(event) = events.next().await {
            if let ModelEvent::Finished(response) = event.map_err(|error| error.to_string())? {
                return Ok(*response);
            }
        }
        Err("its answer ended too early".to_owned())
    }
}

impl Sampler for SessionSampler {
    fn sample(&self, request: SamplingRequest) -> BoxFuture<'_, Result<Response, String>> {
        Box::pin(self.ask(request))
    }
}

impl fmt::Debug for SessionSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionSampler").field("tenant", &self.tenant).field("model", &self.model).finish()
    }
}
