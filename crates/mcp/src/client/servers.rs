//! [`McpServers`]: all servers of a session, as a source of tools.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use conjure_base::{Redactor, lock};
use conjure_conversation::{ToolDefinition, ToolServerFailure};
use conjure_sandbox::Executor;
use conjure_toolbox::{SourcedTools, Tool, ToolSource};
use futures_util::future::join_all;

use super::error::McpError;
use super::server::{McpServer, ServerState};
use super::skills::{LOAD_SKILL_TOOL, ListedSkill, LoadSkillTool, OfferedSkill};
use crate::client::tools::listing::Listing;
use crate::client::tools::search::{HiddenTools, SearchTool};
use crate::client::tools::server_tool::ServerTool;

/// With more tools than this, or more tokens of definitions than the next limit, only the definitions that a search found are sent.
const MAX_OFFERED_TOOLS: usize = 64;
const MAX_OFFERED_TOKENS: usize = 10_000;

/// The estimated number of JSON bytes per token in definitions.
const BYTES_PER_TOKEN: usize = 4;

/// All servers of a session. Dropping it ends each server that no other session uses.
pub struct McpServers {
    shared: Arc<Shared>,
}

/// A server and its current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReport {
    /// The name of the server.
    pub name: String,
    /// The state of the server.
    pub state: ServerState,
}

struct Shared {
    this: Weak<Self>,
    servers: Vec<Arc<McpServer>>,
    /// The sandbox of the session's tools, which stores large results.
    files: Option<Arc<dyn Executor>>,
    snapshot: Mutex<Snapshot>,
}

#[derive(Default)]
struct Snapshot {
    /// The listings that the tools were built from. `None` before the first build.
    listings: Option<Vec<Option<Arc<Listing>>>>,
    all: Vec<Arc<ServerTool>>,
    /// The tool that loads skills, if the servers have any.
    load_skill: Option<Arc<LoadSkillTool>>,
    /// The names of tools that a search has found.
    found: BTreeSet<String>,
    tools: Arc<SourcedTools>,
}

impl McpServers {
    /// The servers of a session. Servers whose tools are not known are started in the background.
    ///
    /// Large results are written to files in `files`, the sandbox of the session's tools. The secrets of `redactor` are redacted in the
    /// servers' own messages.
    #[must_use]
    pub fn new(servers: Vec<Arc<McpServer>>, files: Option<Arc<dyn Executor>>, redactor: &Redactor) -> Self {
        for server in &servers {
            server.inner.set_redactor(redactor);
            server.inner.prepare();
        }
        let shared =
            |this: &Weak<Shared>| Shared { this: this.clone(), servers, files, snapshot: Mutex::default() };
        Self { shared: Arc::new_cyclic(shared) }
    }

    /// Waits until each required server has listed its tools or failed. The wait for each server is limited by its start-up timeout.
    pub async fn wait_required(&self) {
        let required = self.shared.servers.iter().filter(|server| server.spec().required);
        join_all(required.map(|server| server.inner.wait_listed())).await;
    }

    /// The servers whose tools are missing because a start failed.
    #[must_use]
    pub fn failures(&self) -> Vec<ToolServerFailure> {
        let servers = self.shared.servers.iter();
        let failures = servers.filter_map(|server| {
            let error = server.inner.failure()?;
            Some(ToolServerFailure {
                server: server.spec().name.to_string(),
                reason: error.to_string(),
                needs_authorization: matches!(error, McpError::NeedsAuthorization { .. }),
            })
        });
        failures.collect()
    }

    /// All servers with their current states.
    #[must_use]
    pub fn report(&self) -> Vec<ServerReport> {
        let report = |server: &Arc<McpServer>| ServerReport {
            name: server.spec().name.to_string(),
            state: server.state(),
        };
        self.shared.servers.iter().map(report).collect()
    }
}

impl ToolSource for McpServers {
    fn tools(&self) -> Arc<SourcedTools> {
        let mut snapshot = lock(&self.shared.snapshot);
        self.shared.refresh(&mut snapshot);
        Arc::clone(&snapshot.tools)
    }
}

impl Shared {
    /// Rebuilds the tools if a server's listing has changed.
    fn refresh(&self, snapshot: &mut Snapshot) {
        let listings: Vec<_> = self.servers.iter().map(|server| server.inner.listing()).collect();
        let is_same = snapshot.listings.as_ref().is_some_and(|known| {
            known.iter().zip(&listings).all(|(one, other)| match (one, other) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (None, None) => true,
                _ => false,
            })
        });
        if is_same {
            return;
        }
        let (mut all, mut skills, mut taken) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (server, listing) in self.servers.iter().zip(&listings) {
            let Some(listing) = listing else { continue };
            let names = listing.session_names(server.spec().name.as_str(), &mut taken);
            for (tool, name) in listing.tools.iter().zip(names) {
                if server.spec().is_enabled(&tool.name) {
                    let (server, files) = (Arc::clone(&server.inner), self.files.clone());
                    all.push(Arc::new(ServerTool { server, tool: tool.clone(), name, files }));
                }
            }
            if server.spec().is_enabled(LOAD_SKILL_TOOL) {
                let offered = |skill: &ListedSkill| OfferedSkill {
                    server: Arc::clone(&server.inner),
                    skill: skill.clone(),
                };
                skills.extend(listing.skills.iter().map(offered));
            }
        }
        snapshot.listings = Some(listings);
        snapshot.all = all;
        snapshot.load_skill =
            (!skills.is_empty()).then(|| Arc::new(LoadSkillTool { skills, files: self.files.clone() }));
        self.publish(snapshot);
    }

    /// Decides which tool definitions are sent to the model.
    fn publish(&self, snapshot: &mut Snapshot) {
        let all = &snapshot.all;
        let size = |tool: &Arc<ServerTool>| {
            let definition = tool.definition();
            definition.name.len() + definition.description.len() + definition.input_schema.to_string().len()
        };
        let tokens = all.iter().map(size).sum::<usize>() / BYTES_PER_TOKEN;
        let as_tool = |tool: &Arc<ServerTool>| Arc::clone(tool) as Arc<dyn Tool>;
        let load_skill = snapshot.load_skill.iter().map(|tool| Arc::clone(tool) as Arc<dyn Tool>);
        snapshot.tools = Arc::new(if all.len() <= MAX_OFFERED_TOOLS && tokens <= MAX_OFFERED_TOKENS {
            SourcedTools::new(all.iter().map(as_tool).chain(load_skill))
        } else {
            let mut servers: BTreeMap<String, usize> = BTreeMap::new();
            for tool in all {
                *servers.entry(tool.server.spec.name.to_string()).or_default() += 1;
            }
            let search = SearchTool { tools: self.this.clone(), servers: servers.into_iter().collect() };
            let (found, hidden): (Vec<_>, Vec<_>) =
                all.iter().partition(|tool| snapshot.found.contains(&tool.name));
            let search: Arc<dyn Tool> = Arc::new(search);
            let offered = std::iter::once(search).chain(load_skill).chain(found.into_iter().map(as_tool));
            SourcedTools::new(offered).with_hidden(hidden.into_iter().map(as_tool))
        });
    }
}

impl HiddenTools for Shared {
    fn all_definitions(&self) -> Vec<ToolDefinition> {
        lock(&self.snapshot).all.iter().map(|tool| tool.definition()).collect()
    }

    fn offer(&self, names: Vec<String>) {
        let mut snapshot = lock(&self.snapshot);
        let before = snapshot.found.len();
        snapshot.found.extend(names);
        if snapshot.found.len() != before {
            self.publish(&mut snapshot);
        }
    }
}

impl fmt::Debug for McpServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServers").field("servers", &self.shared.servers).finish_non_exhaustive()
    }
}
