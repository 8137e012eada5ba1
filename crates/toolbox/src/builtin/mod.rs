//! The four built-in tools: a call's input becomes a [`Request`], or an error that says how to mend it; a request
//! runs over an executor.

pub(crate) mod bash;
pub(crate) mod failure;
mod files;
mod view;

use std::collections::BTreeMap;

use conjure_base::Redactor;
use conjure_conversation::{Access, CallTraits};
use conjure_prompt::BuiltinTool;
use conjure_sandbox::{CallOptions, Executor, LineRange};
use serde_json::Value;

use crate::input::Fields;
use crate::limits::OutputLimits;
use crate::tool::ToolOutcome;

/// A call of a built-in tool whose input was checked. `description` is for people who read along; a call without
/// one runs all the same, and fields that are not known are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// Shows a file or folder.
    View { path: String, range: Option<LineRange> },
    /// Runs a command with `bash -c`.
    Bash { command: String },
    /// Writes a file.
    CreateFile { path: String, text: String },
    /// Replaces the one occurrence of `old`.
    StrReplace { path: String, old: String, new: String },
}

impl Request {
    /// The request of this input, or what is wrong with it.
    pub(crate) fn parse(tool: BuiltinTool, input: &Value) -> Result<Self, String> {
        let fields = Fields::of(input)?;
        Ok(match tool {
            BuiltinTool::View => Self::View { path: fields.path()?.to_owned(), range: fields.view_range()? },
            BuiltinTool::Bash => Self::Bash { command: fields.command()?.to_owned() },
            BuiltinTool::CreateFile => Self::CreateFile {
                path: fields.path()?.to_owned(),
                text: fields.text("file_text")?.to_owned(),
            },
            BuiltinTool::StrReplace => {
                let old = fields.text("old_str")?;
                if old.is_empty() {
                    return Err(
                        "field `old_str` is empty: give the text to replace, which must occur exactly once \
                                in the file"
                            .to_owned(),
                    );
                }
                Self::StrReplace {
                    path: fields.path()?.to_owned(),
                    old: old.to_owned(),
                    new: fields.optional_text("new_str")?.unwrap_or_default().to_owned(),
                }
            }
        })
    }

    /// Commands run beside each other, as people run them; writes are barriers, because one answer may write a file
    /// and then run it.
    pub(crate) const fn traits(&self) -> CallTraits {
        match self {
            Self::View { .. } => CallTraits { access: Access::Shared, idempotent: true },
            Self::Bash { .. } => CallTraits { access: Access::Shared, idempotent: false },
            // Written whole: the second time changes nothing.
            Self::CreateFile { .. } => CallTraits { access: Access::Exclusive, idempotent: true },
            // The second time may find another occurrence.
            Self::StrReplace { .. } => CallTraits { access: Access::Exclusive, idempotent: false },
        }
    }

    /// Runs it to its end; a command with these variables. What fails is an outcome too.
    pub(crate) async fn run(
        &self,
        executor: &dyn Executor,
        environment: BTreeMap<String, String>,
        limits: &OutputLimits,
        redactor: &Redactor,
        options: CallOptions,
    ) -> ToolOutcome {
        match self {
            Self::View { path, range } => view::run(executor, path, *range, limits, redactor, options).await,
            Self::Bash { command } => {
                bash::run(executor, command, environment, limits, redactor, options).await
            }
            Self::CreateFile { path, text } => files::create(executor, path, text, options).await,
            Self::StrReplace { path, old, new } => files::replace(executor, path, old, new, options).await,
        }
    }
}

#[cfg(test)]
mod tests;
