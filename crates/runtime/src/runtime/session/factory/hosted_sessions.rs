//! Sessions with hosted skills, which the model's service runs: the checks of these skills, and the sessions' files.

use std::fs::File;
use std::sync::Arc;

use conjure_artifact::{
    ArtifactError, ArtifactUpload, OutputStore, Retryable, ServiceFileDeletion, ServiceFiles,
};
use conjure_conversation::{
    Artifact, Block, HostedFiles, HostedSkill, HostedSupport, Model, Request, SideEffects,
};
use futures_util::future::BoxFuture;

use crate::runtime::error::RuntimeError;
use crate::runtime::session::select_skills::SkillSelection;
use crate::runtime::session::spec::{NO_SANDBOX, SessionSpec};

/// Downloads and uploads the files of a session with hosted skills.
#[derive(Debug, Clone)]
pub(crate) struct HostedSessionFiles {
    pub(crate) outputs: Option<Arc<dyn OutputStore>>,
    pub(crate) uploads: Arc<dyn ArtifactUpload>,
}

/// The upload for a service that takes no files. It refuses every file.
#[derive(Debug)]
struct NoUploads;

impl ArtifactUpload for NoUploads {
    fn upload<'a>(&'a self, artifact: &'a Artifact, _: File) -> BoxFuture<'a, Result<Block, ArtifactError>> {
        let (name, reason) = (artifact.name.clone(), "the session's model takes no files".to_owned());
        let refused = ArtifactError::UploadFailed { name, reason, retry: Retryable::No };
        Box::pin(std::future::ready(Err(refused)))
    }
}

/// Fills in the defaults of a session with hosted skills: no other skills and no sandbox, unless its spec asks for them.
pub(crate) fn with_defaults(mut spec: SessionSpec) -> SessionSpec {
    if !spec.hosted.is_empty() {
        let has_own = matches!(&spec.skills, SkillSelection::Named(names) if !names.is_empty())
            || spec.catalog.is_some();
        if !has_own {
            spec.skills = SkillSelection::Named(Vec::new());
            if spec.workspace.is_none() {
                spec.executor.get_or_insert_with(|| NO_SANDBOX.to_owned());
            }
        }
    }
    spec
}

/// Checks that requests to this model can use these hosted skills.
pub(crate) fn check(hosted: &[HostedSkill], name: &str, model: &dyn Model) -> Result<(), RuntimeError> {
    if hosted.is_empty() {
        return Ok(());
    }
    if model.hosted_support() != HostedSupport::Skills {
        return Err(RuntimeError::NotHosting { model: name.to_owned() });
    }
    #[cfg(feature = "anthropic")]
    if let Err(error) = conjure_anthropic::hosted::container_config(hosted) {
        return Err(RuntimeError::Hosted { reason: error.to_string() });
    }
    Ok(())
}

/// The files of a session with these hosted skills; `None` if it has none. They belong to the model's own key, because a
/// tenant's files must not be uploaded under another key.
pub(crate) fn files_of(
    hosted: &[HostedSkill],
    name: &str,
    model: &dyn Model,
) -> Result<Option<HostedSessionFiles>, RuntimeError> {
    if hosted.is_empty() {
        return Ok(None);
    }
    let files_unknown = || RuntimeError::NoHostedFiles { model: name.to_owned() };
    let files = match model.hosted_files() {
        HostedFiles::Available(files) => {
            let files = files.downcast::<ServiceFiles>().map_err(|_| files_unknown())?;
            HostedSessionFiles {
                outputs: Some(Arc::clone(&files.outputs)),
                uploads: Arc::clone(&files.uploads),
            }
        }
        HostedFiles::None => HostedSessionFiles { outputs: None, uploads: Arc::new(NoUploads) },
        HostedFiles::Unknown => return Err(files_unknown()),
    };
    Ok(Some(files))
}

/// The service that deletes the remote files of this model's sessions, or the reason why these cannot be deleted.
pub(crate) fn removal_of(name: &str, model: &dyn Model) -> Result<Arc<dyn ServiceFileDeletion>, String> {
    if let HostedFiles::Available(files) = model.hosted_files()
        && let Ok(files) = files.downcast::<ServiceFiles>()
    {
        return Ok(Arc::clone(&files.deletion));
    }
    Err(format!("the model `{name}` has no files with a service, or does not say where"))
}

/// Whether the model's calls may have side effects at its service even if the request asks for none.
pub(crate) fn has_side_effects(model: &dyn Model) -> bool {
    let empty_request = Request::new(Vec::new());
    model.side_effects(&empty_request) == SideEffects::Possible
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
            (vec![HostedSkill::anthropic("a").with_version("")], "number 1 has no version"),
            (
                vec![HostedSkill::custom("a"), HostedSkill::custom("a").with_version("2")],
                "`a` is named twice",
            ),
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
    fn a_model_that_does_not_say_where_the_files_are_is_refused() {
        let model = model_fn(|_| async { Err(ModelError::new(ModelErrorKind::Script, "nobody calls it")) });
        let error = files_of(&[HostedSkill::anthropic("xlsx")], "mine", &model).unwrap_err();
        assert!(matches!(&error, RuntimeError::NoHostedFiles { model } if model == "mine"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("Model::hosted_files")));
        assert!(files_of(&[], "mine", &model).unwrap().is_none());
    }

    #[test]
    fn a_hosted_session_has_no_sandbox_unless_it_asks_for_what_needs_one() {
        let spec =
            || SessionSpec::new(TenantId::new("acme").unwrap()).hosted([HostedSkill::anthropic("xlsx")]);
        let sandbox = |spec: SessionSpec| with_defaults(spec).executor;
        assert_eq!(sandbox(spec()).as_deref(), Some(NO_SANDBOX));
        assert!(matches!(with_defaults(spec()).skills, SkillSelection::Named(names) if names.is_empty()));
        assert_eq!(sandbox(spec().sandbox("jail")).as_deref(), Some("jail"));
        assert_eq!(sandbox(spec().skills(["sales"])), None);
        assert_eq!(sandbox(spec().workspace("/here")), None);
        assert_eq!(sandbox(SessionSpec::new(TenantId::new("acme").unwrap())), None);
    }
}
