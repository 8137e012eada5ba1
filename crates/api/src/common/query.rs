//! Query strings. Each reader takes the parameters that it knows, and the rest is refused.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use percent_encoding::percent_decode_str;

use crate::common::page::Order;
use crate::{RequestError, Time};

/// The remaining parameters of a query string.
#[derive(Debug, Clone, Default)]
pub(super) struct Query {
    known: Vec<&'static str>,
    /// Pairs of name and value. Names of arrays have lost their `[]`.
    pub(super) pairs: Vec<(String, String)>,
}

/// A range of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeRange {
    /// After this time.
    pub gt: Option<Time>,
    /// At or after this time.
    pub gte: Option<Time>,
    /// Before this time.
    pub lt: Option<Time>,
    /// At or before this time.
    pub lte: Option<Time>,
}

/// The parameters of a list without filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageQuery {
    /// The number of elements on a page.
    pub limit: usize,
    /// The cursor of the page.
    pub page: Option<String>,
}

/// The page of a list, by the id of an element.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ById {
    /// The page begins after this element.
    pub after_id: Option<String>,
    /// The page ends before this element.
    pub before_id: Option<String>,
}

impl Query {
    /// Reads a query string, without its `?`.
    pub(super) fn new(text: &str) -> Result<Self, RequestError> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name)?;
            let value = decode(value)?;
            let name = name.strip_suffix("[]").map(str::to_owned).unwrap_or(name);
            pairs.push((name, value));
        }
        // Older clients send this parameter with each request of a beta.
        pairs.retain(|(name, _)| name != "beta");
        Ok(Self { known: Vec::new(), pairs })
    }

    pub(super) fn many(&mut self, name: &'static str) -> Vec<String> {
        self.known.push(name);
        self.pairs.extract_if(.., |(found, _)| found == name).map(|(_, value)| value).collect()
    }

    pub(super) fn one(&mut self, name: &'static str) -> Result<Option<String>, RequestError> {
        let mut values = self.many(name);
        match values.len() {
            0 | 1 => Ok(values.pop().filter(|value| !value.is_empty())),
            found => {
                Err(RequestError::new(name, format!("the parameter occurs {found} times; give it once")))
            }
        }
    }

    pub(super) fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, RequestError> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| {
            let (min, max) = (range.start(), range.end());
            let range_text =
                if *max == u64::MAX { format!("{min} or more") } else { format!("{min} to {max}") };
            RequestError::new(name, format!("`{text}` is not allowed; give an integer of {range_text}"))
        })
    }

    pub(super) fn flag(&mut self, name: &'static str) -> Result<bool, RequestError> {
        match self.one(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => {
                Err(RequestError::new(name, format!("`{other}` is not allowed; give `true` or `false`")))
            }
        }
    }

    pub(super) fn time(&mut self, name: &'static str) -> Result<Option<Time>, RequestError> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|error| RequestError::new(name, format!("{error}")))
    }

    pub(super) fn created_at(&mut self) -> Result<TimeRange, RequestError> {
        Ok(TimeRange {
            gt: self.time("created_at[gt]")?,
            gte: self.time("created_at[gte]")?,
            lt: self.time("created_at[lt]")?,
            lte: self.time("created_at[lte]")?,
        })
    }

    pub(super) fn order(&mut self, default: Order) -> Result<Order, RequestError> {
        match self.one("order")?.as_deref() {
            None => Ok(default),
            Some("asc") => Ok(Order::Ascending),
            Some("desc") => Ok(Order::Descending),
            Some(other) => {
                Err(RequestError::new("order", format!("`{other}` is not allowed; give `asc` or `desc`")))
            }
        }
    }

    pub(super) fn page(&mut self, default: usize, max: usize) -> Result<PageQuery, RequestError> {
        Ok(PageQuery { limit: self.limit(default, max)?, page: self.one("page")? })
    }

    pub(super) fn limit(&mut self, default: usize, max: usize) -> Result<usize, RequestError> {
        let limit = self.integer("limit", 1..=u64::try_from(max).unwrap_or(u64::MAX))?;
        Ok(limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(default))
    }

    pub(super) fn by_id(&mut self) -> Result<ById, RequestError> {
        let by_id = ById { after_id: self.one("after_id")?, before_id: self.one("before_id")? };
        match by_id {
            ById { after_id: Some(_), before_id: Some(_) } => {
                Err(RequestError::new("before_id", "the parameter excludes `after_id`; give one of them"))
            }
            by_id => Ok(by_id),
        }
    }

    /// Refuses a filter that this server does not support.
    pub(super) fn unsupported(&mut self, name: &'static str, what: &str) -> Result<(), RequestError> {
        match self.one(name)? {
            Some(_) => Err(RequestError::unsupported(name, what)),
            None => Ok(()),
        }
    }

    pub(super) fn finish(self) -> Result<(), RequestError> {
        let Some((unknown, _)) = self.pairs.first() else { return Ok(()) };
        let known: Vec<String> = self.known.iter().map(|name| format!("`{name}`")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(RequestError::new(
            unknown.escape_debug().to_string(),
            format!("the parameter is unknown; remove it (known here: {known})"),
        ))
    }
}

/// Decodes `%XX` and `+`.
fn decode(text: &str) -> Result<String, RequestError> {
    let text = text.replace('+', " ");
    let decoded = percent_decode_str(&text).decode_utf8().map(Cow::into_owned);
    decoded.map_err(|_| RequestError::new("", "the query string is not UTF-8; encode its values as UTF-8"))
}

/// Looks up the value with this name.
pub(super) fn by_name<T: Copy>(
    parameter: &str,
    text: &str,
    allowed: &[(&str, T)],
) -> Result<T, RequestError> {
    allowed.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<String> = allowed.iter().map(|(name, _)| format!("`{name}`")).collect();
        let text = text.escape_debug();
        RequestError::new(parameter, format!("`{text}` is not allowed; give one of {}", names.join(", ")))
    })
}

impl TimeRange {
    /// Whether `time` is in the range.
    #[must_use]
    pub fn contains(&self, time: Time) -> bool {
        self.gt.is_none_or(|bound| time > bound)
            && self.gte.is_none_or(|bound| time >= bound)
            && self.lt.is_none_or(|bound| time < bound)
            && self.lte.is_none_or(|bound| time <= bound)
    }
}
