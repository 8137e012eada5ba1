//! The table of routes.

use axum::http::Method;

use crate::access::Scope;
use crate::routes::route::Route;
use crate::routes::{
    agents, environments, event_stream, files, models, probes, session_events, sessions, skills,
};

/// What a test or a page reads of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteInfo {
    /// The method.
    pub method: Method,
    /// The path, with `{name}` for its parts.
    pub path: &'static str,
    /// What a key needs; `None`: no key is needed.
    pub scope: Option<Scope>,
}

/// All routes of the server.
pub(crate) fn all() -> Vec<Route> {
    [
        probes::routes(),
        agents::routes(),
        environments::routes(),
        models::routes(),
        files::routes(),
        skills::routes(),
        sessions::routes(),
        session_events::routes(),
        event_stream::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// All routes of the server, as data.
#[must_use]
pub fn route_table() -> Vec<RouteInfo> {
    let infos = all().into_iter();
    infos.map(|Route { method, path, scope, .. }| RouteInfo { method, path, scope }).collect()
}
