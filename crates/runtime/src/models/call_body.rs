//! Translates the settings of a call to the settings of a model, in the terms of the model's API.

use conjure_conversation::ModelApi;
use serde_json::{Map, Value, json};

use crate::config::ModelSettings;
use crate::models::call_settings::{CallSettings, ToolChoice};

/// The longest tool name of a tool choice. The clients of other APIs shorten longer names.
const MAX_TOOL_NAME: usize = 64;

impl CallSettings {
    /// Writes these settings into the settings of a model.
    ///
    /// # Errors
    /// The setting that the API of the model lacks, as text.
    pub(crate) fn apply(&self, settings: &mut ModelSettings) -> Result<(), String> {
        if let ToolChoice::Tool(name) = &self.tool_choice {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            if name.len() > MAX_TOOL_NAME || !name.bytes().all(is_plain) {
                return Err(format!(
                    "tool_choice.name: give a name of at most {MAX_TOOL_NAME} ASCII letters, digits, `_` and `-`"
                ));
            }
        }
        settings.max_tokens = self.max_tokens.or(settings.max_tokens);
        match settings.api {
            ModelApi::Messages => self.apply_messages(settings),
            ModelApi::Chat => self.apply_chat(settings)?,
            ModelApi::Responses => self.apply_responses(settings)?,
            ModelApi::Gemini => self.apply_gemini(settings)?,
            _ => {
                if let Some(name) = self.first_unsupported_setting() {
                    return Err(lacks("this API", name));
                }
            }
        }
        Ok(())
    }

    fn apply_messages(&self, settings: &mut ModelSettings) {
        let body = &mut settings.body;
        set(body, "temperature", self.temperature);
        set(body, "top_p", self.top_p);
        set(body, "top_k", self.top_k);
        set_list(body, "stop_sequences", &self.stop_sequences);
        edit_object(body, "output_config", |config| set(config, "effort", self.effort.as_deref()));
        set(body, "speed", self.fast.then_some("fast"));
        if let Some(schema) = &self.output_schema {
            let format = json!({"type": "json_schema", "schema": schema});
            edit_object(body, "output_config", |config| set(config, "format", Some(format)));
        }
        let mut choice = match &self.tool_choice {
            ToolChoice::Auto if self.disable_parallel_tool_use => json!({"type": "auto"}),
            ToolChoice::Auto => return,
            ToolChoice::Any => json!({"type": "any"}),
            ToolChoice::None => json!({"type": "none"}),
            ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
        };
        // The settings of the model would write a tool choice of their own.
        let configured = settings.parallel_tool_calls.take() == Some(false);
        if self.tool_choice != ToolChoice::None && (self.disable_parallel_tool_use || configured) {
            choice["disable_parallel_tool_use"] = true.into();
        }
        body.insert("tool_choice".to_owned(), choice);
    }

    fn apply_chat(&self, settings: &mut ModelSettings) -> Result<(), String> {
        if self.top_k.is_some() {
            return Err(lacks("Chat Completions", "top_k"));
        }
        let body = &mut settings.body;
        set(body, "temperature", self.temperature);
        set(body, "top_p", self.top_p);
        set_list(body, "stop", &self.stop_sequences);
        let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
        set(body, "tool_choice", self.choice_of_openai(tool));
        if let Some(schema) = &self.output_schema {
            let format = json!({"type": "json_schema", "json_schema": {"name": "output", "schema": schema}});
            body.insert("response_format".to_owned(), format);
        }
        if self.disable_parallel_tool_use {
            settings.parallel_tool_calls = Some(false);
        }
        Ok(())
    }

    fn apply_responses(&self, settings: &mut ModelSettings) -> Result<(), String> {
        if self.top_k.is_some() {
            return Err(lacks("Responses", "top_k"));
        }
        if !self.stop_sequences.is_empty() {
            return Err(lacks("Responses", "stop_sequences"));
        }
        let body = &mut settings.body;
        set(body, "temperature", self.temperature);
        set(body, "top_p", self.top_p);
        set(body, "tool_choice", self.choice_of_openai(|name| json!({"type": "function", "name": name})));
        edit_object(body, "reasoning", |reasoning| set(reasoning, "effort", self.effort.as_deref()));
        if let Some(schema) = &self.output_schema {
            let format = json!({"type": "json_schema", "name": "output", "schema": schema, "strict": false});
            edit_object(body, "text", |text| set(text, "format", Some(format)));
        }
        if self.disable_parallel_tool_use {
            settings.parallel_tool_calls = Some(false);
        }
        Ok(())
    }

    fn apply_gemini(&self, settings: &mut ModelSettings) -> Result<(), String> {
        if self.disable_parallel_tool_use {
            return Err(lacks("Gemini", "tool_choice.disable_parallel_tool_use"));
        }
        let body = &mut settings.body;
        edit_object(body, "generationConfig", |config| {
            set(config, "temperature", self.temperature);
            set(config, "topP", self.top_p);
            set(config, "topK", self.top_k);
            set_list(config, "stopSequences", &self.stop_sequences);
            if let Some(schema) = &self.output_schema {
                set(config, "responseMimeType", Some("application/json"));
                config.insert("responseJsonSchema".to_owned(), schema.clone());
            }
        });
        let calling = match &self.tool_choice {
            ToolChoice::Auto => return Ok(()),
            ToolChoice::Any => json!({"mode": "ANY"}),
            ToolChoice::None => json!({"mode": "NONE"}),
            ToolChoice::Tool(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
        };
        body.insert("toolConfig".to_owned(), json!({"functionCallingConfig": calling}));
        Ok(())
    }

    /// The tool choice in the form that both of OpenAI's APIs share. `tool` writes the name of a single tool.
    fn choice_of_openai(&self, tool: impl Fn(&str) -> Value) -> Option<Value> {
        match &self.tool_choice {
            ToolChoice::Auto => None,
            ToolChoice::Any => Some("required".into()),
            ToolChoice::None => Some("none".into()),
            ToolChoice::Tool(name) => Some(tool(name)),
        }
    }
}

fn lacks(api: &str, setting: &str) -> String {
    format!("{setting}: {api} has no such setting; leave it out")
}

fn set(body: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body.insert(name.to_owned(), value.into());
    }
}

fn set_list(body: &mut Map<String, Value>, name: &str, values: &[String]) {
    if !values.is_empty() {
        body.insert(name.to_owned(), values.into());
    }
}

/// Edits the object of this name. The configuration may have set members of it. Removes the object if it stays empty.
fn edit_object(body: &mut Map<String, Value>, name: &str, edit: impl FnOnce(&mut Map<String, Value>)) {
    let mut members = match body.shift_remove(name) {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    };
    edit(&mut members);
    if !members.is_empty() {
        body.insert(name.to_owned(), Value::Object(members));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> CallSettings {
        CallSettings {
            max_tokens: Some(7),
            temperature: Some(0.5),
            top_p: Some(0.25),
            top_k: Some(3),
            stop_sequences: vec!["END".to_owned()],
            tool_choice: ToolChoice::Tool("t".to_owned()),
            disable_parallel_tool_use: true,
            effort: Some("low".to_owned()),
            fast: true,
            output_schema: Some(json!({"type": "object"})),
        }
    }

    fn applied(call: &CallSettings, api: ModelApi) -> Result<ModelSettings, String> {
        let mut settings = ModelSettings::new(api);
        settings.body.insert("seed".to_owned(), 1.into());
        settings.max_tokens = Some(100);
        call.apply(&mut settings)?;
        assert_eq!(settings.max_tokens, Some(call.max_tokens.unwrap_or(100)));
        assert_eq!(settings.body.shift_remove("seed"), Some(1.into()), "what is configured stays");
        Ok(settings)
    }

    #[test]
    fn each_api_gets_them_in_its_words() {
        let messages = applied(&everything(), ModelApi::Messages).unwrap();
        let expected = json!({
            "temperature": 0.5, "top_p": 0.25, "top_k": 3, "stop_sequences": ["END"],
            "speed": "fast",
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
            "tool_choice": {"type": "tool", "name": "t", "disable_parallel_tool_use": true},
        });
        assert_eq!(Value::Object(messages.body), expected);

        let without_top_k = CallSettings { top_k: None, ..everything() };
        let chat = applied(&without_top_k, ModelApi::Chat).unwrap();
        let expected = json!({
            "temperature": 0.5, "top_p": 0.25, "stop": ["END"],
            "tool_choice": {"type": "function", "function": {"name": "t"}},
            "response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": {"type": "object"}}},
        });
        assert_eq!((Value::Object(chat.body), chat.parallel_tool_calls), (expected, Some(false)));

        let call = CallSettings { stop_sequences: Vec::new(), ..without_top_k };
        let responses = applied(&call, ModelApi::Responses).unwrap();
        let expected = json!({
            "temperature": 0.5, "top_p": 0.25, "tool_choice": {"type": "function", "name": "t"},
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "output", "schema": {"type": "object"}, "strict": false}},
        });
        assert_eq!((Value::Object(responses.body), responses.parallel_tool_calls), (expected, Some(false)));

        let call = CallSettings { disable_parallel_tool_use: false, ..everything() };
        let gemini = applied(&call, ModelApi::Gemini).unwrap();
        let expected = json!({
            "generationConfig": {
                "temperature": 0.5, "topP": 0.25, "topK": 3, "stopSequences": ["END"],
                "responseMimeType": "application/json", "responseJsonSchema": {"type": "object"},
            },
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["t"]}},
        });
        assert_eq!(Value::Object(gemini.body), expected);
    }

    #[test]
    fn nothing_is_written_where_nothing_is_set() {
        for api in [ModelApi::Messages, ModelApi::Chat, ModelApi::Responses, ModelApi::Gemini] {
            let settings = applied(&CallSettings::default(), api).unwrap();
            assert!(settings.body.is_empty() && settings.parallel_tool_calls.is_none(), "{api:?}");
        }
        let everywhere = CallSettings {
            max_tokens: Some(1),
            effort: Some("low".to_owned()),
            fast: true,
            ..CallSettings::default()
        };
        assert_eq!(everywhere.first_unsupported_setting(), None);
        let chat = applied(&everywhere, ModelApi::Chat).unwrap();
        assert!(chat.body.is_empty(), "it has no such setting for every model");
    }

    #[test]
    fn what_an_api_lacks_is_named() {
        let refused = |call: &CallSettings, api| applied(call, api).unwrap_err();
        assert!(refused(&everything(), ModelApi::Chat).starts_with("top_k: Chat Completions has"));
        let without_top_k = CallSettings { top_k: None, ..everything() };
        assert!(refused(&without_top_k, ModelApi::Responses).starts_with("stop_sequences: Responses has"));
        assert!(
            refused(&everything(), ModelApi::Gemini).starts_with("tool_choice.disable_parallel_tool_use: ")
        );
        let call =
            CallSettings { tool_choice: ToolChoice::Tool("a.b".to_owned()), ..CallSettings::default() };
        assert!(refused(&call, ModelApi::Messages).starts_with("tool_choice.name: "));
        assert_eq!(everything().first_unsupported_setting(), Some("temperature"));
    }

    /// A model whose configuration forbids parallel calls has no second choice written.
    #[test]
    fn a_choice_keeps_what_the_configuration_forbids() {
        let mut settings = ModelSettings::new(ModelApi::Messages);
        settings.parallel_tool_calls = Some(false);
        let call = CallSettings { tool_choice: ToolChoice::Any, ..CallSettings::default() };
        call.apply(&mut settings).unwrap();
        assert_eq!(settings.body["tool_choice"], json!({"type": "any", "disable_parallel_tool_use": true}));
        assert_eq!(settings.parallel_tool_calls, None);
    }
}
