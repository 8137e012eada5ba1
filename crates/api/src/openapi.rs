//! The OpenAPI document.

/// The API as an OpenAPI 3.1 document in JSON: all routes of the server with their requests and responses.
pub const OPENAPI: &str = include_str!("../openapi.json");
