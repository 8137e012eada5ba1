//! What the model reads of the runtime tools, and what they make active, over the fake executor.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use conjure_conversation::{
    Access, Authorization, CallContext, CallTraits, Delivery, Grant, GrantScope, PinnedSkill, ResultContent,
    Standing, ToolCall, ToolResult, ToolRunner as _, execute_tool_calls,
};
use conjure_prompt::{Locations, SessionSkill, SessionSkills, SkillTool};
use conjure_sandbox::{CommandEnd, SandboxError, SandboxErrorKind};
use conjure_skill::{Mode, Skill};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::fake::{FakeCommand, FakeExecutor, ended, exited};
use crate::{Toolbox, approver_fn};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";

/// Three skills on the disk: one with everything, one with nothing, and one whose instructions cannot be read.
struct Bed {
    place: TempDir,
    skills: SessionSkills,
    executor: FakeExecutor,
}

impl Bed {
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
        let skills = ["broken", "csv", "pdf"]
            .map(|name| SessionSkill::of(Arc::new(Skill::load(root.join(name), Mode::Strict).unwrap())));
        fs::remove_file(root.join("broken/SKILL.md")).unwrap();
        let locations = Locations::mapped(move |host| {
            Some(Path::new("/mnt/skills").join(host.strip_prefix(&root).ok()?))
        });
        let skills = SessionSkills::new(skills.map(Arc::new), locations);
        Self { place, skills, executor: FakeExecutor::new() }
    }

    fn tools(&self) -> SkillTools {
        SkillTools::new(self.skills.clone())
    }

    fn toolbox_of(&self, tools: SkillTools) -> Toolbox {
        Toolbox::builder().executor(Arc::new(self.executor.clone())).skills(tools).build().unwrap()
    }

    fn standing(&self, names: &[&str]) -> Standing {
        let pins: Vec<PinnedSkill> =
            names.iter().map(|name| self.skills.get(name).unwrap().pin().unwrap()).collect();
        Standing::with_active(pins)
    }

    async fn call_of(&self, tools: SkillTools, active: &[&str], tool: &str, input: Value) -> ToolResult {
        let context = CallContext { standing: self.standing(active), ..CallContext::default() };
        self.toolbox_of(tools).run(&ToolCall::new("toolu_1", tool, &input), context).await
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

fn names(set: &[PinnedSkill]) -> Vec<&str> {
    set.iter().map(|skill| skill.name.as_str()).collect()
}

#[tokio::test]
async fn loading_and_unloading() {
    let bed = Bed::new();
    insta::assert_snapshot!(
        bed.transcript(&[
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
async fn a_tool_has_its_name_on_the_wire_alone() {
    let bed = Bed::new();
    let script = json!({"path": "scripts/extract.py"});
    let result = bed.call(&["pdf"], "skills.run_script", script).await;
    assert!(result.is_error && bed.executor.commands().is_empty());
    assert_eq!(result.text(), "there is no tool `skills.run_script`; here it is called `skills_run_script`");
}

#[tokio::test]
async fn in_the_result_the_instructions_are_delivered_once() {
    let bed = Bed::new();
    let load = |active: &'static [&'static str], names: Value| {
        let tools = bed.tools().delivery(Delivery::Result);
        bed.call_of(tools, active, "skills_load", json!({"names": names, "mode": "add"}))
    };
    let both = load(&["csv"], json!(["csv", "pdf"])).await;
    assert_eq!(both.content.len(), 2);
    insta::assert_snapshot!(both.text());
    let again = load(&["csv"], json!(["csv"])).await;
    assert_eq!((again.content.len(), &again.active_skills), (1, &None));
    assert!(again.text().contains(r#""already_active":["csv"]"#), "{}", again.text());
}

#[tokio::test]
async fn no_more_is_loaded_than_may_be() {
    let bed = Bed::new();
    let tools = bed.tools().most_active(1);
    let result = bed.call_of(tools, &["csv"], "skills_load", json!({"names": ["pdf"], "mode": "add"})).await;
    assert!(result.is_error && result.active_skills.is_none());
    assert!(result.text().starts_with("2 skills would be loaded, and the most is 1"), "{}", result.text());
    let toolbox = Toolbox::builder().skills(bed.tools());
    let toolbox = toolbox.limits(OutputLimits { text: 16, ..OutputLimits::default() }).build().unwrap();
    let call = ToolCall::new("toolu_1", "skills_load", &json!({"names": ["pdf"]}));
    let result = toolbox.run(&call, CallContext::default()).await;
    assert!(result.is_error && result.active_skills.is_none());
}

/// As long as it is loaded, nothing of what the model was told of it is cut.
#[tokio::test]
async fn a_skill_is_loaded_only_where_the_result_holds_all_of_it() {
    let bed = Bed::new();
    let body = "x".repeat(300);
    let text = format!("---\nname: csv\ndescription: {}\n---\n{body}\n", "d".repeat(900));
    fs::write(bed.place.path().join("csv/SKILL.md"), text).unwrap();
    let skill = Skill::load(bed.place.path().join("csv"), Mode::Strict).unwrap();
    let skills = SessionSkills::new([Arc::new(SessionSkill::of(Arc::new(skill)))], Locations::host());
    let call = ToolCall::new("toolu_1", "skills_load", &json!({"names": ["csv"]}));
    for delivery in [Delivery::Instructions, Delivery::Result] {
        let mut loaded = 0;
        for text in (1000..3000).step_by(25) {
            let toolbox = Toolbox::builder().skills(SkillTools::new(skills.clone()).delivery(delivery));
            let toolbox = toolbox.limits(OutputLimits { text, ..OutputLimits::default() }).build().unwrap();
            let result = toolbox.run(&call, CallContext::default()).await;
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
    let bed = Bed::new();
    let read = |path: &str| json!({"path": path});
    insta::assert_snapshot!(
        bed.transcript(&[
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
    let image = bed.call(&["pdf"], "skills_read", read("assets/logo.png")).await;
    assert!(
        matches!(&image.content[..], [ResultContent::Image { media_type, .. }] if media_type == "image/png")
    );
}

#[tokio::test]
async fn a_long_file_is_cut_and_a_longer_one_refused() {
    let bed = Bed::new();
    let file = |length: usize| {
        fs::write(bed.place.path().join("pdf/long.txt"), vec![b'x'; length]).unwrap();
        bed.call(&["pdf"], "skills_read", json!({"path": "long.txt"}))
    };
    let cut = file(1024 * 1024).await;
    assert!(!cut.is_error && cut.text().len() <= OutputLimits::default().view);
    assert!(
        cut.text()
            .contains(" of 1048576 bytes are left out here; commands find it at `/mnt/skills/pdf/long.txt`]")
    );
    let refused = file(5 * 1024 * 1024).await;
    assert!(
        refused.is_error && refused.text().contains("has 5242880 bytes, and the most is"),
        "{}",
        refused.text()
    );
}

#[tokio::test]
async fn running_scripts_of_active_skills() {
    let mut bed = Bed::new();
    let lost = SandboxError::new(
        SandboxErrorKind::NotFound,
        "cannot run `python3`: it is in no folder of PATH (/bin); install it or give its full path",
    );
    let mut failed = exited(3, "half\n");
    failed.stderr.head = b"OSError: [Errno 30] Read-only file system: 'out.json'\n".to_vec();
    failed.stderr.total = failed.stderr.head.len() as u64;
    bed.executor = FakeExecutor::new()
        .with_command("ok", FakeCommand::Ends(exited(0, "one\ntwo \"quoted\"\n")))
        .with_command("fails", FakeCommand::Ends(failed))
        .with_command("slow", FakeCommand::Ends(ended(CommandEnd::TimedOut, "so far")))
        .with_command("no python", FakeCommand::Fails(lost));
    let run = |path: &str, args: &[&str]| json!({"path": path, "args": args});
    insta::assert_snapshot!(
        bed.transcript(&[
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
    let mut bed = Bed::new();
    let mut written = exited(0, format!("out {SECRET}\n"));
    written.stderr.head = format!("err {SECRET}\n").into_bytes();
    written.stderr.total = written.stderr.head.len() as u64;
    bed.executor = FakeExecutor::new().with_command("tells", FakeCommand::Ends(written));
    let builder = Toolbox::builder().executor(Arc::new(bed.executor.clone())).skills(bed.tools());
    let toolbox = builder.redactor(Redactor::new([("KEY", SECRET)])).build().unwrap();
    let script = call("skills_run_script", json!({"path": "scripts/extract.py", "args": ["tells"]}));
    let context = CallContext { standing: bed.standing(&["pdf"]), ..CallContext::default() };
    let report: Value = serde_json::from_str(&toolbox.run(&script, context).await.text()).unwrap();
    for stream in ["stdout", "stderr"] {
        let text = report[stream].as_str().unwrap();
        assert!(text.contains("KEY") && !text.contains("line-two"), "{text}");
    }
}

#[tokio::test]
async fn a_script_is_run_by_its_interpreter_with_arguments_as_they_are() {
    let bed = Bed::new();
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
        bed.call(&["pdf"], "skills_run_script", input).await;
        let command = bed.executor.commands().pop().unwrap();
        assert_eq!(command.argv, argv);
        assert_eq!(command.cwd.as_deref(), Some(cwd));
        assert!(!command.merge_stderr);
    }
    bed.call(
        &["pdf"],
        "skills_run_script",
        json!({"path": "scripts/extract.py", "env": {"KEY": "v", "TMPDIR": "/x"}}),
    )
    .await;
    let env = bed.executor.commands().pop().unwrap().env;
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
    let bed = Bed::new();
    let many: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
    let run = |field: &str, value: Value| json!({"path": "scripts/extract.py", field: value});
    insta::assert_snapshot!(
        bed.transcript(&[
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
        let result = bed.call(&["pdf"], "skills_run_script", run("args", args)).await;
        assert!(result.is_error);
        let text = result.text();
        assert!(text.contains("field `args` has ") && text.contains("write "), "{text}");
    }
    assert!(bed.executor.commands().is_empty());
}

#[test]
fn what_the_driver_knows_of_a_call() {
    let bed = Bed::new();
    let toolbox = bed.toolbox_of(bed.tools());
    let check = |tool: &str, input: Value, access, idempotent| {
        let traits = toolbox.traits(&ToolCall::new("toolu_1", tool, &input));
        assert_eq!(traits, CallTraits { access, idempotent }, "{tool} {input}");
    };
    check("skills_load", json!({"names": ["pdf"]}), Access::Exclusive, true);
    check("skills_unload", json!({"all": true}), Access::Exclusive, true);
    check("skills_read", json!({"path": "a"}), Access::Shared, true);
    check("skills_run_script", json!({"path": "a"}), Access::Exclusive, false);
    // It only gives an error.
    check("skills_load", json!({"names": ["nope"]}), Access::Shared, true);
}

#[test]
fn tools_are_there_as_far_as_they_are_of_use() {
    let bed = Bed::new();
    let told = |toolbox: Toolbox| -> Vec<String> {
        toolbox
            .definitions()
            .iter()
            .map(|tool| tool.name.clone())
            .filter(|name| name.starts_with("skills"))
            .collect()
    };
    let all = ["skills_load", "skills_unload", "skills_read", "skills_run_script"];
    assert_eq!(told(bed.toolbox_of(bed.tools())), all);
    // Without a sandbox nothing can run.
    assert_eq!(told(Toolbox::builder().skills(bed.tools()).build().unwrap()), all[..3]);
    let only =
        |name: &str| SessionSkills::new([Arc::clone(bed.skills.get(name).unwrap())], Locations::host());
    assert_eq!(told(bed.toolbox_of(SkillTools::new(only("csv")))), all[..3]);
    assert!(told(bed.toolbox_of(SkillTools::new(SessionSkills::default()))).is_empty());
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
        let bed = Bed::new();
        match SkillRequest::parse(tool, &input, &bed.tools()) {
            Ok(SkillRequest::Load { skills, .. }) => prop_assert!((1..=3).contains(&skills.len())),
            Ok(SkillRequest::Read { skill, .. } | SkillRequest::RunScript(request::Script { skill, .. })) => {
                prop_assert!(skill.is_none_or(|name| bed.skills.get(&name).is_some()));
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
    fn no_path_leads_out_of_the_skill(parts in prop::collection::vec(
        prop::sample::select(vec!["..", ".", "/", "out.txt", "outside.txt", "references", "pdf", "csv", "", "\\", "~", "%2e%2e"]),
        0..6,
    )) {
        let bed = Bed::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let result = runtime.block_on(bed.call(&["pdf"], "skills_read", json!({"path": parts.join("/")})));
        prop_assert!(!result.text().contains("secret"), "{}", result.text());
        prop_assert!(!result.text().contains(&*bed.place.path().to_string_lossy()), "{}", result.text());
    }
}

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
        Arc::new(SessionSkill::of(Arc::new(skill)))
    });
    let locations =
        Locations::mapped(move |host| Some(Path::new("/mnt/skills").join(host.strip_prefix(&root).ok()?)));
    (place, SessionSkills::new(skills, locations))
}

fn pins(skills: &SessionSkills, names: &[&str]) -> Vec<PinnedSkill> {
    names.iter().map(|name| skills.get(name).unwrap().pin().unwrap()).collect()
}

fn call(tool: &str, input: Value) -> ToolCall {
    ToolCall::new("toolu_1", tool, &input)
}

/// Whether a call runs without a question, where the approver would ask for it.
async fn runs(tools: SkillTools, active: &[&str], call: &ToolCall) -> bool {
    let ask = approver_fn(|_| async { Authorization::Ask { reason: "ask".to_owned() } });
    let standing = Standing::with_active(pins(&tools.skills, active));
    let toolbox = Toolbox::builder().executor(Arc::new(FakeExecutor::new())).approver(ask).skills(tools);
    toolbox.build().unwrap().authorize(call, &standing).await == Authorization::Allow
}

#[tokio::test]
async fn what_an_active_skill_asks_for_is_allowed_where_the_host_says_so() {
    let (_place, skills) = careful("idempotent: true", false);
    let honouring = || SkillTools::new(skills.clone()).allowed_tools(AllowedToolsPolicy::Honour);
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
    let tools = SkillTools::new(sensitive).allowed_tools(AllowedToolsPolicy::Honour);
    assert!(!runs(tools, &["deploy"], &git).await, "a sensitive skill approves nothing");
}

#[tokio::test]
async fn what_an_approver_denies_is_denied() {
    let (_place, skills) = careful("idempotent: true", false);
    let standing = Standing::with_active(pins(&skills, &["deploy"]));
    let tools = SkillTools::new(skills).allowed_tools(AllowedToolsPolicy::Honour);
    let toolbox = Toolbox::builder().executor(Arc::new(FakeExecutor::new())).skills(tools);
    let toolbox = toolbox.approver(crate::DenyAll { reason: "no".to_owned() }).build().unwrap();
    let git = call("bash_tool", json!({"command": "git status", "description": "x"}));
    assert_eq!(toolbox.authorize(&git, &standing).await, Authorization::Deny { reason: "no".to_owned() });
}

#[tokio::test]
async fn a_script_that_destroys_or_wants_answers_is_asked_for_where_somebody_can_be_asked() {
    for (execution, asks) in
        [("destructive: true", true), ("interactive: true", true), ("idempotent: true", false)]
    {
        let (_place, skills) = careful(execution, false);
        let standing = Standing::with_active(pins(&skills, &["deploy"]));
        let script = call("skills_run_script", json!({"path": "scripts/run.sh"}));
        let builder = || {
            Toolbox::builder().executor(Arc::new(FakeExecutor::new())).skills(SkillTools::new(skills.clone()))
        };
        let allowing = builder().approver(approver_fn(|_| async { Authorization::Allow })).build().unwrap();
        let authorization = allowing.authorize(&script, &standing).await;
        assert_eq!(
            matches!(&authorization, Authorization::Ask { reason } if reason.contains("`deploy`")),
            asks
        );
        // Nobody is there.
        assert_eq!(builder().build().unwrap().authorize(&script, &standing).await, Authorization::Allow);
    }
}

#[tokio::test]
async fn what_a_manifest_says_of_scripts_is_in_force() {
    let check = |execution: &'static str, named: bool, access, idempotent| {
        let (_place, skills) = careful(execution, false);
        let toolbox =
            Toolbox::builder().executor(Arc::new(FakeExecutor::new())).skills(SkillTools::new(skills));
        let skill = if named { json!("deploy") } else { Value::Null };
        let script = call("skills_run_script", json!({"path": "scripts/run.sh", "skill": skill}));
        assert_eq!(
            toolbox.build().unwrap().traits(&script),
            CallTraits { access, idempotent },
            "{execution}"
        );
    };
    check("destructive: false, idempotent: true", true, Access::Shared, true);
    check("destructive: false, idempotent: false", true, Access::Shared, false);
    // Not said is not harmless.
    check("idempotent: true", true, Access::Exclusive, true);
    check("destructive: null", true, Access::Exclusive, false);
    check("destructive: true, idempotent: true", true, Access::Exclusive, true);
    // Which skill it is depends on what is active by then.
    check("destructive: false, idempotent: true", false, Access::Exclusive, false);

    let (_place, skills) = careful("network: true, timeout: 2, destructive: true, interactive: true", false);
    let tools = SkillTools::new(skills.clone()).network(NetworkPolicy::None);
    let standing = Standing::with_active(pins(&skills, &["deploy"]));
    let toolbox =
        Toolbox::builder().executor(Arc::new(FakeExecutor::new())).skills(tools.clone()).build().unwrap();
    let receipt =
        toolbox.run(&call("skills_load", json!({"names": ["deploy"]})), CallContext::default()).await;
    let receipt: Value = serde_json::from_str(&receipt.text()).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&receipt["findings"]).unwrap());
    let script = call("skills_run_script", json!({"path": "scripts/run.sh"}));
    let request = SkillRequest::parse(SkillTool::RunScript, &script.input_value(), &tools).unwrap();
    assert_eq!(tools.time_for(&request, &standing), Some(Duration::from_secs(2)));
    let shorter = tools.longest_script(Duration::from_secs(1));
    assert_eq!(shorter.time_for(&request, &standing), Some(Duration::from_secs(1)));
}

/// A toolbox whose approver allows everything, and can ask.
fn allowing(tools: SkillTools) -> Toolbox {
    let allow = approver_fn(|_| async { Authorization::Allow });
    let script = "/mnt/skills/deploy/scripts/run.sh";
    let executor = FakeExecutor::new().with_command(script, FakeCommand::Ends(exited(0, "ran")));
    Toolbox::builder().executor(Arc::new(executor)).approver(allow).skills(tools).build().unwrap()
}

fn run_of(skill: Value) -> ToolCall {
    call("skills_run_script", json!({"path": "scripts/run.sh", "skill": skill}))
}

#[tokio::test]
async fn a_script_is_judged_by_its_skill_before_that_is_loaded() {
    let (_place, skills) = careful("destructive: true", false);
    let toolbox = allowing(SkillTools::new(skills.clone()));
    let asks = async |call: &ToolCall, active: &[&str]| {
        let standing = Standing::with_active(pins(&skills, active));
        matches!(toolbox.authorize(call, &standing).await, Authorization::Ask { .. })
    };
    // An earlier call of the same answer may load it.
    assert!(asks(&run_of(json!("deploy")), &[]).await);
    assert!(asks(&run_of(json!("deploy")), &["other"]).await);
    assert!(asks(&run_of(Value::Null), &[]).await);
    assert!(!asks(&run_of(json!("other")), &[]).await);
    assert!(!asks(&run_of(Value::Null), &["other"]).await);
    let honouring = SkillTools::new(skills.clone()).allowed_tools(AllowedToolsPolicy::Honour);
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
        let standing = Standing::with_active(pins(&skills, active));
        let context = CallContext { standing, ..CallContext::default() };
        let calls = [call("skills_load", json!({"names": ["deploy"]})), run_of(skill)];
        let results = execute_tool_calls(&toolbox, &calls, context).await;
        assert_eq!((results[0].is_error, results[1].is_error), (false, is_error), "{}", results[1].text());
        assert_eq!(results[1].text().contains("name the skill in field `skill`"), is_error);
    }
}

/// Whether a call runs without a question, where the approver would ask for it, these skills are active and this was granted.
async fn is_granted_by(skills: &SessionSkills, active: &[&str], grant: Grant, asked: &ToolCall) -> bool {
    let standing = Standing::with_active(pins(skills, active)).granting([grant]);
    let ask = approver_fn(|_| async { Authorization::Ask { reason: "ask".to_owned() } });
    let tools = SkillTools::new(skills.clone());
    let toolbox = Toolbox::builder().executor(Arc::new(FakeExecutor::new())).approver(ask).skills(tools);
    toolbox.build().unwrap().authorize(asked, &standing).await == Authorization::Allow
}

#[tokio::test]
async fn what_is_granted_for_a_skill_is_not_granted_for_scripts_of_another() {
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
async fn a_rule_for_a_path_does_not_speak_of_a_script_that_is_given_variables() {
    let (_place, skills) = careful("idempotent: true", false);
    let script = |env: Value| call("skills_run_script", json!({"path": "scripts/run.sh", "env": env}));
    for (env, expected) in
        [(Value::Null, true), (json!({}), true), (json!({"BASH_ENV": "/workspace/x"}), false)]
    {
        let honouring = SkillTools::new(skills.clone()).allowed_tools(AllowedToolsPolicy::Honour);
        assert_eq!(runs(honouring, &["deploy"], &script(env.clone())).await, expected, "{env}");
        let granted = async |rule: &str| {
            let grant = Grant { rule: rule.to_owned(), scope: GrantScope::Session };
            is_granted_by(&skills, &["deploy"], grant, &script(env.clone())).await
        };
        assert_eq!(granted("skills.run_script(scripts/run.sh)").await, expected, "{env}");
        assert!(granted("skills_run_script").await, "a rule without a pattern speaks of every call");
    }
}
