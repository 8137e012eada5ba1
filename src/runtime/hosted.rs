//! Skills that the model's service runs: what a session may ask for, and what it does without.

use std::sync::Arc;

use conjure_artifact::{ArtifactUpload, OutputStore};
use conjure_conversation::{HostedSkill, Hosting, Model};

use super::error::RuntimeError;
use super::spec::{Choice, SessionSpec};

/// The files of a session with hosted skills, on their way from the service and to it.
#[derive(Debug, Clone)]
pub(crate) struct HostedFiles {
    pub(crate) outputs: Arc<dyn OutputStore>,
    pub(crate) uploads: Arc<dyn ArtifactUpload>,
}

/// The name of no sandbox at all.
pub(crate) const NO_SANDBOX: &str = "none";

/// A session whose skills the service runs has no others, and no sandbox, unless it asks for some.
pub(crate) fn with_defaults(mut spec: SessionSpec) -> SessionSpec {
    if !spec.hosted.is_empty() {
        let has_own =
            matches!(&spec.skills, Choice::Named(names) if !names.is_empty()) || spec.catalog.is_some();
        if !has_own {
            spec.skills = Choice::Named(Vec::new());
            if spec.workspace.is_none() {
                spec.executor.get_or_insert_with(|| NO_SANDBOX.to_owned());
            }
        }
    }
    spec
}

/// Whether a request can ask for these, of this model.
pub(crate) fn check(hosted: &[HostedSkill], name: &str, model: &dyn Model) -> Result<(), RuntimeError> {
    if hosted.is_empty() {
        return Ok(());
    }
    if model.hosting() != Hosting::Skills {
        return Err(RuntimeError::NotHosting { model: name.to_owned() });
    }
    #[cfg(feature = "anthropic")]
    if let Err(error) = conjure_anthropic::hosted::container_config(hosted) {
        return Err(RuntimeError::Hosted { reason: error.to_string() });
    }
    Ok(())
}

#[cfg(feature = "anthropic")]
#[cfg(test)]
mod tests {
    use conjure_base::TenantId;
    use conjure_conversation::scripted::{Script, ScriptFormat, ScriptedModel};
    use conjure_conversation::{ModelError, ModelErrorKind, model_fn};

    use super::*;

    fn refused(hosted: &[HostedSkill]) -> Option<String> {
        let script =
            Script::from_text("version: 1\nturns:\n- content: a\n", ScriptFormat::Yaml, "here").unwrap();
        check(hosted, "m", &ScriptedModel::new(script)).err().map(|error| error.to_string())
    }

    #[test]
    fn what_no_request_can_ask_for_is_refused_before_a_session_is_there() {
        let many =
            |count: usize| (0..count).map(|n| HostedSkill::custom(format!("s{n}"))).collect::<Vec<_>>();
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&many(8)), None);
        assert_eq!(refused(&[HostedSkill::anthropic("a"), HostedSkill::custom("a")]), None);
        for (hosted, expected) in [
            (many(9), "9 hosted skills are too many for one request, which takes 8"),
            (vec![HostedSkill::anthropic(" ")], "number 1 has no id"),
            (vec![HostedSkill::anthropic("a").version("")], "number 1 has no version"),
            (vec![HostedSkill::custom("a"), HostedSkill::custom("a").version("2")], "`a` is named twice"),
        ] {
            let message = refused(&hosted).unwrap();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_model_that_runs_no_skills_is_not_asked_to() {
        let model = model_fn(|_| async { Err(ModelError::new(ModelErrorKind::Script, "nobody calls it")) });
        let error = check(&[HostedSkill::anthropic("xlsx")], "mine", &model).unwrap_err();
        assert!(matches!(&error, RuntimeError::NotHosting { model } if model == "mine"), "{error}");
        assert!(check(&[], "mine", &model).is_ok());
    }

    #[test]
    fn a_hosted_session_has_no_sandbox_unless_it_asks_for_what_needs_one() {
        let spec =
            || SessionSpec::new(TenantId::new("acme").unwrap()).hosted([HostedSkill::anthropic("xlsx")]);
        let sandbox = |spec: SessionSpec| with_defaults(spec).executor;
        assert_eq!(sandbox(spec()).as_deref(), Some(NO_SANDBOX));
        assert!(matches!(with_defaults(spec()).skills, Choice::Named(names) if names.is_empty()));
        assert_eq!(sandbox(spec().sandbox("jail")).as_deref(), Some("jail"));
        assert_eq!(sandbox(spec().skills(["sales"])), None);
        assert_eq!(sandbox(spec().workspace("/here")), None);
        assert_eq!(sandbox(SessionSpec::new(TenantId::new("acme").unwrap())), None);
    }
}
