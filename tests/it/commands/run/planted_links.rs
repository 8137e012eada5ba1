//! Links that a tool puts where it may write, and that the command comes by later: in the path of `--out` and `--record`, and in that
//! of another session's workspace. None leads what the command writes, or what it gives to a sandbox, elsewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::support::{Conjure, Finished, script};

/// `work` is where tools work; `mine` is the user's.
struct Fixture {
    _temp: tempfile::TempDir,
    top: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        for name in ["work", "mine"] {
            fs::create_dir(top.join(name)).unwrap();
        }
        Self { _temp: temp, top }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    /// A command in which a tool runs `tool` in the workspace.
    fn runs(&self, command: &[&str], tool: &str) -> Conjure {
        let text = format!(
            "- content: [{{tool_use: {{name: bash_tool, input: {{command: '{tool}', description: x}}}}}}]\n- content: Done.\n"
        );
        let script = script(&text.repeat(4));
        let path = self.at("script.yaml");
        fs::copy(script.path(), &path).unwrap();
        Conjure::new(command).arg("--script").arg(path).arg("--data").arg(self.at("data"))
    }

    fn run(&self, tool: &str) -> Conjure {
        self.runs(&["run", "Go", "--sandbox", "local"], tool).arg("--workspace").arg(self.at("work"))
    }

    fn mine_is_empty(&self) {
        let names: Vec<_> =
            fs::read_dir(self.at("mine")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(names.is_empty(), "{names:?}");
    }
}

/// The session that a run tells of.
fn session(done: &Finished) -> &str {
    let (_, rest) = done.stderr.split_once("sessions resume").unwrap();
    &rest[rest.find("sesn_").unwrap()..][..37]
}

/// What the tool does with the folder around the place that the command writes to.
const EXCHANGE: &str = "echo x > made; mv inner moved; ln -s ../mine inner; mkdir -p ../mine/out";

#[test]
fn copies_go_to_the_folder_that_was_opened_and_not_where_a_tool_leads_them() {
    let fixture = Fixture::new();
    fixture.run(EXCHANGE).arg("--out").arg(fixture.at("work/inner/out")).finish().code(0).says("copied to");
    assert_eq!(fs::read_to_string(fixture.at("work/moved/out/made")).unwrap(), "x\n");
    assert!(!fixture.at("mine/out/made").exists());
}

#[test]
fn a_recording_goes_to_the_folder_that_was_opened_and_not_where_a_tool_leads_it() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("work/inner")).unwrap();
    fixture.run(EXCHANGE).arg("--record").arg(fixture.at("work/inner/run.json")).finish().code(0);
    assert!(fs::read_to_string(fixture.at("work/moved/run.json")).unwrap().contains("Done."));
    assert!(!fixture.at("mine/run.json").exists());
}

#[test]
fn links_that_a_tool_left_are_not_followed_by_the_next_run() {
    let fixture = Fixture::new();
    fs::write(fixture.at("mine/notes"), "mine").unwrap();
    fixture.run("ln -s ../mine out; ln -s ../mine/notes run.json").finish().code(0);
    for (option, place) in [("--out", "work/out"), ("--out", "work/out/new"), ("--record", "work/run.json")] {
        let refused = fixture.run("echo x > made").arg(option).arg(fixture.at(place)).finish().code(2);
        refused.says(&format!("error: `{option}`: ")).says("is a link in a folder that tools write to");
    }
    assert_eq!(fs::read_to_string(fixture.at("mine/notes")).unwrap(), "mine");
    assert_eq!(fs::read_dir(fixture.at("mine")).unwrap().count(), 1);
}

#[test]
fn links_that_a_tool_left_are_not_followed_when_its_session_goes_on() {
    let fixture = Fixture::new();
    let tool = "ln -s ../mine out";
    let done = fixture.run(tool).finish().code(0);
    let id = session(&done);
    let tool = "echo x > made";
    let resume = || fixture.runs(&["sessions", "resume", id, "Again"], tool);
    for (option, place) in [("--out", "work/out"), ("--record", "work/out/run.json")] {
        let refused = resume().arg(option).arg(fixture.at(place)).finish().code(2);
        refused.says("is a link in a folder that tools write to");
    }
    fixture.mine_is_empty();
}

#[test]
fn the_session_s_own_folder_is_one_that_tools_write_to() {
    let fixture = Fixture::new();
    let mine = fixture.at("mine");
    let tool = format!("ln -s {} out", mine.display());
    let done = fixture.runs(&["run", "Go", "--sandbox", "local"], &tool).finish().code(0);
    let (_, rest) = done.stderr.split_once("working in ").unwrap();
    let work = Path::new(rest.lines().next().unwrap());
    let id = session(&done);
    let resumed = fixture.runs(&["sessions", "resume", id, "Again"], "echo x > made");
    resumed
        .arg("--out")
        .arg(work.join("out"))
        .finish()
        .code(2)
        .says("is a link in a folder that tools write to");
    fixture.mine_is_empty();
}

#[test]
fn a_link_of_the_user_s_own_leads_where_it_leads() {
    let fixture = Fixture::new();
    symlink("mine", fixture.at("link")).unwrap();
    symlink("mine/old.json", fixture.at("run.json")).unwrap();
    fs::write(fixture.at("mine/old.json"), "old").unwrap();
    let run = fixture
        .run("echo x > made")
        .arg("--out")
        .arg(fixture.at("link"))
        .arg("--record")
        .arg(fixture.at("run.json"));
    run.finish().code(0).says(&format!("copied to {}:", fixture.at("mine").display()));
    assert_eq!(fs::read_to_string(fixture.at("mine/made")).unwrap(), "x\n");
    assert!(fs::read_to_string(fixture.at("mine/old.json")).unwrap().contains("Done."));
    assert!(fixture.at("run.json").is_symlink());
}

#[test]
fn a_session_does_not_go_on_in_a_folder_that_another_one_s_tool_put_in_the_place_of_its_own() {
    if !test_support::has_user_namespaces() {
        return;
    }
    for kind in ["jail", "local"] {
        let fixture = Fixture::new();
        fs::create_dir(fixture.at("work/inner")).unwrap();
        fs::write(fixture.at("file"), "file").unwrap();
        let run = |tool: &str, workspace: &str| {
            let run = fixture
                .runs(&["run", "Go", "--sandbox", kind], tool)
                .arg("--workspace")
                .arg(fixture.at(workspace));
            run.finish().code(0)
        };
        let inner = run("echo x > made", "work/inner");
        let mine = fixture.at("mine");
        run(&format!("mv inner old; ln -s {} inner", mine.display()), "work");
        let resume = |more: &[&str]| {
            let resume = fixture.runs(&["sessions", "resume", session(&inner), "Again"], "echo x > later");
            resume.args(more).finish()
        };
        let file = fixture.at("file");
        for more in [&[][..], &["--file", file.to_str().unwrap()]] {
            resume(more).code(2).says("a symbolic link stands in the path").says("put it back where it was");
        }
        fixture.mine_is_empty();
        // With the folder in its place again, all is well.
        fs::remove_file(fixture.at("work/inner")).unwrap();
        fs::rename(fixture.at("work/old"), fixture.at("work/inner")).unwrap();
        resume(&[]).code(0);
        assert_eq!(fs::read_to_string(fixture.at("work/inner/later")).unwrap(), "x\n");
    }
}
