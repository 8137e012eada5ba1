//! [`PreCallHooks`]: everything that a session does before each model call.

use std::sync::Arc;

use conjure_conversation::{CommandKind, PreCallHook, SessionState};
use futures_util::stream::BoxStream;

use super::artifact_upload::ArtifactUploadHook;

/// Runs the hook of the session's components first, then the upload of artifacts.
pub(crate) struct PreCallHooks {
    /// The hook of the session's components.
    pub(crate) session_hook: Option<Arc<dyn PreCallHook>>,
    pub(crate) upload: Option<ArtifactUploadHook>,
}

impl PreCallHook for PreCallHooks {
    fn before_model_call(&self, state: &SessionState) -> Option<BoxStream<'static, CommandKind>> {
        let commands = self.session_hook.as_ref().and_then(|hook| hook.before_model_call(state));
        commands.or_else(|| self.upload.as_ref()?.before_model_call(state))
    }
}
