//! The settings of a request of `POST /v1/messages` for the model's answer.

use serde_json::value::RawValue;

use crate::RequestError;
use crate::common::input::{Input, ObjectInput};

const MAX_STOP_SEQUENCES: usize = 64;
const MAX_STOP_SEQUENCE: usize = 1_024;
const MAX_NAME: usize = 128;

/// The settings for the answer of a model behind another API. Its service decides about absent ones.
#[derive(Debug, Clone, Default)]
pub struct MessageOptions {
    /// The randomness of the answer, from 0 to 1.
    pub temperature: Option<f64>,
    /// The probability mass of the likeliest tokens to sample from, from 0 to 1.
    pub top_p: Option<f64>,
    /// The number of the likeliest tokens to sample from.
    pub top_k: Option<u32>,
    /// The texts that end the answer.
    pub stop_sequences: Vec<String>,
    /// Whether the model calls tools.
    pub tool_choice: Option<MessageToolChoice>,
    /// Whether an answer may have at most one call.
    pub disable_parallel_tool_use: bool,
    /// The JSON Schema that the text of the answer must fit.
    pub output_schema: Option<Box<RawValue>>,
}

/// Whether the model calls tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageToolChoice {
    /// The model decides.
    Auto,
    /// The model must call at least one tool.
    Any,
    /// The model must not call a tool.
    None,
    /// The model must call the tool of this name.
    Tool(String),
}

impl MessageOptions {
    pub(crate) fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError> {
        let mut options = Self {
            temperature: object.optional("temperature").map(|input| input.number(0.0, 1.0)).transpose()?,
            top_p: object.optional("top_p").map(|input| input.number(0.0, 1.0)).transpose()?,
            top_k: object.optional("top_k").map(read_count).transpose()?,
            stop_sequences: object.optional("stop_sequences").map_or(Ok(Vec::new()), read_stop_sequences)?,
            ..Self::default()
        };
        if let Some(choice) = object.optional("tool_choice") {
            options.read_tool_choice(choice)?;
        }
        if let Some(config) = object.optional("output_config") {
            options.output_schema = read_output_config(config)?;
        }
        Ok(options)
    }

    fn read_tool_choice(&mut self, input: Input<'_>) -> Result<(), RequestError> {
        #[derive(Clone, Copy, PartialEq)]
        enum Kind {
            Auto,
            Any,
            None,
            Tool,
        }
        let mut object = input.object()?;
        let kinds = [("auto", Kind::Auto), ("any", Kind::Any), ("none", Kind::None), ("tool", Kind::Tool)];
        let kind = object.kind(&kinds)?;
        if kind != Kind::None {
            let disabled = object.optional("disable_parallel_tool_use");
            self.disable_parallel_tool_use = disabled.map_or(Ok(false), |disabled| disabled.boolean())?;
        }
        self.tool_choice = Some(match kind {
            Kind::Auto => MessageToolChoice::Auto,
            Kind::Any => MessageToolChoice::Any,
            Kind::None => MessageToolChoice::None,
            Kind::Tool => MessageToolChoice::Tool(object.required("name")?.text(1..=MAX_NAME)?),
        });
        object.finish()
    }
}

fn read_count(input: Input<'_>) -> Result<u32, RequestError> {
    Ok(u32::try_from(input.integer(0..=1_000_000)?).unwrap_or(u32::MAX))
}

fn read_stop_sequences(input: Input<'_>) -> Result<Vec<String>, RequestError> {
    let sequences = input.array("stop sequences", MAX_STOP_SEQUENCES)?.into_iter();
    sequences.map(|sequence| sequence.text(1..=MAX_STOP_SEQUENCE)).collect()
}

/// Reads the schema of the answer. The effort is ignored, because it is a hint to the vendor's own models.
fn read_output_config(input: Input<'_>) -> Result<Option<Box<RawValue>>, RequestError> {
    let mut object = input.object()?;
    object.take("effort");
    let schema = object.optional("format").map(|format| {
        let mut format = format.object()?;
        format.kind(&[("json_schema", ())])?;
        let schema = format.required("schema")?;
        let text = schema.verbatim()?;
        schema.object()?;
        format.finish()?;
        Ok(text)
    });
    let schema = schema.transpose()?;
    object.finish()?;
    Ok(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<MessageOptions, String> {
        let input = Input::body(text.as_bytes()).map_err(|error| error.to_string())?;
        let mut object = input.object().map_err(|error| error.to_string())?;
        MessageOptions::read(&mut object).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read() {
        let options = read(
            r#"{"temperature":0,"top_p":0.5,"top_k":40,"stop_sequences":["END"],
            "tool_choice":{"type":"tool","name":"t","disable_parallel_tool_use":true},
            "output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}}}"#,
        )
        .unwrap();
        assert_eq!((options.temperature, options.top_p, options.top_k), (Some(0.0), Some(0.5), Some(40)));
        assert_eq!(options.stop_sequences, ["END"]);
        assert_eq!(options.tool_choice, Some(MessageToolChoice::Tool("t".to_owned())));
        assert!(options.disable_parallel_tool_use);
        assert_eq!(options.output_schema.unwrap().get(), r#"{"type":"object"}"#);
        let defaults = read(r#"{"temperature":null,"output_config":{"effort":"high"}}"#).unwrap();
        assert!(
            defaults.temperature.is_none()
                && defaults.output_schema.is_none()
                && defaults.tool_choice.is_none()
        );
    }

    #[test]
    fn errors_name_the_path_of_the_field() {
        for (text, expected) in [
            (r#"{"temperature":1.5}"#, "temperature: 1.5 is not allowed; give a number from 0 to 1"),
            (r#"{"temperature":"hot"}"#, "temperature: "),
            (r#"{"top_k":-1}"#, "top_k: "),
            (r#"{"stop_sequences":[""]}"#, "stop_sequences.0: "),
            (r#"{"tool_choice":{"type":"some"}}"#, "tool_choice.type: `some` is not allowed"),
            (r#"{"tool_choice":{"type":"tool"}}"#, "tool_choice.name: "),
            (r#"{"tool_choice":{"type":"any","names":[]}}"#, "tool_choice.names: "),
            (r#"{"output_config":{"format":{"type":"xml"}}}"#, "output_config.format.type: "),
            (
                r#"{"output_config":{"format":{"type":"json_schema","schema":[]}}}"#,
                "output_config.format.schema: ",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
