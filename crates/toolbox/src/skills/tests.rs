//! What the model reads of the runtime tools, and what they make active, over the fake executor.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::Redactor;
use conjure_conversation::{
    Authorization, CallConcurrency, CallContext, CallTraits, Grant, GrantScope, PinnedSkill, ResultContent,
    SessionView, SkillDelivery, ToolCall, ToolResult, ToolRunner as _, execute_tool_calls,
};
use conjure_prompt::{SessionSkill, SessionSkills, SkillLocations, SkillTool};
use conjure_sandbox::{CommandEnd, SandboxError, SandboxErrorKind};
use conjure_skill::{Mode, Skill};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::fake::{FakeCommand, FakeExecutor, ended, exited};
use crate::{OutputLimits, Toolbox, approver_fn};

mod approval;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";

/// Three skills on the disk: one with everything, one with nothing, and one whose instructions cannot be read.
struct Fixture {
    place: TempDir,
    skills: SessionSkills,
    executor: FakeExecutor,
}

impl Fixture {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        let write = |path: &str, content: &[u8]| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write(
            "pdf/SKILL.md",
            b"---\nname: pdf\ndescription: Reads PDF.\nlicense: MIT\n---\n# PDF\n\nRun the script.\n",
        );
        for (path, content) in [
            ("scripts/extract.py", "print(1)\n".as_bytes()),
            ("scripts/run", b"#!/bin/sh\necho\n"),
            ("scripts/first_line", b"#!/usr/bin/env -S awk -f\n"),
            ("scripts/nothing.xyz", b"?"),
            ("references/forms.md", b"# Forms\n"),
            ("references/nested/SKILL.md", b"---\nname: other\ndescription: Not a skill.\n---\nInert.\n"),
            ("assets/logo.png", PNG),
            ("assets/table.xlsx", b"PK\x03\x04\0\0"),
            ("assets/empty.txt", b""),
        ] {
            write(&format!("pdf/{path}"), content);
        }
        fs::set_permissions(root.join("pdf/scripts/run"), fs::Permissions::from_mode(0o755)).unwrap();
        write("outside.txt", b"secret");
        symlink("../outside.txt", root.join("pdf/out.txt")).unwrap();
        symlink("references/forms.md", root.join("pdf/in.md")).unwrap();
        write("csv/SKILL.md", b"---\nname: csv\ndescription: Reads CSV.\n---\nCount lines.\n");
        write("broken/SKILL.md", b"---\nname: broken\ndescription: Breaks.\n---\nText.\n");
        let skills = ["broken", "csv", "pdf"].map(|name| {
            SessionSkill::from_skill(Arc::new(Skill::load(root.join(name), Mode::Strict).unwrap()))
        });
        fs::remove_file(root.join("broken/SKILL.md")).unwrap();
        let locations = SkillLocations::mapped(move |host| {
            Some(Path::new("/mnt/skills").join(host.strip_prefix(&root).ok()?))
        });
        let skills = SessionSkills::new(skills.map(Arc::new), locations);
        Self { place, skills, executor: FakeExecutor::new() }
    }

    fn tools(&self) -> SkillTools {
        SkillTools::new(self.skills.clone())
    }

    fn toolbox_of(&self, tools: SkillTools) -> Toolbox {
        Toolbox::builder().with_executor(Arc::new(self.executor.clone())).with_skills(tools).build().unwrap()
    }

    fn session_view(&self, names: &[&str]) -> SessionView {
        let pins: Vec<PinnedSkill> =
            names.iter().map(|name| self.skills.get(name).unwrap().pinned_ref().unwrap()).collect();
        SessionView::with_active_skills(pins)
    }

    async fn call_of(&self, tools: SkillTools, active: &[&str], tool: &str, input: Value) -> ToolResult {
        let context = CallContext { view: self.session_view(active), ..CallContext::default() };
        self.toolbox_of(tools).run_without_input(&ToolCall::new("toolu_1", tool, &input), context).await
    }

    async fn call(&self, active: &[&str], tool: &str, input: Value) -> ToolResult {
        self.call_of(self.tools(), active, tool, input).await
    }

    /// Runs the calls, each with these skills active, and shows each with what the model reads of it.
    async fn transcript(&self, calls: &[(&[&str], &str, Value)]) -> String {
        let mut text = String::new();
        for (active, tool, input) in calls {
            let result = self.call(active, tool, input.clone()).await;
            let verdict = if result.is_error { "error" } else { "ok" };
            let set = result.active_skills.as_ref().map(|set| names(set));
            let set = set.map_or_else(String::new, |set| format!("\nactive: {set:?}"));
            text.push_str(&format!(">>> {active:?} {tool} {input}\n{verdict}: {}{set}\n\n", result.text()));
        }
        text
    }
}

fn call(tool: &str, input: Value) -> ToolCall {
    ToolCall::new("toolu_1", tool, &input)
}

fn names(set: &[PinnedSkill]) -> Vec<&str> {
    set.iter().map(|skill| skill.name.as_str()).collect()
}

#[tokio::test]
async fn loading_and_unloading() {
    let fixture = Fixture::new();
    insta::assert_snapshot!(
        fixture
            .transcript(&[
                (&[], "skills_load", json!({"names": ["pdf"]})),
                (&["csv"], "skills_load", json!({"names": ["pdf"]})),
                (&["csv"], "skills_load", json!({"names": ["pdf", "csv", "pdf"], "mode": "add"})),
                (&["csv"], "skills_load", json!({"names": ["csv"], "mode": "replace"})),
                (&[], "skills_load", json!({"names": ["/mnt/skills/csv/SKILL.md"]})),
                (&["csv"], "skills_load", json!({"names": ["broken"]})),
                (&["csv", "pdf"], "skills_unload", json!({"names": ["csv", "no-such-skill"]})),
                (&["csv", "pdf"], "skills_unload", json!({"all": true})),
                (&["pdf"], "skills_unload", json!({"names": ["csv"]})),
            ])
            .await
    );
}

#[tokio::test]
async fn nothing_that_a_skill_hides_is_in_a_result() {
    let fixture = Fixture::new();
    let root = fixture.place.path().join("csv");
    let hidden = "Reads\u{e0049}\u{e0067} CSV\u{202e}.";
    let text = format!(
        "---\nname: csv\ndescription: {hidden}\nlicense: {hidden}\nmetadata:\n  by: {hidden}\n---\nCount lines.\n"
    );
    fs::write(root.join("SKILL.md"), text).unwrap();
    fs::create_dir(root.join("references")).unwrap();
    fs::write(root.join("references/one\u{202e}\u{e0041}.md"), "").unwrap();
    let skill = SessionSkill::from_skill(Arc::new(Skill::load(&root, Mode::Lenient).unwrap()));
    let skills = SessionSkills::new([Arc::new(skill)], SkillLocations::host());
    for (tool, input) in [
        ("skills_load", json!({"names": ["csv"]})),
        ("skills_read", json!({"path": "references"})),
        ("skills_read", json!({"path": "none.md"})),
    ] {
        let pins: Vec<PinnedSkill> = skills.iter().map(|skill| skill.pinned_ref().unwrap()).collect();
        let view = SessionView::with_active_skills(pins);
        let toolbox = Toolbox::builder().with_skills(SkillTools::new(skills.clone())).build().unwrap();
        let context = CallContext { view, ..CallContext::default() };
        let text = toolbox.run_without_input(&call(tool, input.clone()), context).await.text();
        assert!(text.contains("Reads CSV.") || text.contains("one"), "{input}: {text}");
        assert!(!text.contains(['\u{202e}', '\u{e0041}', '\u{e0049}', '\u{e0067}']), "{input}: {text:?}");
    }
}

#[tokio::test]
async fn tools_are_called_by_their_wire_name_only() {
    let fixture = Fixture::new();
    let script = json!({"path": "scripts/extract.py"});
    let result = fixture.call(&["pdf"], "skills.run_script", script).await;
    assert!(result.is_error && fixture.executor.commands().is_empty());
    assert_eq!(result.text(), "there is no tool `skills.run_script`; here it is called `skills_run_script`");
}

#[tokio::test]
async fn instructions_in_results_are_delivered_once() {
    let fixture = Fixture::new();
    let load = |active: &'static [&'static str], names: Value| {
        let tools = fixture.tools().with_delivery(SkillDelivery::Result);
        fixture.call_of(tools, active, "skills_load", json!({"names": names, "mode": "add"}))
    };
    let both = load(&["csv"], json!(["csv", "pdf"])).await;
    assert_eq!(both.content.len(), 2);
    insta::assert_snapshot!(both.text());
    let again = load(&["csv"], json!(["csv"])).await;
    assert_eq!((again.content.len(), &again.active_skills), (1, &None));
    assert!(again.text().contains(r#""already_active":["csv"]"#), "{}", again.text());
}

#[tokio::test]
async fn the_number_of_active_skills_is_limited() {
    let fixture = Fixture::new();
    let tools = fixture.tools().with_max_active(1);
    let result =
        fixture.call_of(tools, &["csv"], "skills_load", json!({"names": ["pdf"], "mode": "add"})).await;
    assert!(result.is_error && result.active_skills.is_none());
    assert!(result.text().starts_with("2 skills would be loaded, and the maximum is 1"), "{}", result.text());
    let toolbox = Toolbox::builder().with_skills(fixture.tools());
    let toolbox = toolbox.with_limits(OutputLimits { text: 16, ..OutputLimits::default() }).build().unwrap();
    let call = ToolCall::new("toolu_1", "skills_load", &json!({"names": ["pdf"]}));
    let result = toolbox.run_without_input(&call, CallContext::default()).await;
    assert!(result.is_error && result.active_skills.is_none());
}

/// As long as it is loaded, nothing of what the model was told of it is cut.
#[tokio::test]
async fn a_skill_is_loaded_only_if_its_instructions_fit() {
    let fixture = Fixture::new();
    let body = "x".repeat(300);
    let text = format!("---\nname: csv\ndescription: {}\n---\n{body}\n", "d".repeat(900));
    fs::write(fixture.place.path().join("csv/SKILL.md"), text).unwrap();
    let skill = Skill::load(fixture.place.path().join("csv"), Mode::Strict).unwrap();
    let skills =
        SessionSkills::new([Arc::new(SessionSkill::from_skill(Arc::new(skill)))], SkillLocations::host());
    let call = ToolCall::new("toolu_1", "skills_load", &json!({"names": ["csv"]}));
    for delivery in [SkillDelivery::Instructions, SkillDelivery::Result] {
        let mut loaded = 0;
        for text in (1000..3000).step_by(25) {
            let toolbox =
                Toolbox::builder().with_skills(SkillTools::new(skills.clone()).with_delivery(delivery));
            let toolbox =
                toolbox.with_limits(OutputLimits { text, ..OutputLimits::default() }).build().unwrap();
            let result = toolbox.run_without_input(&call, CallContext::default()).await;
            assert_eq!(result.is_error, result.active_skills.is_none());
            if result.is_error {
                assert!(result.text().contains("load fewer skills at a time"), "{}", result.text());
            } else {
                loaded += 1;
                assert!(!result.text().contains("are left out"), "{}", result.text());
            }
        }
        assert!((1..80).contains(&loaded), "{loaded}");
    }
}

#[tokio::test]
async fn reading_files_of_active_skills() {
    let fixture = Fixture::new();
    let read = |path: &str| json!({"path": path});
    insta::assert_snapshot!(
        fixture
            .transcript(&[
                (&["csv", "pdf"], "skills_read", read("references/forms.md")),
                (&["pdf", "csv"], "skills_read", json!({"path": "./references//forms.md", "skill": "pdf"})),
                (&["pdf"], "skills_read", read("references/nested/SKILL.md")),
                (&["pdf"], "skills_read", read("SKILL.md")),
                (&["pdf"], "skills_read", read("in.md")),
                (&["pdf"], "skills_read", read("assets/table.xlsx")),
                (&["pdf"], "skills_read", read("assets/empty.txt")),
                (&["pdf"], "skills_read", read("assets")),
                (&["pdf"], "skills_read", read("forms.md")),
                (&["csv"], "skills_read", read("x")),
                (&["pdf"], "skills_read", read("out.txt")),
                (&["pdf"], "skills_read", read("../outside.txt")),
                (&["pdf"], "skills_read", read("references/../../outside.txt")),
                (&["pdf"], "skills_read", read("/etc/passwd")),
                (&["pdf"], "skills_read", read("/mnt/skills/pdf/references/forms.md")),
                (&[], "skills_read", read("references/forms.md")),
                (&["csv"], "skills_read", json!({"path": "references/forms.md", "skill": "pdf"})),
                (&["csv"], "skills_read", json!({"path": "x", "skill": "pfd"})),
            ])
            .await
    );
    let image = fixture.call(&["pdf"], "skills_read", read("assets/logo.png")).await;
    assert!(
        matches!(&image.content[..], [ResultContent::Image { media_type, .. }] if media_type == "image/png")
    );
}

#[tokio::test]
async fn long_files_are_truncated_and_too_long_ones_rejected() {
    let fixture = Fixture::new();
    let file = |length: usize| {
        fs::write(fixture.place.path().join("pdf/long.txt"), vec![b'x'; length]).unwrap();
        fixture.call(&["pdf"], "skills_read", json!({"path": "long.txt"}))
    };
    let cut = file(1024 * 1024).await;
    assert!(!cut.is_error && cut.text().len() <= OutputLimits::default().view);
    assert!(
        cut.text()
            .contains(" of 1048576 bytes are left out here; commands find it at `/mnt/skills/pdf/long.txt`]")
    );
    let refused = file(5 * 1024 * 1024).await;
    assert!(
        refused.is_error && refused.text().contains("has 5242880 bytes, and the maximum is"),
        "{}",
        refused.text()
    );
}

#[tokio::test]
async fn running_scripts_of_active_skills() {
    let mut fixture = Fixture::new();
    let lost = SandboxError::new(
        SandboxErrorKind::NotFound,
        "cannot run `python3`: it is in no directory of PATH (/bin); install it or give its full path",
    );
    let mut failed = exited(3, "half\n");
    failed.stderr.head = b"OSError: [Errno 30] Read-only file system: 'out.json'\n".to_vec();
    failed.stderr.total = failed.stderr.head.len() as u64;
    fixture.executor = FakeExecutor::new()
        .with_command("ok", FakeCommand::Exits(exited(0, "one\ntwo \"quoted\"\n")))
        .with_command("fails", FakeCommand::Exits(failed))
        .with_command("slow", FakeCommand::Exits(ended(CommandEnd::TimedOut, "so far")))
        .with_command("no python", FakeCommand::FailsToStart(lost));
    let run = |path: &str, args: &[&str]| json!({"path": path, "args": args});
    insta::assert_snapshot!(
        fixture
            .transcript(&[
                (&["pdf"], "skills_run_script", run("scripts/extract.py", &["ok"])),
                (&["pdf"], "skills_run_script", run("scripts/extract.py", &["fails"])),
                (&["pdf"], "skills_run_script", run("scripts/extract.py", &["slow"])),
                (&["pdf"], "skills_run_script", run("scripts/extract.py", &["no python"])),
                (&["pdf"], "skills_run_script", run("scripts/nothing.xyz", &[])),
                (&["pdf"], "skills_run_script", run("extract.py", &[])),
                (&["pdf"], "skills_run_script", run("out.txt", &[])),
                (&["pdf"], "skills_run_script", run("../outside.txt", &[])),
                (&["pdf"], "skills_run_script", run("/bin/sh", &[])),
                (&["pdf"], "skills_run_script", json!({"path": "scripts/run", "workdir": "../csv"})),
                (&["csv"], "skills_run_script", json!({"path": "scripts/extract.py", "skill": "pdf"})),
                (&[], "skills_run_script", run("scripts/extract.py", &[])),
            ])
            .await
    );
}

#[tokio::test]
async fn a_secret_is_redacted_however_it_would_be_escaped() {
    const SECRET: &str = "se\"cr\\et\nline-two";
    let mut fixture = Fixture::new();
    let mut written = exited(0, format!("out {SECRET}\n"));
    written.stderr.head = format!("err {SECRET}\n").into_bytes();
    written.stderr.total = written.stderr.head.len() as u64;
    fixture.executor = FakeExecutor::new().with_command("tells", FakeCommand::Exits(written));
    let builder =
        Toolbox::builder().with_executor(Arc::new(fixture.executor.clone())).with_skills(fixture.tools());
    let toolbox = builder.with_redactor(Redactor::new([("KEY", SECRET)])).build().unwrap();
    let script = call("skills_run_script", json!({"path": "scripts/extract.py", "args": ["tells"]}));
    let context = CallContext { view: fixture.session_view(&["pdf"]), ..CallContext::default() };
    let report: Value =
        serde_json::from_str(&toolbox.run_without_input(&script, context).await.text()).unwrap();
    for stream in ["stdout", "stderr"] {
        let text = report[stream].as_str().unwrap();
        assert!(text.contains("KEY") && !text.contains("line-two"), "{text}");
    }
}

#[tokio::test]
async fn a_script_runs_with_its_interpreter_and_unchanged_arguments() {
    let fixture = Fixture::new();
    for (input, argv, cwd) in [
        (
            json!({"path": "scripts/extract.py", "args": ["--in", "$(x) 'y'", ""]}),
            &["python3", "/mnt/skills/pdf/scripts/extract.py", "--in", "$(x) 'y'", ""][..],
            "/mnt/skills/pdf",
        ),
        (json!({"path": "scripts/run", "workdir": "."}), &["/mnt/skills/pdf/scripts/run"], "/mnt/skills/pdf"),
        (
            json!({"path": "scripts/first_line", "workdir": "assets"}),
            &["/usr/bin/env", "-S awk -f", "/mnt/skills/pdf/scripts/first_line"],
            "/mnt/skills/pdf/assets",
        ),
        (
            json!({"path": "scripts/run", "workdir": "/workspace"}),
            &["/mnt/skills/pdf/scripts/run"],
            "/workspace",
        ),
    ] {
        fixture.call(&["pdf"], "skills_run_script", input).await;
        let command = fixture.executor.commands().pop().unwrap();
        assert_eq!(command.argv, argv);
        assert_eq!(command.cwd.as_deref(), Some(cwd));
        assert!(!command.merge_stderr);
    }
    fixture
        .call(
            &["pdf"],
            "skills_run_script",
            json!({"path": "scripts/extract.py", "env": {"KEY": "v", "TMPDIR": "/x"}}),
        )
        .await;
    let env = fixture.executor.commands().pop().unwrap().env;
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        env,
        [
            ("CONJURE_SCRATCH", "/tmp"),
            ("CONJURE_SKILL_DIR", "/mnt/skills/pdf"),
            ("CONJURE_WORKSPACE", "/workspace"),
            ("KEY", "v"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("PYTHONPATH", "/mnt/skills/pdf"),
            ("TMPDIR", "/x"),
        ]
    );
}

#[tokio::test]
async fn bad_input_is_named_by_its_field() {
    let fixture = Fixture::new();
    let many: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
    let run = |field: &str, value: Value| json!({"path": "scripts/extract.py", field: value});
    insta::assert_snapshot!(
        fixture
            .transcript(&[
                (&[], "skills_load", json!({})),
                (&[], "skills_load", json!({"names": []})),
                (&[], "skills_load", json!({"names": "pdf"})),
                (&[], "skills_load", json!({"names": ["pdf", 3]})),
                (&[], "skills_load", json!({"names": ["pdf"], "mode": "append"})),
                (&[], "skills_load", json!({"names": ["pdff"]})),
                (&[], "skills_load", json!({"names": ["something else"]})),
                (&[], "skills_unload", json!({})),
                (&[], "skills_unload", json!({"all": "yes"})),
                (&[], "skills_read", json!({"path": 1})),
                (&[], "skills_read", json!({"path": "a", "skill": ["pdf"]})),
                (&["pdf"], "skills_run_script", run("args", json!("--all"))),
                (&["pdf"], "skills_run_script", run("env", json!(["A=b"]))),
                (&["pdf"], "skills_run_script", run("env", json!({"A": 1}))),
                (&["pdf"], "skills_run_script", run("env", json!({"A B": "1"}))),
                (&["pdf"], "skills_run_script", run("env", json!({"CONJURE_WORKSPACE": "/"}))),
                (&["pdf"], "skills_run_script", run("workdir", json!("a\0b"))),
            ])
            .await
    );
    for args in [json!(many), json!(["x".repeat(200_000)]), json!(vec!["x".repeat(100_000); 20])] {
        let result = fixture.call(&["pdf"], "skills_run_script", run("args", args)).await;
        assert!(result.is_error);
        let text = result.text();
        assert!(text.contains("field `args` has ") && text.contains("write "), "{text}");
    }
    assert!(fixture.executor.commands().is_empty());
}

#[test]
fn call_traits_are_reported_to_the_driver() {
    let fixture = Fixture::new();
    let toolbox = fixture.toolbox_of(fixture.tools());
    let check = |tool: &str, input: Value, concurrency, idempotent| {
        let traits = toolbox.traits(&ToolCall::new("toolu_1", tool, &input));
        assert_eq!(traits, CallTraits { concurrency, idempotent }, "{tool} {input}");
    };
    check("skills_load", json!({"names": ["pdf"]}), CallConcurrency::Exclusive, true);
    check("skills_unload", json!({"all": true}), CallConcurrency::Exclusive, true);
    check("skills_read", json!({"path": "a"}), CallConcurrency::Shared, true);
    check("skills_run_script", json!({"path": "a"}), CallConcurrency::Exclusive, false);
    // It only gives an error.
    check("skills_load", json!({"names": ["nope"]}), CallConcurrency::Shared, true);
}

#[test]
fn only_useful_tools_are_offered() {
    let fixture = Fixture::new();
    let reported = |toolbox: Toolbox| -> Vec<String> {
        toolbox
            .definitions()
            .iter()
            .map(|tool| tool.name.clone())
            .filter(|name| name.starts_with("skills"))
            .collect()
    };
    let all = ["skills_load", "skills_unload", "skills_read", "skills_run_script"];
    assert_eq!(reported(fixture.toolbox_of(fixture.tools())), all);
    // Without a sandbox nothing can run.
    assert_eq!(reported(Toolbox::builder().with_skills(fixture.tools()).build().unwrap()), all[..3]);
    let only = |name: &str| {
        SessionSkills::new([Arc::clone(fixture.skills.get(name).unwrap())], SkillLocations::host())
    };
    assert_eq!(reported(fixture.toolbox_of(SkillTools::new(only("csv")))), all[..3]);
    assert!(reported(fixture.toolbox_of(SkillTools::new(SessionSkills::default()))).is_empty());
}

/// Any JSON, with the fields of the tools more often than others.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(vec!["pdf", "csv", "scripts/run", "..", "/", "add", "replace"])
            .prop_map(Value::from),
    ];
    let fields = vec!["names", "mode", "all", "skill", "path", "args", "env", "workdir", "A"];
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(fields.clone()), inner, 0..5)
                .prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    /// Whatever a model writes is understood, or refused with a reason; what is understood names skills that there are.
    #[test]
    fn any_input_is_a_request_or_a_reason(input in anything(), tool in prop::sample::select(SkillTool::ALL.to_vec())) {
        let fixture = Fixture::new();
        match SkillRequest::parse(tool, &input, &fixture.tools()) {
            Ok(SkillRequest::Load { skills, .. }) => prop_assert!((1..=3).contains(&skills.len())),
            Ok(SkillRequest::Read { skill, .. } | SkillRequest::RunScript(Script { skill, .. })) => {
                prop_assert!(skill.is_none_or(|name| fixture.skills.get(&name).is_some()));
            }
            Ok(SkillRequest::Unload(_)) => {}
            Err(reason) => prop_assert!(!reason.is_empty()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever path a model writes, nothing of the host's but the skill's own files is read.
    #[test]
    fn no_path_escapes_the_skill(parts in prop::collection::vec(
        prop::sample::select(vec!["..", ".", "/", "out.txt", "outside.txt", "references", "pdf", "csv", "", "\\", "~", "%2e%2e"]),
        0..6,
    )) {
        let fixture = Fixture::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let result = runtime.block_on(fixture.call(&["pdf"], "skills_read", json!({"path": parts.join("/")})));
        prop_assert!(!result.text().contains("secret"), "{}", result.text());
        prop_assert!(!result.text().contains(&*fixture.place.path().to_string_lossy()), "{}", result.text());
    }
}
