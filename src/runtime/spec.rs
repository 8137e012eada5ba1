//! A session that is to be opened.

use std::collections::BTreeMap;
use std::path::PathBuf;

use conjure_artifact::Source;
use conjure_base::TenantId;
use conjure_conversation::{Activation, Delivery, HostedSkill, Limits, Message};
use serde_json::Value;

use super::given::Given;
use super::hosted::NO_SANDBOX;

/// A session that is to be opened: whose it is, and what it is.
///
/// ```
/// use conjure::{SessionSpec, TenantId};
///
/// let spec = SessionSpec::new(TenantId::new("acme")?)
///     .base_prompt("You help with sales.")
///     .skills(["sales-report"])
///     .environment("REGION", "north")
///     .secret("CRM_KEY", "hunter2");
/// // A value may be a secret, so none shows.
/// assert!(!format!("{spec:?}").contains("hunter2"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SessionSpec {
    pub(crate) tenant: TenantId,
    pub(crate) base_prompt: String,
    pub(crate) skills: Choice,
    pub(crate) catalog: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) executor: Option<String>,
    pub(crate) activation: Option<Activation>,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) limits: Option<Limits>,
    pub(crate) hosted: Vec<HostedSkill>,
    pub(crate) workspace: Option<PathBuf>,
    pub(crate) given: Given,
    pub(crate) artifacts: Vec<(String, Source)>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) history: Vec<Message>,
}

/// Which skills of a catalog.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    All,
    Named(Vec<String>),
}

impl SessionSpec {
    /// A session of this tenant, with all skills of the default catalog, the default model, a sandbox of the configuration's
    /// kind, and a workspace of its own.
    #[must_use]
    pub fn new(tenant: TenantId) -> Self {
        Self {
            tenant,
            base_prompt: String::new(),
            skills: Choice::All,
            catalog: None,
            model: None,
            executor: None,
            activation: None,
            delivery: None,
            limits: None,
            hosted: Vec::new(),
            workspace: None,
            given: Given::default(),
            artifacts: Vec::new(),
            metadata: BTreeMap::new(),
            history: Vec::new(),
        }
    }

    /// With these instructions before all others.
    #[must_use]
    pub fn base_prompt(mut self, text: impl Into<String>) -> Self {
        self.base_prompt = text.into();
        self
    }

    /// With the skills of these names, and no others. They stay what they are now: no edit of a skill, nor its removal, changes
    /// the session.
    #[must_use]
    pub fn skills<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.skills = Choice::Named(names.into_iter().map(Into::into).collect());
        self
    }

    /// Without any skill.
    #[must_use]
    pub fn without_skills(self) -> Self {
        self.skills::<String>([])
    }

    /// With skills of the catalog of this name: the tenant's own, where it has one, else the host's.
    #[must_use]
    pub fn catalog(mut self, name: impl Into<String>) -> Self {
        self.catalog = Some(name.into());
        self
    }

    /// With skills that the model gets at so, instead of as the configuration says: it loads them, where that says nothing.
    #[must_use]
    pub const fn activation(mut self, activation: Activation) -> Self {
        self.activation = Some(activation);
        self
    }

    /// With the instructions of loaded skills there, instead of where the configuration says: in the top-level instructions, where that
    /// says nothing.
    ///
    /// In the top-level instructions they are there for as long as a skill is loaded, whatever becomes of the history; each load and
    /// unload makes the model's service read the history anew. In the result of the load, what was cached stays, also what is not needed
    /// any more.
    #[must_use]
    pub const fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = Some(delivery);
        self
    }

    /// With the model of this name.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(name.into());
        self
    }

    /// With a sandbox of this name: `jail`, `docker`, `local`, `none` ([`SessionSpec::without_sandbox`]), or one of the host's own. What the configuration demands of a
    /// sandbox, it demands of this one, too.
    #[must_use]
    pub fn sandbox(mut self, name: impl Into<String>) -> Self {
        self.executor = Some(name.into());
        self
    }

    /// With skills that the model's service runs, in containers of its own: at most 8. It runs nothing here then: without
    /// [`SessionSpec::skills`], [`SessionSpec::catalog`] or [`SessionSpec::workspace`] such a session has no skills of a catalog and no sandbox.
    /// With them it has both kinds.
    ///
    /// What it produces is listed by [`Session::files`](crate::Session::files), wherever it lies. Whatever the service did for a call whose
    /// answer did not come is not known, so no such call is sent again by itself.
    ///
    /// ```
    /// use conjure::{HostedSkill, SessionSpec, TenantId};
    ///
    /// let spec = SessionSpec::new(TenantId::new("acme")?)
    ///     .hosted([HostedSkill::anthropic("xlsx"), HostedSkill::custom("skill_01AbCdEf").version("1759178010641129")]);
    /// # let _ = spec;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn hosted(mut self, skills: impl IntoIterator<Item = HostedSkill>) -> Self {
        self.hosted = skills.into_iter().collect();
        self
    }

    /// Without a sandbox: the model has neither the built-in tools nor scripts of skills.
    #[must_use]
    pub fn without_sandbox(self) -> Self {
        self.sandbox(NO_SANDBOX)
    }

    /// With these limits for each turn, instead of the configuration's.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Working in this folder of the host's, which stays when the session is deleted. Only its path is recorded.
    #[must_use]
    pub fn workspace(mut self, folder: impl Into<PathBuf>) -> Self {
        self.workspace = Some(folder.into());
        self
    }

    /// With this variable for its commands. It is recorded, so that a revived session has it, unless its name looks like that
    /// of a secret ([`looks_sensitive`](crate::looks_sensitive)): then its value is redacted wherever it would leave, and
    /// whoever revives the session after a restart gives it again ([`Runtime::session_with`](crate::Runtime::session_with)).
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.given = self.given.environment(name, value);
        self
    }

    /// With this value, which commands do not see. Should they get hold of it, it is redacted wherever it would leave. It is
    /// never recorded: whoever revives the session after a restart gives it again.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.given = self.given.secret(name, value);
        self
    }

    /// With this value for an input that the manifest of one of its skills declares: the model is shown it, and commands have it as
    /// the variable `CONJURE_INPUT_<NAME>`. It is recorded, unless a manifest calls it sensitive: then the model is told its name
    /// alone, its value is redacted wherever it would leave, and whoever revives the session after a restart gives it again.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.given = self.given.input(name, value);
        self
    }

    /// With these values for inputs.
    #[must_use]
    pub fn inputs<N: Into<String>, V: Into<Value>>(self, inputs: impl IntoIterator<Item = (N, V)>) -> Self {
        inputs.into_iter().fold(self, |spec, (name, value)| spec.input(name, value))
    }

    /// With this file, URL or data, under this name ([`Session::artifacts`](crate::Session::artifacts)). It is taken in when the session is
    /// opened, but for a URL, which is fetched at its first use; where it cannot be, the session is not opened.
    #[must_use]
    pub fn artifact(mut self, name: impl Into<String>, source: Source) -> Self {
        self.artifacts.push((name.into(), source));
        self
    }

    /// With a note of the host's own, which is recorded and given back.
    #[must_use]
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// Going on with a history from elsewhere.
    #[must_use]
    pub fn history(mut self, messages: Vec<Message>) -> Self {
        self.history = messages;
        self
    }
}

/// Without texts: they are the user's.
impl std::fmt::Debug for SessionSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionSpec")
            .field("tenant", &self.tenant)
            .field("skills", &self.skills)
            .field("catalog", &self.catalog)
            .field("model", &self.model)
            .field("executor", &self.executor)
            .field("workspace", &self.workspace)
            .field("given", &self.given)
            .finish_non_exhaustive()
    }
}
