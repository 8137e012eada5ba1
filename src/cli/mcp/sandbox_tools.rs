//! The tools of one sandbox for one client. A sandbox that is lost is replaced by the next call.

use std::sync::{Arc, Mutex, PoisonError};

use conjure::session::ContextOptions;
use conjure::tool::{ToolCall, ToolEnding};
use conjure::{Config, Skill, ToolDefinition, ToolResult, Workbench};
use conjure_mcp::server::{ToolFuture, ToolHost};

/// The tools of a workbench.
pub(super) struct SandboxTools {
    skills: Vec<Arc<Skill>>,
    config: Config,
    options: ContextOptions,
    definitions: Arc<[ToolDefinition]>,
    /// `None` after the sandbox was lost.
    current: Mutex<Option<Arc<Workbench>>>,
    /// Held while a sandbox is created.
    opening: tokio::sync::Mutex<()>,
}

impl SandboxTools {
    pub(super) async fn open(
        skills: Vec<Arc<Skill>>,
        config: Config,
        options: ContextOptions,
    ) -> Result<Self, conjure::Error> {
        let workbench = Workbench::open(skills.iter().cloned(), &config, options.clone()).await?;
        let definitions = workbench.definitions();
        let current = Mutex::new(Some(Arc::new(workbench)));
        Ok(Self { skills, config, options, definitions, current, opening: tokio::sync::Mutex::default() })
    }

    fn current(&self) -> Option<Arc<Workbench>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, workbench: Option<Arc<Workbench>>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = workbench;
    }

    async fn workbench(&self) -> Result<Arc<Workbench>, conjure::Error> {
        let _one = self.opening.lock().await;
        if let Some(workbench) = self.current() {
            return Ok(workbench);
        }
        let skills = self.skills.iter().cloned();
        let workbench = Arc::new(Workbench::open(skills, &self.config, self.options.clone()).await?);
        self.set(Some(Arc::clone(&workbench)));
        Ok(workbench)
    }

    /// Ends the sandbox and everything in it.
    pub(super) async fn close(&self) {
        let workbench = self.current();
        self.set(None);
        if let Some(workbench) = workbench {
            workbench.cleanup().await;
        }
    }
}

impl ToolHost for SandboxTools {
    fn definitions(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.definitions)
    }

    fn call<'a>(&'a self, call: &'a ToolCall) -> ToolFuture<'a> {
        Box::pin(async move {
            let workbench = match self.workbench().await {
                Ok(workbench) => workbench,
                Err(error) => return ToolResult::error(&call.id, error.to_string()),
            };
            let result = conjure::tool::execute(call, &workbench).await;
            let is_current = self.current().is_some_and(|current| Arc::ptr_eq(&current, &workbench));
            if result.ending == ToolEnding::Lost && is_current {
                self.set(None);
            }
            result
        })
    }
}
