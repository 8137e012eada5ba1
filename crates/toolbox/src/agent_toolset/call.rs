//! A checked call of a tool of the toolset, and how it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Redactor};
use conjure_conversation::{AgentToolset, CallConcurrency, CallTraits, PermissionPolicy, ToolsetTool};
use conjure_sandbox::{CallOptions, Executor, LineRange};
use serde_json::Value;

use super::edit::{Edit, EditExtent};
use super::glob::Glob;
use super::grep::Grep;
use super::page_text::{is_html, page_text};
use super::shell::{ShellContext, ShellRequest, ShellSession};
use super::{edit, glob, grep, read, write};
use crate::artifacts::is_url;
use crate::limits::OutputLimits;
use crate::skills::read::render_content;
use crate::text::quote;
use crate::tool::ToolOutput;
use crate::tool_input::InputFields;

/// The maximum timeout that the model may request for its commands.
const MAX_SHELL_TIMEOUT: Duration = Duration::from_secs(600);

/// Bytes of a result that are reserved for notices.
const NOTICE_BYTES: usize = 1024;

/// The toolset of a session: its tools, their policies, and its shell.
pub(crate) struct Toolset {
    tools: AgentToolset,
    /// `None`: there is no sandbox, and only `web_fetch` works.
    executor: Option<Arc<dyn Executor>>,
    shell: ShellSession,
}

/// A call with a checked input. Unknown fields are ignored.
#[derive(Debug, Clone)]
pub(crate) enum ToolsetCall {
    Bash(ShellRequest),
    Read { path: String, range: Option<LineRange> },
    Write { path: String, content: String },
    Edit(Edit),
    Glob(Glob),
    Grep(Grep),
    WebFetch { url: String },
}

/// The context of a call: everything except its input.
pub(crate) struct ToolsetContext<'c> {
    /// Environment variables of its commands.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) limits: &'c OutputLimits,
    pub(crate) redactor: &'c Redactor,
    pub(crate) clock: &'c Arc<dyn Clock>,
    pub(crate) options: CallOptions,
}

impl Toolset {
    /// Creates a toolset with the tools that work with this executor, each with its policy. Without an executor, the only tool is
    /// `web_fetch`.
    pub(crate) fn new(tools: AgentToolset, executor: Option<Arc<dyn Executor>>) -> Self {
        let tools = if executor.is_some() {
            tools
        } else {
            let needs_sandbox = ToolsetTool::ALL.into_iter().filter(|tool| *tool != ToolsetTool::WebFetch);
            needs_sandbox.fold(tools, AgentToolset::without)
        };
        Self { tools, executor, shell: ShellSession::new() }
    }

    pub(crate) const fn tools(&self) -> &AgentToolset {
        &self.tools
    }

    /// The tool of this name, if the session has it.
    pub(crate) fn find(&self, name: &str) -> Option<ToolsetTool> {
        ToolsetTool::from_name(name).filter(|tool| self.tools.policy(*tool).is_some())
    }

    /// Whether a person must decide on each call of this tool.
    pub(crate) fn asks_for(&self, call: &ToolsetCall) -> bool {
        self.tools.policy(call.tool()) == Some(PermissionPolicy::AlwaysAsk)
    }

    pub(crate) fn executor(&self) -> Option<&dyn Executor> {
        self.executor.as_deref()
    }

    /// Runs a call. A failure is a result too.
    pub(crate) async fn run(&self, call: &ToolsetCall, context: ToolsetContext<'_>) -> ToolOutput {
        let ToolsetContext { environment, limits, redactor, clock, options } = context;
        let Some(executor) = self.executor() else { return no_fetch() };
        let budget = limits.view.saturating_sub(NOTICE_BYTES);
        match call {
            ToolsetCall::Bash(request) => {
                let context = ShellContext { executor, environment, limits, redactor, clock, options };
                self.shell.run(request, context).await
            }
            ToolsetCall::Read { path, range } => {
                read::run(executor, path, *range, limits, redactor, options).await
            }
            ToolsetCall::Write { path, content } => write::run(executor, path, content, options).await,
            ToolsetCall::Edit(edit) => edit::run(executor, edit, options).await,
            ToolsetCall::Glob(glob) => glob::run(executor, glob, budget, options).await,
            ToolsetCall::Grep(grep) => grep::run(executor, grep, budget, redactor, options).await,
            // With artifacts, the URL was resolved before the call ran.
            ToolsetCall::WebFetch { .. } => no_fetch(),
        }
    }
}

fn no_fetch() -> ToolOutput {
    ToolOutput::error("this session fetches no URLs; do without it, or tell the user")
}

impl ToolsetCall {
    /// Parses an input. The error says what is wrong and how to mend it.
    pub(crate) fn parse(tool: ToolsetTool, input: &Value) -> Result<Self, String> {
        let fields = InputFields::from_value(input)?;
        let search_path = || fields.optional_path("path");
        Ok(match tool {
            ToolsetTool::Bash => Self::Bash(shell_request(&fields)?),
            ToolsetTool::Read => {
                Self::Read { path: fields.path_field("file_path")?.to_owned(), range: fields.view_range()? }
            }
            ToolsetTool::Write => Self::Write {
                path: fields.path_field("file_path")?.to_owned(),
                content: fields.text("content")?.to_owned(),
            },
            ToolsetTool::Edit => Self::Edit(edit_of(&fields)?),
            ToolsetTool::Glob => Self::Glob(Glob::new(fields.text("pattern")?, search_path()?)?),
            ToolsetTool::Grep => Self::Grep(Grep::new(fields.text("pattern")?, search_path()?)?),
            ToolsetTool::WebFetch => {
                let url = fields.text("url")?.trim();
                if !is_url(url) {
                    return Err(format!(
                        "field `url` is `{}`, which is no URL: it must begin with `https://`",
                        quote(url)
                    ));
                }
                Self::WebFetch { url: url.to_owned() }
            }
        })
    }

    const fn tool(&self) -> ToolsetTool {
        match self {
            Self::Bash(_) => ToolsetTool::Bash,
            Self::Read { .. } => ToolsetTool::Read,
            Self::Write { .. } => ToolsetTool::Write,
            Self::Edit(_) => ToolsetTool::Edit,
            Self::Glob(_) => ToolsetTool::Glob,
            Self::Grep(_) => ToolsetTool::Grep,
            Self::WebFetch { .. } => ToolsetTool::WebFetch,
        }
    }

    /// The file that the call changes, or reads.
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Read { path, .. } | Self::Write { path, .. } => Some(path),
            Self::Edit(edit) => Some(&edit.path),
            _ => None,
        }
    }

    /// The timeout that the model requested, if any.
    pub(crate) const fn timeout(&self) -> Option<Duration> {
        match self {
            Self::Bash(request) => request.timeout,
            _ => None,
        }
    }

    /// How the call may be scheduled. Commands share one shell, so they run in order, as writes do.
    pub(crate) const fn traits(&self) -> CallTraits {
        let (concurrency, idempotent) = match self {
            Self::Bash(_) | Self::Edit(_) => (CallConcurrency::Exclusive, false),
            Self::Write { .. } => (CallConcurrency::Exclusive, true),
            Self::Read { .. } | Self::Glob(_) | Self::Grep(_) | Self::WebFetch { .. } => {
                (CallConcurrency::Shared, true)
            }
        };
        CallTraits { concurrency, idempotent }
    }
}

fn shell_request(fields: &InputFields<'_>) -> Result<ShellRequest, String> {
    let restart = fields.boolean("restart")?;
    let command = match fields.optional_text("command")? {
        None if restart => None,
        Some(command) if restart && command.trim().is_empty() => None,
        // `command` reports a missing or empty command.
        _ => Some(fields.command()?.to_owned()),
    };
    let timeout = match fields.whole_number("timeout_ms")? {
        None => None,
        Some(0) => {
            return Err("field `timeout_ms` is 0: give a time in milliseconds, or leave it out".to_owned());
        }
        Some(given) if Duration::from_millis(given) > MAX_SHELL_TIMEOUT => {
            return Err(format!(
                "field `timeout_ms` is {given}, and the maximum is {}: run what takes longer in the background",
                MAX_SHELL_TIMEOUT.as_millis()
            ));
        }
        Some(given) => Some(Duration::from_millis(given)),
    };
    Ok(ShellRequest { command, restart, timeout })
}

fn edit_of(fields: &InputFields<'_>) -> Result<Edit, String> {
    let (old, new) = (fields.text("old_string")?, fields.text("new_string")?);
    if old.is_empty() {
        return Err(
            "field `old_string` is empty: give the text to replace; a new file is written with `write`"
                .to_owned(),
        );
    }
    if old == new {
        return Err("fields `old_string` and `new_string` are equal: nothing would change".to_owned());
    }
    let extent = if fields.boolean("replace_all")? { EditExtent::All } else { EditExtent::Only };
    Ok(Edit {
        path: fields.path_field("file_path")?.to_owned(),
        old: old.to_owned(),
        new: new.to_owned(),
        extent,
    })
}

/// The result of a fetch.
pub(crate) fn fetched(url: &str, bytes: &[u8], limits: &OutputLimits, redactor: &Redactor) -> ToolOutput {
    match std::str::from_utf8(bytes) {
        Ok(html) if is_html(bytes) => render_content(url, page_text(html).as_bytes(), None, limits, redactor),
        _ => render_content(url, bytes, None, limits, redactor),
    }
}

impl fmt::Debug for Toolset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toolset")
            .field("tools", &self.tools)
            .field("shell", &self.shell)
            .finish_non_exhaustive()
    }
}
