//! [`SessionTools`]: the tools of a session's MCP servers, as the session's tools.
//!
//! The tools are rebuilt when a server lists other tools. If there are too many, a search tool takes their place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};

use conjure_base::lock;
use conjure_conversation::ToolDefinition;
use conjure_sandbox::Executor;
use conjure_toolbox::{SourcedTools, Tool};

use super::listing::Listing;
use super::search::{HiddenTools, SearchTool};
use super::server_tool::ServerTool;
use crate::client::server::McpServer;
use crate::client::skills::{LOAD_SKILL_TOOL, ListedSkill, LoadSkillTool, OfferedSkill};

/// With more tools than this, or more tokens of definitions than the next limit, only the definitions that a search found are sent.
const MAX_OFFERED_TOOLS: usize = 64;
const MAX_OFFERED_TOKENS: usize = 10_000;

/// The estimated number of JSON bytes per token in definitions.
const BYTES_PER_TOKEN: usize = 4;

/// The servers of a session, and the tools that they have now.
pub(in crate::client) struct SessionTools {
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

impl SessionTools {
    /// The tools of these servers. Large results are written to files in `files`.
    pub(in crate::client) fn new(
        servers: Vec<Arc<McpServer>>,
        files: Option<Arc<dyn Executor>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { this: this.clone(), servers, files, snapshot: Mutex::default() })
    }

    pub(in crate::client) fn servers(&self) -> &[Arc<McpServer>] {
        &self.servers
    }

    /// The current tools.
    pub(in crate::client) fn current(&self) -> Arc<SourcedTools> {
        let mut snapshot = lock(&self.snapshot);
        self.refresh(&mut snapshot);
        Arc::clone(&snapshot.tools)
    }

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

impl HiddenTools for SessionTools {
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
