//! Which kind the errors of the rooms become, and what is told with it.

use super::*;

fn check(error: impl Into<Error>, kind: ErrorKind, retryable: bool) {
    let error = error.into();
    assert_eq!((error.kind(), error.is_retryable()), (kind, retryable), "{error}");
    assert!(!error.to_string().is_empty());
}

#[test]
fn failures_of_sandboxes_are_reported_apart() {
    use SandboxErrorKind as Kind;
    let sandbox = |kind| SandboxError::new(kind, "it happened");
    check(sandbox(Kind::TimedOut), ErrorKind::ExecutionTimeout, true);
    check(sandbox(Kind::Lost), ErrorKind::ContainerError, true);
    check(sandbox(Kind::Unavailable), ErrorKind::ContainerError, true);
    check(sandbox(Kind::Unsupported), ErrorKind::ContainerError, false);
    check(sandbox(Kind::NoMatch), ErrorKind::ExecutionFailed, false);
}

#[test]
fn what_is_overloaded_says_when_to_come_back() {
    let overloaded = SandboxError::new(SandboxErrorKind::Overloaded, "too many");
    check(overloaded.clone(), ErrorKind::ContainerError, false);
    let after = Duration::from_millis(1_500);
    let advised = Error::from(overloaded.after(after).with_message("there are too many"));
    assert_eq!((advised.to_string(), advised.retry_after()), ("there are too many".to_owned(), Some(after)));
    check(advised, ErrorKind::ContainerError, true);
    let refused = ModelErrorKind::Api(ApiErrorKind::RateLimit);
    let refused = ModelError { retry_after: Some(after), ..ModelError::new(refused, "too often") };
    assert_eq!(Error::from(refused).retry_after(), Some(after));
    assert_eq!(Error::ExecutionTimeout { reason: "late".to_owned() }.retry_after(), None);
}

#[test]
fn failures_of_the_model_keep_their_own_error_as_the_source() {
    let overloaded = ModelErrorKind::Api(ApiErrorKind::Overloaded);
    check(ModelError::new(overloaded, "busy"), ErrorKind::ApiError, true);
    check(ModelError::new(ModelErrorKind::Protocol, "odd"), ErrorKind::ApiError, false);
    let error = Error::from(ModelError::new(ModelErrorKind::Connection, "gone"));
    assert_eq!(error.to_string(), "the model failed: gone");
    assert!(std::error::Error::source(&error).is_some());
    check(conjure_conversation::parse_response("[]").unwrap_err(), ErrorKind::ApiError, false);
    check(conjure_prompt::parse_tool_use("{}").unwrap_err(), ErrorKind::ApiError, false);
}

#[test]
fn failures_of_the_service_name_the_request_and_say_how_to_mend_them() {
    let refused = ModelErrorKind::Api(ApiErrorKind::Authentication);
    let error =
        ModelError { request_id: Some("req_1".to_owned()), ..ModelError::new(refused, "no such key") };
    let error = Error::from(error);
    assert_eq!(error.to_string(), "the model failed: no such key (request id: req_1)");
    assert!(error.hint().unwrap().contains("check the key"));
}

#[test]
fn failures_of_skills_name_the_path() {
    let missing = Error::from(conjure_skill::load_all(["/no/such/directory"]).unwrap_err());
    check(missing, ErrorKind::FileNotFound, false);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("SKILL.md");
    std::fs::write(&path, "no frontmatter").unwrap();
    let error = Error::from(conjure_skill::Skill::load(&path, conjure_skill::Mode::Strict).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::InvalidFrontmatter);
    assert!(error.to_string().contains("SKILL.md must start with YAML frontmatter"), "{error}");
    assert!(error.hint().unwrap().contains("conjure skills validate"));
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn the_kinds_have_the_names_of_the_specification() {
    assert_eq!(ErrorKind::MaxIterationsReached.to_string(), "max_iterations_reached");
    let none = Error::SkillNotFound { name: "x".to_owned(), available: Vec::new() };
    assert_eq!(
        (none.kind().as_str(), none.hint().as_deref()),
        ("skill_not_found", Some("no skills are loaded"))
    );
}
