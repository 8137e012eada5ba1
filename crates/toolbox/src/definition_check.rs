//! The check of tool definitions: whether a model service accepts them.

use conjure_conversation::ToolDefinition;

/// Why a toolbox cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolboxError {
    /// The service does not accept the name.
    #[error("`{name}` cannot be a tool's name: use 1 to 128 of letters, digits, `_` and `-`")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// Two tools have one name.
    #[error("two tools have the name `{name}`: rename one of them")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The service accepts only schemas of type `object`.
    #[error("the input schema of tool `{name}` must be an object with `\"type\": \"object\"`")]
    InvalidSchema {
        /// The tool's name.
        name: String,
    },
}

/// Refuses a definition that a model service would refuse.
pub(crate) fn check_definition(definition: ToolDefinition) -> Result<ToolDefinition, ToolboxError> {
    let name = definition.name.clone();
    let fits_limits = (1..=128).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if !fits_limits {
        return Err(ToolboxError::InvalidName { name });
    }
    if definition.input_schema.get("type").and_then(|kind| kind.as_str()) != Some("object") {
        return Err(ToolboxError::InvalidSchema { name });
    }
    Ok(definition)
}
