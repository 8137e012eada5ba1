//! The query of a request: pairs, some of which may be given several times.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;

use crate::http::error::ApiError;

/// The pairs of a query in their order. Arrays are `name[]=a&name[]=b`.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueryPairs(Vec<(String, String)>);

impl QueryPairs {
    /// The last value of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of the array of this name, in either spelling: `name[]` or `name` repeated.
    pub(crate) fn all<'q>(&'q self, name: &str) -> Vec<&'q str> {
        let is_name = |key: &str| key == name || key.strip_suffix("[]") == Some(name);
        self.0.iter().filter(|(key, _)| is_name(key)).map(|(_, value)| value.as_str()).collect()
    }

    /// The value of this name as `T`.
    ///
    /// # Errors
    /// If it is there and cannot be read.
    pub(crate) fn parse<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let value = self.get(name).filter(|value| !value.is_empty());
        let read = value.map(|value| {
            let failed = |_| ApiError::invalid(format!("{name}: `{value}` cannot be read"));
            value.parse().map_err(failed)
        });
        read.transpose()
    }

    /// The page size: from 1 to `most`, `default` where none is given.
    ///
    /// # Errors
    /// If it is no such number.
    pub(crate) fn limit(&self, default: usize, most: usize) -> Result<usize, ApiError> {
        match self.parse::<usize>("limit")? {
            None => Ok(default),
            Some(limit) if (1..=most).contains(&limit) => Ok(limit),
            Some(limit) => Err(ApiError::invalid(format!("limit: {limit} is not between 1 and {most}"))),
        }
    }

    /// Whether the flag of this name is `true`.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        Ok(self.parse(name)?.unwrap_or(false))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for QueryPairs {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let read = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let Query(pairs) = read.map_err(|error| ApiError::invalid(format!("the query cannot be read: {error}")))?;
        Ok(Self(pairs))
    }
}
