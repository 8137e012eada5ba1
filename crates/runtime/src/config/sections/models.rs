//! Settings of models: `[models.NAME]` says which service a model name belongs to, and how to reach it.

use std::collections::BTreeMap;
use std::fmt;

use conjure_conversation::ModelApi;
use serde_json::Map;
use toml::{Table, Value};

use crate::config::keys;

/// The name of these tables in the documentation.
pub(crate) const TABLE: &str = "models.NAME";

/// The highest price that a file may contain, in dollars for a million tokens.
const MAX_PRICE: f64 = 1_000_000.0;

/// One configured model. `Debug` shows the names of headers, but not their values.
#[derive(Clone, PartialEq)]
pub struct ModelSettings {
    /// The API of its service.
    pub api: ModelApi,
    /// The service's name of the model; by default the name of the table.
    pub model: Option<String>,
    /// The address of the service; by default the vendor's own.
    pub base_url: Option<String>,
    /// The environment variable with the key. The vendor's own address uses the vendor's own variable by default. Any
    /// other address gets no key by default.
    pub key_env: Option<String>,
    /// Additional headers of each request. Values that look like secrets are redacted.
    pub headers: BTreeMap<String, String>,
    /// Additional members of each request's body.
    pub body: Map<String, serde_json::Value>,
    /// The most tokens of one response.
    pub max_tokens: Option<u32>,
    /// The size of its context in tokens. The default is from the table of known models.
    pub context_length: Option<u64>,
    /// The price of its tokens.
    pub price: Option<TokenPrice>,
    /// Whether the model may call several tools in one response. By default the service decides.
    pub parallel_tool_calls: Option<bool>,
    /// The models that are tried, in order, if the service is overloaded or cannot be reached.
    pub fallback: Vec<String>,
}

/// The price of a million tokens, in millionths of a dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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

/// Merges the models of the upper layer over those of the lower one. For a name in both, the upper one's model is used.
pub(crate) fn merged(
    upper: BTreeMap<String, ModelSettings>,
    mut lower: BTreeMap<String, ModelSettings>,
) -> BTreeMap<String, ModelSettings> {
    lower.extend(upper);
    lower
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

/// Parses the tables `[models.NAME]` of the file.
pub(crate) fn parse(tables: &Table) -> Result<BTreeMap<String, ModelSettings>, String> {
    let models: BTreeMap<_, _> = tables
        .iter()
        .map(|(name, value)| {
            let Value::Table(table) = value else {
                return Err(format!("`{name}` must be a table: write `[models.{name}]`"));
            };
            let settings = parse_model(table).map_err(|reason| format!("`{name}`: {reason}"))?;
            Ok((name.clone(), settings))
        })
        .collect::<Result<_, String>>()?;
    check(&models).map(|()| models)
}

fn parse_model(table: &Table) -> Result<ModelSettings, String> {
    if let Some(key) = ["key", "api_key"].into_iter().find(|key| table.contains_key(*key)) {
        return Err(format!(
            "there is no `{key}`: put the key into an environment variable, and the variable's name into `key_env`"
        ));
    }
    keys::check(table, TABLE)?;
    let api = text(table, "api")?.ok_or("`api` is missing: `messages`, `chat`, `responses` or `gemini`")?;
    let headers = members(table, "headers")?
        .map(|(name, value)| match value {
            Value::String(value) => Ok((name.clone(), value.clone())),
            other => Err(format!("`headers`: `{name}` must be a text, not a {}", other.type_str())),
        })
        .collect::<Result<_, _>>()?;
    let body = members(table, "body")?
        .map(|(name, value)| Ok((name.clone(), json(value).map_err(|reason| format!("`body`: {reason}"))?)))
        .collect::<Result<_, String>>()?;
    Ok(ModelSettings {
        api: parse_api(&api)?,
        model: text(table, "model")?,
        base_url: text(table, "base_url")?,
        key_env: variable(table, "key_env")?,
        headers,
        body,
        max_tokens: max_tokens(table)?,
        context_length: context_length(table)?,
        price: price(table)?,
        parallel_tool_calls: match table.get("parallel_tool_calls") {
            None => None,
            Some(Value::Boolean(allowed)) => Some(*allowed),
            Some(other) => {
                return Err(format!(
                    "`parallel_tool_calls` is `true` or `false`, not a {}",
                    other.type_str()
                ));
            }
        },
        fallback: names(table, "fallback")?,
    })
}

/// The API of this name.
fn parse_api(text: &str) -> Result<ModelApi, String> {
    match text {
        "messages" => Ok(ModelApi::Messages),
        "chat" => Ok(ModelApi::Chat),
        "responses" => Ok(ModelApi::Responses),
        "gemini" => Ok(ModelApi::Gemini),
        _ => Err(format!("there is no API `{text}`; there are `messages`, `chat`, `responses` and `gemini`")),
    }
}

fn text(table: &Table, key: &str) -> Result<Option<String>, String> {
    match table.get(key) {
        None => Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => Err(format!("`{key}` is empty")),
        Some(Value::String(text)) => Ok(Some(text.trim().to_owned())),
        Some(other) => Err(format!("`{key}` must be a text, not a {}", other.type_str())),
    }
}

/// The name of an environment variable. Text that is no valid name may be a secret, so the error does not show it.
fn variable(table: &Table, key: &str) -> Result<Option<String>, String> {
    let name = text(table, key)?;
    let is_name = |name: &String| {
        !name.starts_with(|first: char| first.is_ascii_digit())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match name {
        Some(name) if !is_name(&name) => {
            Err(format!("`{key}` must be the name of an environment variable, and not the key itself"))
        }
        name => Ok(name),
    }
}

fn names(table: &Table, key: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("`{key}` must be a list of names of models");
    match table.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(names)) => {
            names.iter().map(|name| name.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

fn members<'t>(table: &'t Table, key: &str) -> Result<impl Iterator<Item = (&'t String, &'t Value)>, String> {
    match table.get(key) {
        None => Ok(None.into_iter().flatten()),
        Some(Value::Table(members)) => Ok(Some(members.iter()).into_iter().flatten()),
        Some(other) => Err(format!("`{key}` must be a table, not a {}", other.type_str())),
    }
}

fn max_tokens(table: &Table) -> Result<Option<u32>, String> {
    let wrong = "`max_tokens` must be a whole number of at least 1";
    match table.get("max_tokens") {
        None => Ok(None),
        Some(Value::Integer(count)) => {
            u32::try_from(*count).ok().filter(|count| *count > 0).map(Some).ok_or_else(|| wrong.to_owned())
        }
        Some(_) => Err(wrong.to_owned()),
    }
}

/// The size of the context in tokens. It must have room for a prompt and a response.
fn context_length(table: &Table) -> Result<Option<u64>, String> {
    let wrong = "`context_length` must be a whole number of at least 1024 tokens";
    match table.get("context_length") {
        None => Ok(None),
        Some(Value::Integer(tokens)) => u64::try_from(*tokens)
            .ok()
            .filter(|tokens| *tokens >= 1024)
            .map(Some)
            .ok_or_else(|| wrong.to_owned()),
        Some(_) => Err(wrong.to_owned()),
    }
}

/// The price in dollars for a million tokens. Cached tokens cost the same as input, unless the file says otherwise.
fn price(table: &Table) -> Result<Option<TokenPrice>, String> {
    const KEYS: [&str; 4] = ["input", "output", "cache_read", "cache_write"];
    let prices: BTreeMap<_, _> = members(table, "price")?.collect();
    if prices.is_empty() {
        return Ok(None);
    }
    if let Some(other) = prices.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("`price` has no `{other}`; it has {}", KEYS.join(", ")));
    }
    let micros = |key: &str| -> Result<Option<u64>, String> {
        let Some(value) = prices.get(&key.to_owned()) else { return Ok(None) };
        #[expect(clippy::cast_precision_loss, reason = "a number that is so large is refused")]
        let dollars = match value {
            Value::Integer(dollars) => *dollars as f64,
            Value::Float(dollars) => *dollars,
            other => return Err(format!("`price`: `{key}` must be a number, not a {}", other.type_str())),
        };
        if !(0.0..=MAX_PRICE).contains(&dollars) {
            return Err(format!("`price`: `{key}` must be dollars for a million tokens, from 0"));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was checked")]
        Ok(Some((dollars * 1_000_000.0).round() as u64))
    };
    let needed = |key: &str| micros(key)?.ok_or_else(|| format!("`price` needs `{key}`"));
    let (input, output) = (needed("input")?, needed("output")?);
    let cache_read = micros("cache_read")?.unwrap_or(input);
    Ok(Some(TokenPrice { input, output, cache_read, cache_write: micros("cache_write")?.unwrap_or(input) }))
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
        parse(&toml::from_str(text).unwrap())
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
            ("a = 1", "`a` must be a table: write `[models.a]`"),
            ("[a]", "`a`: `api` is missing"),
            ("[a]\napi = 'grpc'", "`a`: there is no API `grpc`; there are `messages`"),
            ("[a]\napi = 'chat'\nbase_uri = 'x'", "`a`: there is no `base_uri`, did you mean `base_url`?"),
            ("[a]\napi = 'chat'\nmodel = ' '", "`model` is empty"),
            ("[a]\napi = 'chat'\nmodel = 3", "`model` must be a text, not a integer"),
            ("[a]\napi = 'chat'\nmax_tokens = 0", "at least 1"),
            ("[a]\napi = 'chat'\ncontext_length = 10", "at least 1024 tokens"),
            (
                "[a]\napi = 'chat'\nkey = 'sk-1'",
                "there is no `key`: put the key into an environment variable",
            ),
            (
                "[a]\napi = 'chat'\nkey_env = 'sk-1'",
                "`key_env` must be the name of an environment variable, and not",
            ),
            ("[a]\napi = 'chat'\nfallback = ['nosuch']", "`nosuch` is neither configured nor `VENDOR:NAME`"),
            ("[a]\napi = 'chat'\nheaders = { a = 1 }", "`headers`: `a` must be a text"),
            ("[a]\napi = 'chat'\nbody = { a = nan }", "`body`: JSON has no number NaN"),
            ("[a]\napi = 'chat'\nbody = { a = 2026-01-01 }", "JSON has no dates"),
            ("[a]\napi = 'chat'\nprice = { input = 1 }", "`price` needs `output`"),
            ("[a]\napi = 'chat'\nprice = { input = -1, output = 1 }", "from 0"),
            ("[a]\napi = 'chat'\nprice = { in = 1 }", "`price` has no `in`; it has input"),
            ("[a]\napi = 'chat'\nparallel_tool_calls = 1", "`true` or `false`"),
            ("[a]\napi = 'chat'\nfallback = ['a']", "names the model itself"),
            ("[a]\napi = 'chat'\nfallback = [1]", "a list of names"),
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
