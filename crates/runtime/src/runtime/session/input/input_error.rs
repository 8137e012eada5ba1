//! [`InputError`]: an error in the inputs of a session.

use conjure_base::MIN_SECRET_BYTES;
use conjure_skill::InputProblem;

/// An error in the inputs of a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The value does not fit the schema in the skill's manifest.
    #[error("the skill `{skill}`: {problem}")]
    Skill {
        /// The name of the skill.
        skill: String,
        /// What is wrong.
        problem: InputProblem,
    },
    /// No skill of the session has such an input.
    #[error("no skill of the session has an input `{name}`{}", nearest.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default())]
    Unknown {
        /// The unknown name.
        name: String,
        /// The most similar known name, if there is one.
        nearest: Option<String>,
    },
    /// Two names map to the same variable of commands.
    #[error("`{first}` and `{second}` would both be the variable `{variable}`")]
    SameVariable {
        /// The variable.
        variable: String,
        /// The variable or input that has it.
        first: String,
        /// The input that would have it, too.
        second: String,
    },
    /// A part of a sensitive value is too short to redact, because it would occur everywhere.
    #[error(
        "the input `{name}` is sensitive, and a text or number of fewer than {MIN_SECRET_BYTES} bytes in it is too short to be redacted"
    )]
    TooShort {
        /// The name of the input.
        name: String,
    },
    /// No variable can hold the value.
    #[error("the input `{name}` has a NUL character, which no variable can hold")]
    Nul {
        /// The name of the input.
        name: String,
    },
}
