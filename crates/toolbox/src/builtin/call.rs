//! A checked call of a built-in tool, and how it runs on an executor.

use super::view::ViewStyle;
use super::{bash, view, write};
use crate::limits::OutputLimits;
use crate::tool::ToolOutput;
use crate::tool_input::InputFields;
use conjure_base::Redactor;
use conjure_conversation::{CallConcurrency, CallTraits};
use conjure_prompt::BuiltinTool;
use conjure_sandbox::{CallOptions, Executor, LineRange};
use serde_json::Value;
use std::collections::BTreeMap;

/// A call of a built-in tool with a checked input. The field `description` is for human readers and optional; unknown fields are
/// ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BuiltinCall {
    /// Shows a file or directory.
    View { path: String, range: Option<LineRange> },
    /// Runs a command with `bash -c`.
    Bash { command: String },
    /// Writes a file.
    CreateFile { path: String, text: String },
    /// Replaces the one occurrence of `old`.
    StrReplace { path: String, old: String, new: String },
}

impl BuiltinCall {
    /// Parses an input. The error says what is wrong and how to mend it.
    pub(crate) fn parse(tool: BuiltinTool, input: &Value) -> Result<Self, String> {
        let fields = InputFields::from_value(input)?;
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

    /// How the call may be scheduled. Commands run concurrently. Writes are barriers, because one response may write a file and then
    /// run it.
    pub(crate) const fn traits(&self) -> CallTraits {
        match self {
            Self::View { .. } => CallTraits { concurrency: CallConcurrency::Shared, idempotent: true },
            Self::Bash { .. } => CallTraits { concurrency: CallConcurrency::Shared, idempotent: false },
            // It replaces the whole file, so a repetition changes nothing.
            Self::CreateFile { .. } => {
                CallTraits { concurrency: CallConcurrency::Exclusive, idempotent: true }
            }
            // A repetition may find another occurrence.
            Self::StrReplace { .. } => {
                CallTraits { concurrency: CallConcurrency::Exclusive, idempotent: false }
            }
        }
    }

    /// Runs the call; commands get these environment variables. A failure is a result too.
    pub(crate) async fn run(
        &self,
        executor: &dyn Executor,
        environment: BTreeMap<String, String>,
        limits: &OutputLimits,
        redactor: &Redactor,
        options: CallOptions,
    ) -> ToolOutput {
        match self {
            Self::View { path, range } => {
                view::run(executor, path, *range, limits, redactor, options, &ViewStyle::BUILTIN).await
            }
            Self::Bash { command } => {
                bash::run(executor, command, environment, limits, redactor, options).await
            }
            Self::CreateFile { path, text } => write::create(executor, path, text, options).await,
            Self::StrReplace { path, old, new } => write::replace(executor, path, old, new, options).await,
        }
    }
}
