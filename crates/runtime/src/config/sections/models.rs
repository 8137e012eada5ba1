//! Settings of models: `[models.NAME]` says which service a model name belongs to, and how to reach it.

use std::collections::BTreeMap;
use std::fmt;

use conjure_conversation::ModelApi;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Map;
use toml::{Table, Value};

use crate::config::values;

/// The name of these tables in the documentation.
pub(crate) const TABLE: &str = "models.NAME";

/// The highest price that a file may contain, in dollars for a million tokens.
const MAX_PRICE: f64 = 1_000_000.0;

/// One configured model. `Debug` shows the names of headers, but not their values.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(expecting = "a table")]
pub struct ModelSettings {
    /// The API of its service.
    pub api: ModelApi,
    /// The service's name of the model; by default the name of the table.
    #[serde(default, deserialize_with = "values::text")]
    pub model: Option<String>,
    /// The address of the service; by default the vendor's own.
    #[serde(default, deserialize_with = "values::text")]
    pub base_url: Option<String>,
    /// The environment variable with the key. The vendor's own address uses the vendor's own variable by default. Any
    /// other address gets no key by default.
    #[serde(default, deserialize_with = "variable")]
    pub key_env: Option<String>,
    /// Additional headers of each request. Values that look like secrets are redacted.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Additional members of each request's body.
    #[serde(default, deserialize_with = "body")]
    pub body: Map<String, serde_json::Value>,
    /// The most tokens of one response.
    pub max_tokens: Option<u32>,
    /// The size of its context in tokens. The default is from the table of known models.
    #[serde(default, deserialize_with = "context_length")]
    pub context_length: Option<u64>,
    /// The price of its tokens.
    pub price: Option<TokenPrice>,
    /// Whether the model may call several tools in one response. By default the service decides.
    pub parallel_tool_calls: Option<bool>,
    /// The models that are tried, in order, if the service is overloaded or cannot be reached.
    #[serde(default)]
    pub fallback: Vec<String>,
}

/// The price of a million tokens, in millionths of a dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "DollarPrice")]
pub struct TokenPrice {
    /// Input that was neither read from a cache nor written to one.
    pub input: u64,
    /// Output.
    pub output: u64,
    /// Input read from the cache.
    pub cache_read: u64,
    /// Input written to the cache.
    pub cache_write: u64,
}

impl ModelSettings {
    /// A model with this API and the defaults of its vendor.
    #[must_use]
    pub fn new(api: ModelApi) -> Self {
        Self {
            api,
            model: None,
            base_url: None,
            key_env: None,
            headers: BTreeMap::new(),
            body: Map::new(),
            max_tokens: None,
            context_length: None,
            price: None,
            parallel_tool_calls: None,
            fallback: Vec::new(),
        }
    }
}

impl ModelSettings {
    /// The headers whose values are secrets.
    pub(crate) fn secret_headers(&self) -> impl Iterator<Item = (String, String)> {
        #[cfg(feature = "model-http")]
        let is_secret =
            |(name, value): &(&String, &String)| conjure_model_http::is_secret_header(name, value);
        // This build sends no requests, so every header counts as a secret.
        #[cfg(not(feature = "model-http"))]
        let is_secret = |_: &(&String, &String)| true;
        self.headers.iter().filter(is_secret).map(|(name, value)| (name.clone(), value.clone()))
    }
}

impl fmt::Debug for ModelSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelSettings")
            .field("api", &self.api)
            .field("model", &self.model)
            .field("base_url", &self.base_url)
            .field("key_env", &self.key_env)
            .field("headers", &self.headers.keys())
            .finish_non_exhaustive()
    }
}

/// Checks the models together. A fallback must be another configured model or `VENDOR:NAME`. A fallback must not have
/// fallbacks of its own.
pub(crate) fn check(models: &BTreeMap<String, ModelSettings>) -> Result<(), String> {
    for (name, settings) in models {
        if name.trim().is_empty() {
            return Err("a model needs a name".to_owned());
        }
        if settings.max_tokens == Some(0) {
            return Err(format!("`{name}`: `max_tokens` must be at least 1"));
        }
        for other in &settings.fallback {
            if other == name {
                return Err(format!("`{name}`: `fallback` names the model itself"));
            }
            if !models.contains_key(other) && !other.contains(':') {
                return Err(format!(
                    "`{name}`: the fallback `{other}` is neither configured nor `VENDOR:NAME`"
                ));
            }
            if models.get(other).is_some_and(|other| !other.fallback.is_empty()) {
                return Err(format!(
                    "`{name}`: the fallback `{other}` has a fallback of its own; list all of them in `{name}`"
                ));
            }
        }
    }
    Ok(())
}

/// The name of an environment variable. Text that is no valid name may be a secret, so the error does not show it.
fn variable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = values::text(deserializer)?;
    let is_name = |name: &String| {
        !name.starts_with(|first: char| first.is_ascii_digit())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match name.as_ref().is_none_or(is_name) {
        true => Ok(name),
        false => {
            Err(D::Error::custom("it must be the name of an environment variable, and not the key itself"))
        }
    }
}

/// The size of the context in tokens. It must have room for a prompt and a response.
fn context_length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match u64::deserialize(deserializer)? {
        tokens @ 1024.. => Ok(Some(tokens)),
        _ => Err(D::Error::custom("it must be at least 1024 tokens")),
    }
}

/// Dollars for a million tokens, as written in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct DollarPrice {
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
}

impl TryFrom<DollarPrice> for TokenPrice {
    type Error = &'static str;

    /// Cached tokens cost the same as input, unless the file says otherwise.
    fn try_from(price: DollarPrice) -> Result<Self, Self::Error> {
        let micros = |dollars: f64| {
            if !(0.0..=MAX_PRICE).contains(&dollars) {
                return Err("a price must be dollars for a million tokens, from 0");
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was checked")]
            Ok((dollars * 1_000_000.0).round() as u64)
        };
        Ok(Self {
            input: micros(price.input)?,
            output: micros(price.output)?,
            cache_read: micros(price.cache_read.unwrap_or(price.input))?,
            cache_write: micros(price.cache_write.unwrap_or(price.input))?,
        })
    }
}

/// Members of a request's body.
fn body<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, serde_json::Value>, D::Error> {
    let members = Table::deserialize(deserializer)?;
    members
        .iter()
        .map(|(name, value)| Ok((name.clone(), json(value)?)))
        .collect::<Result<_, String>>()
        .map_err(D::Error::custom)
}

/// The JSON value of a TOML value.
fn json(value: &Value) -> Result<serde_json::Value, String> {
    Ok(match value {
        Value::String(text) => text.clone().into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) if number.is_finite() => (*number).into(),
        Value::Float(number) => return Err(format!("JSON has no number {number}")),
        Value::Boolean(flag) => (*flag).into(),
        Value::Datetime(_) => return Err("JSON has no dates; write a text".to_owned()),
        Value::Array(items) => items.iter().map(json).collect::<Result<Vec<_>, _>>()?.into(),
        Value::Table(members) => members
            .iter()
            .map(|(name, value)| Ok((name.clone(), json(value)?)))
            .collect::<Result<Map<_, _>, String>>()?
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<BTreeMap<String, ModelSettings>, String> {
        let models = toml::from_str(text).map_err(|error| error.to_string())?;
        check(&models).map(|()| models)
    }

    #[test]
    fn every_key_is_read() {
        let models = parsed(
            r#"
            [fast]
            api = "chat"
            model = "qwen3:8b"
            base_url = "http://localhost:11434/v1"
            key_env = "LOCAL_KEY"
            headers = { "x-team" = "blue" }
            body = { temperature = 0.5, stop = ["END"], nested = { deep = true } }
            max_tokens = 100
            context_length = 32768
            price = { input = 0.25, output = 2 }
            parallel_tool_calls = false
            fallback = ["other", "openai:gpt"]
            [other]
            api = "messages"
            "#,
        )
        .unwrap();
        let fast = &models["fast"];
        assert_eq!(fast.api, ModelApi::Chat);
        assert_eq!(fast.model.as_deref(), Some("qwen3:8b"));
        assert_eq!(fast.headers["x-team"], "blue");
        let body = serde_json::json!({"temperature": 0.5, "stop": ["END"], "nested": {"deep": true}});
        assert_eq!(serde_json::Value::Object(fast.body.clone()), body);
        let price =
            TokenPrice { input: 250_000, output: 2_000_000, cache_read: 250_000, cache_write: 250_000 };
        assert_eq!(fast.price, Some(price));
        assert_eq!((fast.max_tokens, fast.parallel_tool_calls), (Some(100), Some(false)));
        assert_eq!(fast.context_length, Some(32_768));
        assert_eq!(fast.fallback, ["other", "openai:gpt"]);
        assert_eq!(models["other"], ModelSettings::new(ModelApi::Messages));
        assert!(!format!("{fast:?}").contains("blue"), "{fast:?}");
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, part) in [
            ("a = 1", "expected a table"),
            ("[a]", "missing field `api`"),
            ("[a]\napi = 'grpc'", "unknown variant `grpc`, expected one of `messages`"),
            ("[a]\napi = 'chat'\nmodel = ' '", "it is empty"),
            ("[a]\napi = 'chat'\nmodel = 3", "expected a string"),
            ("[a]\napi = 'chat'\nmax_tokens = 0", "at least 1"),
            ("[a]\napi = 'chat'\ncontext_length = 10", "at least 1024 tokens"),
            (
                "[a]\napi = 'chat'\nkey_env = 'sk-1'",
                "it must be the name of an environment variable, and not",
            ),
            ("[a]\napi = 'chat'\nfallback = ['nosuch']", "`nosuch` is neither configured nor `VENDOR:NAME`"),
            ("[a]\napi = 'chat'\nheaders = { a = 1 }", "expected a string"),
            ("[a]\napi = 'chat'\nbody = { a = nan }", "JSON has no number NaN"),
            ("[a]\napi = 'chat'\nbody = { a = 2026-01-01 }", "JSON has no dates"),
            ("[a]\napi = 'chat'\nprice = { input = 1 }", "missing field `output`"),
            ("[a]\napi = 'chat'\nprice = { input = -1, output = 1 }", "from 0"),
            ("[a]\napi = 'chat'\nprice = { in = 1 }", "unknown field `in`, expected one of `input`"),
            ("[a]\napi = 'chat'\nparallel_tool_calls = 1", "expected a boolean"),
            ("[a]\napi = 'chat'\nfallback = ['a']", "names the model itself"),
            ("[a]\napi = 'chat'\nfallback = [1]", "expected a string"),
            (
                "[a]\napi = 'chat'\nfallback = ['b']\n[b]\napi = 'chat'\nfallback = ['c']",
                "has a fallback of its own",
            ),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
