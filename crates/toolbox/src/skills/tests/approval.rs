//! Who must be asked before a script runs, and what a manifest says of it: hints, `allowed-tools`, grants.

use conjure_sandbox::NetworkPolicy;

use super::*;

/// A skill that asks for tools, and says these things of its scripts.
fn careful(execution: &str, sensitive: bool) -> (TempDir, SessionSkills) {
    let place = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(place.path()).unwrap();
    for name in ["deploy", "other"] {
        fs::create_dir_all(root.join(name).join("scripts")).unwrap();
        fs::write(root.join(name).join("scripts/run.sh"), "true\n").unwrap();
        let tools = "allowed-tools: Bash(git:*) skills_run_script(scripts/run.sh) Read";
        let tools = if name == "deploy" { tools } else { "license: MIT" };
        let text = format!("---\nname: {name}\ndescription: About {name}.\n{tools}\n---\nText.\n");
        fs::write(root.join(name).join("SKILL.md"), text).unwrap();
    }
    let manifest = format!(
        "manifest_version: \"1.0\"\nskill_version: 1.0.0\nsensitive: {sensitive}\nexecution: {{{execution}}}\n"
    );
    fs::write(root.join("deploy/skill.manifest.yaml"), manifest).unwrap();
    let skills = ["deploy", "other"].map(|name| {
        let skill = Skill::load(root.join(name), Mode::Strict).unwrap();
        assert_eq!(skill.manifest().is_some(), name == "deploy", "{:?}", skill.diagnostics());
        Arc::new(SessionSkill::from_skill(Arc::new(skill)))
    });
    let locations = SkillLocations::mapped(move |host| {
        Some(Path::new("/mnt/skills").join(host.strip_prefix(&root).ok()?))
    });
    (place, SessionSkills::new(skills, locations))
}

fn pins(skills: &SessionSkills, names: &[&str]) -> Vec<PinnedSkill> {
    names.iter().map(|name| skills.get(name).unwrap().pinned_ref().unwrap()).collect()
}

/// Whether a call runs without a question, where the approver would ask for it.
async fn runs(tools: SkillTools, active: &[&str], call: &ToolCall) -> bool {
    let ask = approver_fn(|_| async { Authorization::Ask { reason: "ask".to_owned() } });
    let session_view = SessionView::with_active_skills(pins(&tools.skills, active));
    let toolbox =
        Toolbox::builder().with_executor(Arc::new(FakeExecutor::new())).with_approver(ask).with_skills(tools);
    toolbox.build().unwrap().authorize(call, &session_view).await == Authorization::Allow
}

#[tokio::test]
async fn allowed_tools_of_active_skills_follow_the_policy() {
    let (_place, skills) = careful("idempotent: true", false);
    let honouring = || SkillTools::new(skills.clone()).with_allowed_tools(AllowedToolsPolicy::Honour);
    let git = call("bash_tool", json!({"command": "git status", "description": "x"}));
    let view = call("view", json!({"path": "/etc/hosts"}));
    let script = |skill: Value| call("skills_run_script", json!({"path": "scripts/run.sh", "skill": skill}));
    for allowed in [&git, &view, &script(json!("deploy")), &script(Value::Null)] {
        assert!(runs(honouring(), &["other", "deploy"], allowed).await, "{allowed:?}");
        // Not by default, and not by a skill that is not active.
        assert!(!runs(SkillTools::new(skills.clone()), &["other", "deploy"], allowed).await, "{allowed:?}");
        assert!(!runs(honouring(), &["other"], allowed).await, "{allowed:?}");
    }
    for asked in [
        &call("bash_tool", json!({"command": "git status; rm -rf /", "description": "x"})),
        &call("bash_tool", json!({"command": "rm -rf /", "description": "x"})),
        &call("create_file", json!({"path": "a", "file_text": "", "description": "x"})),
        // It does not speak for another skill's scripts.
        &script(json!("other")),
    ] {
        assert!(!runs(honouring(), &["other", "deploy"], asked).await, "{asked:?}");
    }
    let (_place, sensitive) = careful("idempotent: true", true);
    let tools = SkillTools::new(sensitive).with_allowed_tools(AllowedToolsPolicy::Honour);
    assert!(!runs(tools, &["deploy"], &git).await, "a sensitive skill approves nothing");
}

#[tokio::test]
async fn a_denial_of_the_approver_overrides_allowed_tools() {
    let (_place, skills) = careful("idempotent: true", false);
    let session_view = SessionView::with_active_skills(pins(&skills, &["deploy"]));
    let tools = SkillTools::new(skills).with_allowed_tools(AllowedToolsPolicy::Honour);
    let toolbox = Toolbox::builder().with_executor(Arc::new(FakeExecutor::new())).with_skills(tools);
    let toolbox = toolbox.with_approver(crate::DenyAll { reason: "no".to_owned() }).build().unwrap();
    let git = call("bash_tool", json!({"command": "git status", "description": "x"}));
    assert_eq!(toolbox.authorize(&git, &session_view).await, Authorization::Deny { reason: "no".to_owned() });
}

#[tokio::test]
async fn destructive_or_interactive_scripts_need_confirmation() {
    for (execution, asks) in
        [("destructive: true", true), ("interactive: true", true), ("idempotent: true", false)]
    {
        let (_place, skills) = careful(execution, false);
        let session_view = SessionView::with_active_skills(pins(&skills, &["deploy"]));
        let script = call("skills_run_script", json!({"path": "scripts/run.sh"}));
        let builder = || {
            Toolbox::builder()
                .with_executor(Arc::new(FakeExecutor::new()))
                .with_skills(SkillTools::new(skills.clone()))
        };
        let allowing =
            builder().with_approver(approver_fn(|_| async { Authorization::Allow })).build().unwrap();
        let authorization = allowing.authorize(&script, &session_view).await;
        assert_eq!(
            matches!(&authorization, Authorization::Ask { reason } if reason.contains("`deploy`")),
            asks
        );
        // Nobody is there.
        assert_eq!(builder().build().unwrap().authorize(&script, &session_view).await, Authorization::Allow);
    }
}

#[tokio::test]
async fn the_manifests_execution_settings_are_applied() {
    let check = |execution: &'static str, named: bool, concurrency, idempotent| {
        let (_place, skills) = careful(execution, false);
        let toolbox = Toolbox::builder()
            .with_executor(Arc::new(FakeExecutor::new()))
            .with_skills(SkillTools::new(skills));
        let skill = if named { json!("deploy") } else { Value::Null };
        let script = call("skills_run_script", json!({"path": "scripts/run.sh", "skill": skill}));
        assert_eq!(
            toolbox.build().unwrap().traits(&script),
            CallTraits { concurrency, idempotent },
            "{execution}"
        );
    };
    check("destructive: false, idempotent: true", true, CallConcurrency::Shared, true);
    check("destructive: false, idempotent: false", true, CallConcurrency::Shared, false);
    // Not said is not harmless.
    check("idempotent: true", true, CallConcurrency::Exclusive, true);
    check("destructive: null", true, CallConcurrency::Exclusive, false);
    check("destructive: true, idempotent: true", true, CallConcurrency::Exclusive, true);
    // Which skill it is depends on what is active by then.
    check("destructive: false, idempotent: true", false, CallConcurrency::Exclusive, false);

    let (_place, skills) = careful("network: true, timeout: 2, destructive: true, interactive: true", false);
    let tools = SkillTools::new(skills.clone()).with_network(NetworkPolicy::None);
    let session_view = SessionView::with_active_skills(pins(&skills, &["deploy"]));
    let toolbox = Toolbox::builder()
        .with_executor(Arc::new(FakeExecutor::new()))
        .with_skills(tools.clone())
        .build()
        .unwrap();
    let receipt = toolbox
        .run_without_input(&call("skills_load", json!({"names": ["deploy"]})), CallContext::default())
        .await;
    let receipt: Value = serde_json::from_str(&receipt.text()).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&receipt["findings"]).unwrap());
    let script = call("skills_run_script", json!({"path": "scripts/run.sh"}));
    let request = SkillRequest::parse(SkillTool::RunScript, &script.input_value(), &tools).unwrap();
    assert_eq!(tools.script_timeout(&request, &session_view), Some(Duration::from_secs(2)));
    let (_place, skills) = careful("timeout: 3600", false);
    let session_view = SessionView::with_active_skills(pins(&skills, &["deploy"]));
    let tools = SkillTools::new(skills);
    let at_most = Some(Duration::from_secs(600));
    assert_eq!(tools.script_timeout(&request, &session_view), at_most, "however long the manifest allows");
}

/// A toolbox whose approver allows everything, and can ask.
fn allowing(tools: SkillTools) -> Toolbox {
    let allow = approver_fn(|_| async { Authorization::Allow });
    let script = "/mnt/skills/deploy/scripts/run.sh";
    let executor = FakeExecutor::new().with_command(script, FakeCommand::Exits(exited(0, "ran")));
    Toolbox::builder()
        .with_executor(Arc::new(executor))
        .with_approver(allow)
        .with_skills(tools)
        .build()
        .unwrap()
}

fn run_of(skill: Value) -> ToolCall {
    call("skills_run_script", json!({"path": "scripts/run.sh", "skill": skill}))
}

#[tokio::test]
async fn a_script_of_an_unloaded_skill_is_checked_against_its_manifest() {
    let (_place, skills) = careful("destructive: true", false);
    let toolbox = allowing(SkillTools::new(skills.clone()));
    let asks = async |call: &ToolCall, active: &[&str]| {
        let session_view = SessionView::with_active_skills(pins(&skills, active));
        matches!(toolbox.authorize(call, &session_view).await, Authorization::Ask { .. })
    };
    // An earlier call of the same answer may load it.
    assert!(asks(&run_of(json!("deploy")), &[]).await);
    assert!(asks(&run_of(json!("deploy")), &["other"]).await);
    assert!(asks(&run_of(Value::Null), &[]).await);
    assert!(!asks(&run_of(json!("other")), &[]).await);
    assert!(!asks(&run_of(Value::Null), &["other"]).await);
    let honouring = SkillTools::new(skills.clone()).with_allowed_tools(AllowedToolsPolicy::Honour);
    assert!(runs(honouring.clone(), &["deploy"], &run_of(json!("deploy"))).await);
    // What `deploy` asks for does not speak of what may be loaded by then.
    assert!(!runs(honouring, &["deploy"], &run_of(json!("other"))).await);
}

#[tokio::test]
async fn a_script_of_a_skill_loaded_in_the_same_answer_runs_only_by_its_name() {
    let (_place, skills) = careful("idempotent: true", false);
    let toolbox = allowing(SkillTools::new(skills.clone()));
    for (active, skill, is_error) in [
        (&["other"][..], Value::Null, true),
        (&["other"], json!("deploy"), false),
        (&["deploy"], Value::Null, false),
    ] {
        let view = SessionView::with_active_skills(pins(&skills, active));
        let context = CallContext { view, ..CallContext::default() };
        let calls = [call("skills_load", json!({"names": ["deploy"]})), run_of(skill)];
        let results = execute_tool_calls(&toolbox, &calls, context).await;
        assert_eq!((results[0].is_error, results[1].is_error), (false, is_error), "{}", results[1].text());
        assert_eq!(results[1].text().contains("name the skill in field `skill`"), is_error);
    }
}

/// Whether a call runs without a question, where the approver would ask for it, these skills are active and this was granted.
async fn is_granted_by(skills: &SessionSkills, active: &[&str], grant: Grant, asked: &ToolCall) -> bool {
    let session_view = SessionView::with_active_skills(pins(skills, active)).with_grants([grant]);
    let ask = approver_fn(|_| async { Authorization::Ask { reason: "ask".to_owned() } });
    let tools = SkillTools::new(skills.clone());
    let toolbox =
        Toolbox::builder().with_executor(Arc::new(FakeExecutor::new())).with_approver(ask).with_skills(tools);
    toolbox.build().unwrap().authorize(asked, &session_view).await == Authorization::Allow
}

#[tokio::test]
async fn a_grant_for_one_skill_does_not_cover_another() {
    let (_place, skills) = careful("idempotent: true", false);
    let [other, deploy] = &pins(&skills, &["other", "deploy"])[..] else { panic!("two") };
    let check = async |pin: &PinnedSkill, asked: &ToolCall| {
        let grant = Grant { rule: asked.name.clone(), scope: GrantScope::Skill(pin.clone()) };
        is_granted_by(&skills, &["other", "deploy"], grant, asked).await
    };
    assert!(check(deploy, &run_of(json!("deploy"))).await);
    assert!(check(deploy, &run_of(Value::Null)).await);
    assert!(check(other, &run_of(json!("other"))).await);
    assert!(!check(deploy, &run_of(json!("other"))).await);
    assert!(!check(other, &run_of(Value::Null)).await);
    assert!(check(other, &call("view", json!({"path": "/etc/hosts"}))).await);
}

#[tokio::test]
async fn path_rules_do_not_cover_scripts_with_variables() {
    let (_place, skills) = careful("idempotent: true", false);
    let script = |env: Value| call("skills_run_script", json!({"path": "scripts/run.sh", "env": env}));
    for (env, expected) in
        [(Value::Null, true), (json!({}), true), (json!({"BASH_ENV": "/workspace/x"}), false)]
    {
        let honouring = SkillTools::new(skills.clone()).with_allowed_tools(AllowedToolsPolicy::Honour);
        assert_eq!(runs(honouring, &["deploy"], &script(env.clone())).await, expected, "{env}");
        let granted = async |rule: &str| {
            let grant = Grant { rule: rule.to_owned(), scope: GrantScope::Session };
            is_granted_by(&skills, &["deploy"], grant, &script(env.clone())).await
        };
        assert_eq!(granted("skills.run_script(scripts/run.sh)").await, expected, "{env}");
        assert!(granted("skills_run_script").await, "a rule without a pattern speaks of every call");
    }
}
