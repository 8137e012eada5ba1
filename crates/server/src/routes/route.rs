//! One route: a method, a path, the scope that it needs, and its handler.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, on};

use crate::access::{Caller, Scope};
use crate::idempotency::{answer_once, refuse_key};
use crate::state::ServerState;

/// How a route handles the header `Idempotency-Key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idempotency {
    /// It ignores the header, because it creates nothing or is idempotent anyway.
    Ignored,
    /// A repeated request gets the answer of the first one.
    Honoured,
    /// It refuses the header.
    Refused,
}

/// One route.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The scope that the key needs; `None`: no key.
    pub(crate) scope: Option<Scope>,
    pub(crate) idempotency: Idempotency,
    handler: MethodRouter<Arc<ServerState>>,
}

impl Route {
    /// A route that reads.
    pub(crate) fn get<H, T>(path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<ServerState>>,
        T: 'static,
    {
        Self::new(Method::GET, path, Scope::Read, on(MethodFilter::GET, handler))
    }

    /// A route that creates or changes something.
    pub(crate) fn post<H, T>(scope: Scope, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<ServerState>>,
        T: 'static,
    {
        Self::new(Method::POST, path, scope, on(MethodFilter::POST, handler))
    }

    /// A route that deletes.
    pub(crate) fn delete<H, T>(scope: Scope, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<ServerState>>,
        T: 'static,
    {
        Self::new(Method::DELETE, path, scope, on(MethodFilter::DELETE, handler))
    }

    const fn new(
        method: Method,
        path: &'static str,
        scope: Scope,
        handler: MethodRouter<Arc<ServerState>>,
    ) -> Self {
        Self { method, path, scope: Some(scope), idempotency: Idempotency::Ignored, handler }
    }

    /// Honours the header `Idempotency-Key`: a repeated request gets the answer of the first one.
    pub(crate) fn idempotent(self) -> Self {
        Self { idempotency: Idempotency::Honoured, ..self }
    }

    /// Refuses the header `Idempotency-Key`.
    pub(crate) fn without_idempotency_key(self) -> Self {
        Self { idempotency: Idempotency::Refused, ..self }
    }

    /// Requires a key with this scope.
    pub(crate) fn needs(self, scope: Scope) -> Self {
        Self { scope: Some(scope), ..self }
    }

    /// Requires no key.
    pub(crate) fn open(self) -> Self {
        Self { scope: None, ..self }
    }

    /// Changes the handler, for example its limit of the body.
    pub(crate) fn map(
        self,
        change: impl FnOnce(MethodRouter<Arc<ServerState>>) -> MethodRouter<Arc<ServerState>>,
    ) -> Self {
        Self { handler: change(self.handler), ..self }
    }

    pub(crate) fn add_to(
        self,
        router: Router<Arc<ServerState>>,
        state: &Arc<ServerState>,
    ) -> Router<Arc<ServerState>> {
        let handler = match self.idempotency {
            Idempotency::Ignored => self.handler,
            Idempotency::Honoured => {
                self.handler.route_layer(from_fn_with_state(Arc::clone(state), answer_once))
            }
            Idempotency::Refused => self.handler.route_layer(from_fn(refuse_key)),
        };
        // The layer that is added last is the first one that a request passes.
        let handler = match self.scope {
            None => handler,
            Some(scope) => handler.route_layer(from_fn(move |request, next| check(scope, request, next))),
        };
        router.route(self.path, handler)
    }
}

/// Refuses a key that lacks the scope.
async fn check(scope: Scope, request: Request, next: Next) -> Response {
    match Caller::of_request(request.extensions()).and_then(|caller| caller.require(scope)) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}
