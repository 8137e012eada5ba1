//! The table of routes.

use axum::http::Method;

use crate::access::Scope;
use crate::routes::agents;
use crate::routes::environments;
use crate::routes::files;
use crate::routes::messages;
use crate::routes::models;
use crate::routes::openapi;
use crate::routes::probes;
use crate::routes::route::Route;
use crate::routes::session::event_stream;
use crate::routes::session::resources;
use crate::routes::session::session_events;
use crate::routes::session::sessions;
use crate::routes::skills;
use crate::routes::vault::credentials;
use crate::routes::vault::vaults;

/// A route, for tests and documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteInfo {
    /// The method.
    pub method: Method,
    /// The path, with `{name}` for its parameters.
    pub path: &'static str,
    /// The scope that the key needs; `None`: no key.
    pub scope: Option<Scope>,
}

/// All routes of the server.
pub(crate) fn all() -> Vec<Route> {
    [
        probes::routes(),
        openapi::routes(),
        agents::routes(),
        environments::routes(),
        models::routes(),
        messages::routes(),
        files::routes(),
        skills::routes(),
        vaults::routes(),
        credentials::routes(),
        sessions::routes(),
        resources::routes(),
        session_events::routes(),
        event_stream::routes(),
        #[cfg(feature = "mcp")]
        crate::routes::mcp::routes(),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_document_has_these_routes_and_no_other() {
        let document: Value = serde_json::from_str(conjure_api::OPENAPI).unwrap();
        let paths = document["paths"].as_object().unwrap().iter();
        let documented: BTreeSet<(String, String)> = paths
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(|method| (path.clone(), method.to_uppercase()))
            })
            .collect();
        let routed: BTreeSet<(String, String)> = route_table()
            .into_iter()
            .map(|route| (route.path.to_owned(), route.method.to_string()))
            .collect();
        let is_built = |(path, _): &(String, String)| cfg!(feature = "mcp") || path != "/mcp";
        let documented: BTreeSet<_> = documented.into_iter().filter(is_built).collect();
        assert_eq!(documented, routed);
        for route in route_table() {
            let operation = &document["paths"][route.path][route.method.as_str().to_lowercase()];
            assert_eq!(operation["security"].is_null(), route.scope.is_some(), "{route:?}: `security`");
            let parts = route.path.matches('{').count();
            let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
            let named = parameters.iter().filter(|parameter| {
                let reference = parameter["$ref"].as_str().unwrap();
                document.pointer(&reference[1..]).expect(reference)["in"] == "path"
            });
            assert_eq!(named.count(), parts, "{route:?}: the parts of the path");
        }
    }
}
