//! [`InputError`]: what is wrong with the inputs of a session.

use conjure_base::MIN_SECRET_BYTES;
use conjure_skill::InputProblem;

/// An error in the inputs of a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The value does not fit the manifest of a skill.
    #[error("the skill `{skill}`: {problem}")]
    Skill {
        /// Its name.
        skill: String,
        /// What is wrong.
        problem: InputProblem,
    },
    /// No skill of the session has such an input.
    #[error("no skill of the session has an input `{name}`{}", nearest.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default())]
    Unknown {
        /// The name that was given.
        name: String,
        /// The name that may have been meant.
        nearest: Option<String>,
    },
    /// Commands would have two values by one variable.
    #[error("`{first}` and `{second}` would both be the variable `{variable}`")]
    SameVariable {
        /// The variable.
        variable: String,
        /// What has it.
        first: String,
        /// What would have it, too.
        second: String,
    },
    /// Something of a sensitive value would occur everywhere, so it cannot be redacted.
    #[error(
        "the input `{name}` is sensitive, and a text or number of fewer than {MIN_SECRET_BYTES} bytes in it is too short to be kept out of what is told"
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
