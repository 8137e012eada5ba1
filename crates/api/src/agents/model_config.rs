//! The model of an agent: its name, effort and speed.

use serde::{Deserialize, Serialize};

use crate::RequestError;
use crate::common::input::Input;

/// The longest name of a model, in characters.
const MAX_MODEL_NAME: usize = 256;

/// A model and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The name of the model.
    pub id: String,
    /// How hard the model works on each call; null for the model's own default.
    pub effort: Option<Effort>,
    /// Always null: this server does not offer regions.
    pub inference_geo: Option<String>,
    /// How fast output is generated, for models with a choice.
    pub speed: Option<Speed>,
}

/// How hard a model works on each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Effort {
    /// As little effort as possible.
    Low,
    /// A balance of effort and speed.
    Medium,
    /// Thorough reasoning.
    High,
    /// More than `high`.
    Xhigh,
    /// As much effort as the model can make.
    Max,
}

/// How fast output is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    /// At the usual price.
    Standard,
    /// At a higher price.
    Fast,
}

const EFFORTS: [(&str, Effort); 5] = [
    ("low", Effort::Low),
    ("medium", Effort::Medium),
    ("high", Effort::High),
    ("xhigh", Effort::Xhigh),
    ("max", Effort::Max),
];

impl Effort {
    /// The level as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        EFFORTS[self as usize].0
    }

    fn read(input: Input<'_>) -> Result<Self, RequestError> {
        if input.is_string() {
            return input.one_of(&EFFORTS);
        }
        input.read_object(|object| object.kind(&EFFORTS))
    }
}

impl ModelConfig {
    /// Creates the configuration for the model of this name, with the model's own defaults.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), effort: None, inference_geo: None, speed: Some(Speed::Standard) }
    }

    /// Reads a name, or an object with a name.
    pub(crate) fn read(input: Input<'_>) -> Result<Self, RequestError> {
        if input.is_string() {
            return input.text(1..=MAX_MODEL_NAME).map(Self::new);
        }
        let mut object = input.object()?;
        let mut model = Self::new(object.required("id")?.text(1..=MAX_MODEL_NAME)?);
        model.effort = object.optional("effort").map(Effort::read).transpose()?;
        if let Some(speed) = object.optional("speed") {
            model.speed = Some(speed.one_of(&[("standard", Speed::Standard), ("fast", Speed::Fast)])?);
        }
        object.unsupported("inference_geo", "regions for inference")?;
        object.finish()?;
        Ok(model)
    }
}
