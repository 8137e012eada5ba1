//! [`ModelTarget`]: which service a model name belongs to, and how to reach it.
//!
//! A name is a configured one (`[models.NAME]`), or `VENDOR:NAME`, or a name of the Messages API.

use std::collections::BTreeMap;
use std::fmt;

use conjure_conversation::ModelApi;
use conjure_skill::closest_match;

use crate::config::{Config, MODEL_KEYS, ModelSettings, ProcessEnv};
use crate::models::address::{ollama_url, printable_address, same_server};

/// The base URL of OpenAI.
const OPENAI: &str = "https://api.openai.com/v1";
/// The base URL of Gemini. It contains the version of the API.
const GEMINI: &str = "https://generativelanguage.googleapis.com/v1";
/// The host and port where Ollama listens by default.
const OLLAMA_HOST: &str = "127.0.0.1:11434";
/// The base URL of the Messages API.
const ANTHROPIC: &str = "https://api.anthropic.com";

/// A service with a known vendor name. `VENDOR:NAME` needs no configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vendor {
    Anthropic,
    OpenAi,
    Gemini,
    Ollama,
}

const VENDORS: [(&str, Vendor); 4] = [
    ("anthropic", Vendor::Anthropic),
    ("openai", Vendor::OpenAi),
    ("gemini", Vendor::Gemini),
    ("ollama", Vendor::Ollama),
];

/// The service behind a model name, and how to reach it. It contains the name of the key's variable, but not the key.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelTarget {
    /// The requested name. Sessions record it.
    pub name: String,
    /// The service's name of the model.
    pub model: String,
    /// The address of the service.
    pub base_url: String,
    /// The source of the key for the service.
    pub key: KeyVariable,
    /// The configured settings. `api` is the API of the service.
    pub settings: ModelSettings,
}

/// Where the key of a service comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyVariable {
    /// No key is sent.
    None,
    /// The service needs the key in this environment variable.
    Required(String),
    /// The key in this environment variable is sent if it is set.
    Optional(String),
}

/// The reason why no service belongs to a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelTargetError {
    /// The name is empty.
    #[error("the name of the model is empty")]
    Empty,
    /// The name contains only a vendor.
    #[error("`{0}` names no model")]
    NoModel(String),
    /// The name has the form `VENDOR:NAME`, but there is no such vendor. It is not sent to Anthropic, because the
    /// Messages API has no such names.
    #[error("there is no model `{name}`: `{vendor}` is neither configured nor one of {}", vendor_names())]
    UnknownVendor {
        /// The requested name.
        name: String,
        /// The text before the colon.
        vendor: String,
        /// The most similar vendor, if there is one.
        suggestion: Option<&'static str>,
    },
    /// The variable `OLLAMA_HOST` is not a valid address.
    #[error("the environment variable OLLAMA_HOST cannot be used: `{0}` is not a host and a port")]
    OllamaHost(String),
}

impl ModelTarget {
    /// Finds the service for this name. The configured names are tried first, then `VENDOR:NAME`, then the Messages API.
    ///
    /// # Errors
    /// If the name is empty, or a variable with an address cannot be used.
    pub fn of_name(name: &str, config: &Config, environment: &ProcessEnv) -> Result<Self, ModelTargetError> {
        let name = name.trim();
        if let Some(settings) = config.models().get(name) {
            return Self::configured(name, settings, config, environment);
        }
        let (vendor, model) = name
            .split_once(':')
            .and_then(|(vendor, model)| Some((find_vendor(vendor)?, model)))
            .unwrap_or((Vendor::Anthropic, name));
        if model.trim().is_empty() {
            return Err(match name {
                "" => ModelTargetError::Empty,
                vendor => ModelTargetError::NoModel(vendor.to_owned()),
            });
        }
        let base_url = vendor.base_url(config, environment)?;
        if let (Vendor::Anthropic, Some((before, _))) = (vendor, model.split_once(':'))
            && same_server(&base_url, ANTHROPIC)
        {
            return Err(ModelTargetError::UnknownVendor {
                name: name.to_owned(),
                vendor: before.to_owned(),
                suggestion: closest_match(before, VENDORS.iter().map(|(vendor, _)| *vendor)),
            });
        }
        let settings = ModelSettings { model: Some(model.trim().to_owned()), ..vendor.settings(environment) };
        let key = vendor.key(&base_url);
        Ok(Self { name: name.to_owned(), model: model.trim().to_owned(), base_url, key, settings })
    }

    fn configured(
        name: &str,
        settings: &ModelSettings,
        config: &Config,
        environment: &ProcessEnv,
    ) -> Result<Self, ModelTargetError> {
        let vendor = match settings.api {
            ModelApi::Messages => Vendor::Anthropic,
            ModelApi::Gemini => Vendor::Gemini,
            _ => Vendor::OpenAi,
        };
        let usual = vendor.base_url(config, environment)?;
        let base_url = settings.base_url.clone().unwrap_or_else(|| usual.clone());
        // The paths of the Messages API already begin with `/v1`.
        let base_url = match (settings.api, base_url.trim_end_matches('/').strip_suffix("/v1")) {
            (ModelApi::Messages, Some(base_url)) => base_url.to_owned(),
            _ => base_url,
        };
        let key = match &settings.key_env {
            Some(variable) => KeyVariable::Required(variable.clone()),
            // The vendor's key is sent only to the vendor, and to the address in the vendor's own variable.
            None if same_server(&base_url, &usual) || same_server(&base_url, vendor.address()) => {
                vendor.key(&base_url)
            }
            None => KeyVariable::None,
        };
        Ok(Self {
            name: name.to_owned(),
            model: settings.model.clone().unwrap_or_else(|| name.to_owned()),
            base_url,
            key,
            settings: settings.clone(),
        })
    }

    /// The Messages API of Anthropic, at the configured address.
    #[cfg(feature = "anthropic")]
    pub(crate) fn anthropic(config: &Config) -> Self {
        let base_url = config.base_url().unwrap_or(ANTHROPIC).to_owned();
        Self {
            name: "(any)".to_owned(),
            model: String::new(),
            key: Vendor::Anthropic.key(&base_url),
            base_url,
            settings: ModelSettings::new(ModelApi::Messages),
        }
    }

    /// Whether the name itself selects a service: it is configured, or begins with a vendor.
    #[cfg(feature = "model-http")]
    pub(crate) fn names_service(name: &str, config: &Config) -> bool {
        let vendor = || name.split_once(':').and_then(|(vendor, _)| find_vendor(vendor));
        config.models().contains_key(name) || vendor().is_some()
    }

    /// All secrets that a request to a service may contain, by name: the keys in the environment, and the configured
    /// headers that are secret. If two models have different values for a header, the second one has a number in its name.
    #[must_use]
    pub fn secrets(config: &Config, environment: &ProcessEnv) -> BTreeMap<String, String> {
        let configured = config.models().values().filter_map(|settings| settings.key_env.as_deref());
        let keys = configured.chain(MODEL_KEYS);
        let keys = keys.filter_map(|name| Some((name.to_owned(), environment.named(name)?)));
        let headers = config.models().values().flat_map(ModelSettings::secret_headers);
        let mut secrets: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in headers.chain(keys) {
            let (mut label, mut count) = (name.clone(), 1);
            while secrets.get(&label).is_some_and(|known| *known != value) {
                count += 1;
                label = format!("{name} {count}");
            }
            secrets.insert(label, value);
        }
        secrets
    }

    /// The address of the service, for people: without user name, password and query.
    #[must_use]
    pub fn address(&self) -> String {
        printable_address(&self.base_url)
    }

    /// The API of the service.
    #[must_use]
    pub const fn api(&self) -> ModelApi {
        self.settings.api
    }
}

impl Vendor {
    /// The default settings for the vendor.
    fn settings(self, environment: &ProcessEnv) -> ModelSettings {
        ModelSettings::new(match self {
            Self::Anthropic => ModelApi::Messages,
            // Only OpenAI itself certainly has the Responses API.
            Self::OpenAi
                if environment.named("OPENAI_BASE_URL").is_none_or(|url| same_server(&url, OPENAI)) =>
            {
                ModelApi::Responses
            }
            Self::OpenAi | Self::Ollama => ModelApi::Chat,
            Self::Gemini => ModelApi::Gemini,
        })
    }

    /// The vendor's own address.
    const fn address(self) -> &'static str {
        match self {
            Self::Anthropic => ANTHROPIC,
            Self::OpenAi => OPENAI,
            Self::Gemini => GEMINI,
            Self::Ollama => "",
        }
    }

    fn base_url(self, config: &Config, environment: &ProcessEnv) -> Result<String, ModelTargetError> {
        Ok(match self {
            Self::Anthropic => config.base_url().unwrap_or(ANTHROPIC).to_owned(),
            Self::OpenAi => environment.named("OPENAI_BASE_URL").unwrap_or_else(|| OPENAI.to_owned()),
            Self::Gemini => GEMINI.to_owned(),
            Self::Ollama => {
                let host = environment.named("OLLAMA_HOST").unwrap_or_else(|| OLLAMA_HOST.to_owned());
                ollama_url(&host).ok_or(ModelTargetError::OllamaHost(host))?
            }
        })
    }

    fn key(self, base_url: &str) -> KeyVariable {
        match self {
            Self::Anthropic => KeyVariable::Required("ANTHROPIC_API_KEY".to_owned()),
            Self::OpenAi if same_server(base_url, OPENAI) => {
                KeyVariable::Required("OPENAI_API_KEY".to_owned())
            }
            Self::OpenAi => KeyVariable::Optional("OPENAI_API_KEY".to_owned()),
            Self::Gemini => KeyVariable::Required("GEMINI_API_KEY".to_owned()),
            Self::Ollama => KeyVariable::None,
        }
    }
}

/// The names of the vendors, for messages.
fn vendor_names() -> String {
    VENDORS.map(|(name, _)| name).join(", ")
}

fn find_vendor(name: &str) -> Option<Vendor> {
    VENDORS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, vendor)| *vendor)
}

impl fmt::Display for ModelTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.model, self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn target(name: &str, pairs: &[(&str, &str)]) -> ModelTarget {
        ModelTarget::of_name(name, &Config::default(), &ProcessEnv::from_pairs(pairs.iter().copied()))
            .unwrap()
    }

    fn check(name: &str, pairs: &[(&str, &str)], api: ModelApi, model: &str, url: &str, key: &KeyVariable) {
        let target = target(name, pairs);
        let of_target = (target.api(), target.model.as_str(), target.base_url.as_str(), &target.key);
        assert_eq!(of_target, (api, model, url, key), "{name}");
    }

    #[test]
    fn a_vendor_needs_no_configuration() {
        let required = |name: &str| KeyVariable::Required(name.to_owned());
        let optional = |name: &str| KeyVariable::Optional(name.to_owned());
        let (anthropic, openai) = (required("ANTHROPIC_API_KEY"), required("OPENAI_API_KEY"));
        check("claude-x", &[], ModelApi::Messages, "claude-x", ANTHROPIC, &anthropic);
        check("anthropic:claude-x", &[], ModelApi::Messages, "claude-x", ANTHROPIC, &anthropic);
        check("OpenAI:gpt-x", &[], ModelApi::Responses, "gpt-x", OPENAI, &openai);
        check("openai:gpt-x", &[], ModelApi::Responses, "gpt-x", OPENAI, &openai);
        let gateway = [("OPENAI_BASE_URL", "http://localhost:8000/v1")];
        let url = "http://localhost:8000/v1";
        check("openai:m", &gateway, ModelApi::Chat, "m", url, &optional("OPENAI_API_KEY"));
        check("gemini:flash", &[], ModelApi::Gemini, "flash", GEMINI, &required("GEMINI_API_KEY"));
        let url = "http://127.0.0.1:11434/v1";
        check("ollama:qwen3:8b", &[], ModelApi::Chat, "qwen3:8b", url, &KeyVariable::None);
    }

    #[test]
    fn headers_of_the_same_name_are_all_secrets() {
        let model = |key: &str| ModelSettings {
            headers: [("x-api-key".to_owned(), key.to_owned())].into(),
            ..ModelSettings::new(ModelApi::Chat)
        };
        let models = [("a", model("s3cret-a")), ("b", model("s3cret-b")), ("c", model("s3cret-a"))];
        let models = models.into_iter().map(|(name, settings)| (name.to_owned(), settings)).collect();
        let config = Config::default().with(Settings { models, ..Settings::default() }).unwrap();
        let secrets: Vec<_> = ModelTarget::secrets(&config, &ProcessEnv::default()).into_values().collect();
        assert_eq!(secrets, ["s3cret-a", "s3cret-b"]);
    }

    #[test]
    fn a_host_of_ollama_that_is_none_is_told() {
        let environment = ProcessEnv::from_pairs([("OLLAMA_HOST", "ftp://box")]);
        let error = ModelTarget::of_name("ollama:m", &Config::default(), &environment).unwrap_err();
        assert_eq!(error, ModelTargetError::OllamaHost("ftp://box".to_owned()));
    }

    #[test]
    fn a_configured_name_wins_and_the_vendors_key_goes_to_the_vendor_alone() {
        let local = ModelSettings {
            base_url: Some("http://localhost:8000/v1".to_owned()),
            ..ModelSettings::new(ModelApi::Chat)
        };
        let own = ModelSettings { key_env: Some("MY_KEY".to_owned()), ..local.clone() };
        let plain = ModelSettings::new(ModelApi::Responses);
        let models = [("claude-x", local), ("own", own), ("gpt-x", plain)];
        let models = models.into_iter().map(|(name, settings)| (name.to_owned(), settings)).collect();
        let config = Config::default().with(Settings { models, ..Settings::default() }).unwrap();
        let find = |name| ModelTarget::of_name(name, &config, &ProcessEnv::default()).unwrap();
        assert_eq!((find("claude-x").api(), find("claude-x").key), (ModelApi::Chat, KeyVariable::None));
        assert_eq!(find("own").key, KeyVariable::Required("MY_KEY".to_owned()));
        assert_eq!(find("gpt-x").key, KeyVariable::Required("OPENAI_API_KEY".to_owned()));
        assert_eq!(find("gpt-x").base_url, OPENAI);
        assert_eq!(find("other").api(), ModelApi::Messages);
        // The vendor's own address in other words has the vendor's key; a path of `/v1` is the client's own.
        let with = |api, url: &str| {
            let settings = ModelSettings { base_url: Some(url.to_owned()), ..ModelSettings::new(api) };
            let models = [("m".to_owned(), settings)].into();
            let config = Config::default().with(Settings { models, ..Settings::default() }).unwrap();
            ModelTarget::of_name("m", &config, &ProcessEnv::default()).unwrap()
        };
        let openai = with(ModelApi::Chat, "https://api.openai.com/v1/");
        assert_eq!(openai.key, KeyVariable::Required("OPENAI_API_KEY".to_owned()));
        assert_eq!(with(ModelApi::Messages, "http://localhost:1/v1/").base_url, "http://localhost:1");
        assert_eq!(with(ModelApi::Chat, "http://u:p@h:1/v1?k=s").to_string(), "m at http://h:1/v1");
    }

    #[test]
    fn a_name_without_a_model_is_refused() {
        let find = |name| ModelTarget::of_name(name, &Config::default(), &ProcessEnv::default());
        for name in ["", " "] {
            assert_eq!(find(name), Err(ModelTargetError::Empty));
        }
        assert_eq!(
            find("olama:qwen3").unwrap_err().to_string(),
            "there is no model `olama:qwen3`: `olama` is neither configured nor one of anthropic, openai, gemini, ollama"
        );
        for name in ["openai:", "gemini: "] {
            assert_eq!(find(name), Err(ModelTargetError::NoModel(name.trim().to_owned())));
        }
    }
}
