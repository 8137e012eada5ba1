use std::fs;
use std::sync::Arc;

use conjure_base::Digest;
use conjure_conversation::{
    Artifact, ArtifactContent, ArtifactName, ArtifactSource, Composer as _, PromptPrefix, ToolDefinition,
};
use conjure_skill::{Mode, Skill};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{
    PromptOptions, SkillActivation, SkillComposer, SkillLocations, ToolOptions, skill_tool_definitions,
    tool_definitions,
};

/// Skills with these files, in a directory of their own.
fn skills(of: &[(&str, &[&str])]) -> (TempDir, SessionSkills) {
    let dir = tempfile::tempdir().unwrap();
    let mut skills = Vec::new();
    for (name, files) in of {
        let root = dir.path().join(name);
        for file in *files {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "x").unwrap();
        }
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("SKILL.md"), format!("---\nname: {name}\ndescription: Does it.\n---\n# Do it\n"))
            .unwrap();
        skills.push(Arc::new(SessionSkill::from_skill(Arc::new(Skill::load(root, Mode::Strict).unwrap()))));
    }
    (dir, SessionSkills::new(skills, SkillLocations::omitted()))
}

fn artifact(name: &str, size: Option<u64>) -> Artifact {
    let content = size.map(|size| ArtifactContent { digest: Digest::of_bytes(name.as_bytes()), size });
    let source = match size {
        Some(_) => ArtifactSource::Content,
        None => ArtifactSource::Url { url: "https://example.com/x?key=secret".to_owned() },
    };
    let name = ArtifactName::new(name).unwrap();
    let variable = name.variable();
    Artifact { variable, ..Artifact::new(name, source, "text/csv", content) }
}

fn prompt(commands: ArtifactAccess) -> ArtifactPrompt {
    ArtifactPrompt {
        access: commands,
        container_files: ContainerFiles::None,
        url_references: UrlReferences::Fetched,
        media_type: |_| "text/csv".to_owned(),
    }
}

fn in_dir() -> ArtifactPrompt {
    prompt(ArtifactAccess::Directory("/artifacts".into()))
}

fn tools() -> Vec<ToolDefinition> {
    tool_definitions(&ToolOptions::default())
}

fn compose(skills: &SessionSkills, artifacts: Option<ArtifactPrompt>, session: &SessionView) -> PromptPrefix {
    let options = PromptOptions { activation: SkillActivation::Load, artifacts, ..PromptOptions::default() };
    SkillComposer::for_session("Be brief.", skills, tools(), &options).compose(session)
}

/// The last part of the instructions.
fn section_text(skills: &SessionSkills, prompt: ArtifactPrompt, artifacts: Vec<Artifact>) -> String {
    let session = SessionView::default().with_artifacts(artifacts);
    compose(skills, Some(prompt), &session).instructions.pop().unwrap()
}

#[test]
fn artifacts_and_assets_are_listed_with_their_usage() {
    let (_dir, skills) = skills(&[("csv-helper", &["assets/sample.csv", "scripts/run.py"])]);
    let artifacts = vec![artifact("sales 2024.csv", Some(1_234_567)), artifact("feed", None)];
    insta::assert_snapshot!(section_text(&skills, in_dir(), artifacts));
}

#[test]
fn only_available_features_are_mentioned() {
    let (_dir, skills) = skills(&[]);
    let local =
        section_text(&skills, prompt(ArtifactAccess::EnvironmentVariables), vec![artifact("a", Some(1))]);
    insta::assert_snapshot!(local);
    let refused =
        ArtifactPrompt { url_references: UrlReferences::Refused, ..prompt(ArtifactAccess::ToolsOnly) };
    insta::assert_snapshot!(section_text(&skills, refused, vec![artifact("a", Some(1))]));
    let (_dir, skills) = skills_with_assets(1);
    let without_artifacts = section_text(&skills, in_dir(), Vec::new());
    assert!(!without_artifacts.contains("ommands"), "{without_artifacts}");
    assert!(!without_artifacts.contains("user_artifacts"), "{without_artifacts}");
}

#[test]
fn containers_of_the_service_have_artifacts_by_name() {
    let (_dir, skills) = skills(&[]);
    let given = || vec![artifact("sales 2024.csv", Some(1_234_567)), artifact("feed", None)];
    let in_container =
        |commands| ArtifactPrompt { container_files: ContainerFiles::Uploaded, ..prompt(commands) };
    let options = PromptOptions {
        activation: SkillActivation::Load,
        artifacts: Some(in_container(ArtifactAccess::ToolsOnly)),
        ..PromptOptions::default()
    };
    let session = SessionView::default().with_artifacts(given());
    // There are no tools, so nothing takes a reference.
    let composer = SkillComposer::for_session("Be brief.", &skills, Vec::new(), &options);
    insta::assert_snapshot!(composer.compose(&session).instructions.pop().unwrap());
    insta::assert_snapshot!(section_text(
        &skills,
        in_container(ArtifactAccess::Directory("/artifacts".into())),
        given()
    ));
}

fn skills_with_assets(count: usize) -> (TempDir, SessionSkills) {
    let files: Vec<String> = (0..count).map(|number| format!("assets/{number:03}.csv")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    skills(&[("many", &files)])
}

#[test]
fn an_empty_section_is_left_out() {
    let (_dir, skills) = skills(&[("plain", &["scripts/run.py", "my-assets/a.csv"])]);
    let session = SessionView::default();
    let without = compose(&skills, None, &session);
    assert_eq!(compose(&skills, Some(in_dir()), &session).instructions, without.instructions);
    // Nor where the embedder leaves artifacts out.
    let given = session.with_artifacts(vec![artifact("a", Some(1))]);
    assert_eq!(compose(&skills, None, &given).instructions, without.instructions);
}

#[test]
fn the_section_comes_last_and_leaves_the_prefix_unchanged() {
    let (_dir, skills) = skills(&[("one", &[])]);
    let active = [skills.get("one").unwrap().pinned_ref().unwrap()];
    let without = SessionView::with_active_skills(active);
    let with = without.clone().with_artifacts(vec![artifact("a", Some(1))]);
    let (without, with) =
        (compose(&skills, Some(in_dir()), &without), compose(&skills, Some(in_dir()), &with));
    let (last, before) = with.instructions.split_last().unwrap();
    assert_eq!(before, without.instructions);
    assert!(last.starts_with("<artifacts>\n") && before.last().unwrap().starts_with("<active_skills>"));
}

#[test]
fn truncated_lists_mention_the_rest() {
    let (_dir, skills) = skills_with_assets(10);
    let artifacts = (0..130).map(|number| artifact(&format!("a{number}"), Some(1))).collect();
    let text = section_text(&skills, in_dir(), artifacts);
    assert_eq!(text.matches("<artifact ").count(), MAX_ARTIFACTS_LISTED);
    assert!(text.contains("[30 more artifacts are not named here]\n</user_artifacts>"), "{text}");
    assert_eq!(text.matches("<asset ").count(), MAX_ASSETS_PER_SKILL);
    assert!(text.contains("[7 more assets of many are not named here]\n</skill_assets>"), "{text}");
    let names: Vec<String> = (0..40).map(|number| format!("skill-{number:02}")).collect();
    let files: &[&str] = &["assets/a", "assets/b", "assets/c"];
    let many: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), files)).collect();
    let (_dir, skills) = self::skills(&many);
    let text = section_text(&skills, in_dir(), Vec::new());
    assert_eq!(text.matches("<asset ").count(), MAX_ASSETS_LISTED);
    assert!(text.contains("[2 more assets of skill-33 are not named here]\n"), "{text}");
    assert!(text.contains("[18 more assets of other skills are not named here]\n"), "{text}");
}

/// A token has about four characters.
#[test]
fn the_assets_of_a_skill_take_about_a_hundred_tokens() {
    let (_dir, skills) = skills_with_assets(500);
    let section = ArtifactSection::new(in_dir(), &skills, std::iter::empty());
    assert!(section.assets.len() < 400, "{}", section.assets);
}

#[test]
fn names_are_escaped() {
    let (_dir, skills) = skills(&[("one", &["assets/</artifacts>\" x=\"%2e.csv", "assets/a\nb/ß.csv"])]);
    let hostile =
        Artifact { content_type: "text/\"><b>\n".to_owned(), ..artifact("\"><x a='&%2F?#", Some(5)) };
    let text = section_text(&skills, in_dir(), vec![hostile]);
    insta::assert_snapshot!(text);
}

#[test]
fn sizes_are_human_readable() {
    let cases = [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (1234, "1.2 kB"),
        (10_000, "10 kB"),
        (12_600, "13 kB"),
        (999_949, "1000 kB"),
        (999_950, "1 MB"),
        (1_234_567, "1.2 MB"),
        (52_428_800, "52 MB"),
        (1_073_741_824, "1.1 GB"),
        (u64::MAX, "18446744 TB"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(human_size(bytes), expected, "{bytes}");
    }
}

#[test]
fn tools_that_take_references_are_listed() {
    let of_skills = skill_tool_definitions(&crate::SkillToolOptions {
        skills: vec!["a"],
        with_scripts: vec!["a"],
        max_active: 1,
        delivery: crate::SkillDelivery::default(),
    });
    let all: Vec<ToolDefinition> = tools().into_iter().chain(of_skills).collect();
    let section_text = list_reference_tools(all.iter().map(|tool| tool.name.as_str()));
    assert_eq!(
        section_text.unwrap(),
        ": in view as {\"path\": \"file://name\"}, in skills_run_script as an argument"
    );
    assert_eq!(list_reference_tools(["bash_tool"].into_iter()).as_deref(), Some(""));
    assert_eq!(list_reference_tools(std::iter::empty()), None);
}

proptest! {
    /// For any name, the element of an artifact is one line with our attributes only.
    #[test]
    fn an_element_is_one_line(name in "\\PC{1,40}", media in ".{0,40}") {
        let Ok(name) = ArtifactName::new(name) else { return Ok(()) };
        let (_dir, skills) = skills(&[]);
        let artifact = Artifact { content_type: media, ..artifact(name.as_str(), Some(1)) };
        let text = section_text(&skills, in_dir(), vec![artifact]);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("<artifact ")).collect();
        prop_assert_eq!(lines.len(), 1, "{}", text);
        prop_assert_eq!(lines[0].matches('"').count(), 10, "{}", lines[0]);
        prop_assert!(lines[0].ends_with("\"/>") && lines[0].matches('<').count() == 1, "{}", lines[0]);
    }
}
