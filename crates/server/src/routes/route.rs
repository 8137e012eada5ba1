//! One route: a method, a path, the scope that it needs, and its handler.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, on};

use crate::access::{Caller, Scope};
use crate::http::ApiError;
use crate::state::ServerState;

/// One route.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// What the key needs; `None`: no key.
    pub(crate) scope: Option<Scope>,
    handler: MethodRouter<Arc<ServerState>>,
}

impl Route {
    /// A route that reads.
    pub(crate) fn get<H, T>(path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<ServerState>>,
        T: 'static,
    {
        Self { method: Method::GET, path, scope: Some(Scope::Read), handler: on(MethodFilter::GET, handler) }
    }

    /// A route that creates or changes something.
    pub(crate) fn post<H, T>(scope: Scope, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<ServerState>>,
        T: 'static,
    {
        Self { method: Method::POST, path, scope: Some(scope), handler: on(MethodFilter::POST, handler) }
    }

    /// A route that deletes.
    pub(crate) fn delete<H, T>(scope: Scope, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<ServerState>>,
        T: 'static,
    {
        Self { method: Method::DELETE, path, scope: Some(scope), handler: on(MethodFilter::DELETE, handler) }
    }

    /// The same route for keys with this scope.
    pub(crate) fn needs(self, scope: Scope) -> Self {
        Self { scope: Some(scope), ..self }
    }

    /// The same route without a key.
    pub(crate) fn open(self) -> Self {
        Self { scope: None, ..self }
    }

    /// The same route with a change of its handler, such as another limit of the body.
    pub(crate) fn map(
        self,
        change: impl FnOnce(MethodRouter<Arc<ServerState>>) -> MethodRouter<Arc<ServerState>>,
    ) -> Self {
        Self { handler: change(self.handler), ..self }
    }

    pub(crate) fn add_to(self, router: Router<Arc<ServerState>>) -> Router<Arc<ServerState>> {
        let handler = match self.scope {
            None => self.handler,
            Some(scope) => {
                self.handler.route_layer(from_fn(move |request, next| check(scope, request, next)))
            }
        };
        router.route(self.path, handler)
    }
}

/// Refuses a key that lacks the scope.
async fn check(scope: Scope, request: Request, next: Next) -> Response {
    let missing = ApiError::authentication("the request has no key");
    match request.extensions().get::<Caller>().ok_or(missing).and_then(|caller| caller.require(scope)) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}
