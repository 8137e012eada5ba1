//! Links that a tool puts where it may write, and that the command comes by later: in the path of `--out`, `--record`, `--attach` and
//! `--file`, and in that of another session's workspace. None leads what the command writes or reads, or what it gives to a sandbox,
//! elsewhere.

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

    fn own_directory_is_empty(&self) {
        let names: Vec<_> =
            fs::read_dir(self.at("mine")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(names.is_empty(), "{names:?}");
    }
}

/// The session that a run tells of.
fn session(done: &Finished) -> &str {
    let (_, remainder) = done.stderr.split_once("sessions resume").unwrap();
    &remainder[remainder.find("sesn_").unwrap()..][..37]
}

/// The tool's change to the parent directory of the output path.
const EXCHANGE: &str = "echo x > made; mv inner moved; ln -s ../mine inner; mkdir -p ../mine/out";

#[test]
fn copies_go_to_the_opened_directory_and_not_through_planted_links() {
    let fixture = Fixture::new();
    fixture.run(EXCHANGE).arg("--out").arg(fixture.at("work/inner/out")).finish().code(0).says("copied to");
    assert_eq!(fs::read_to_string(fixture.at("work/moved/out/made")).unwrap(), "x\n");
    assert!(!fixture.at("mine/out/made").exists());
}

#[test]
fn a_recording_goes_to_the_opened_directory_and_not_through_planted_links() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("work/inner")).unwrap();
    fixture.run(EXCHANGE).arg("--record").arg(fixture.at("work/inner/run.json")).finish().code(0);
    assert!(fs::read_to_string(fixture.at("work/moved/run.json")).unwrap().contains("Done."));
    assert!(!fixture.at("mine/run.json").exists());
}

#[test]
fn planted_links_are_not_followed_by_the_next_run() {
    let fixture = Fixture::new();
    fs::write(fixture.at("mine/notes"), "mine").unwrap();
    fixture.run("ln -s ../mine out; ln -s ../mine/notes run.json").finish().code(0);
    for (option, place) in [("--out", "work/out"), ("--out", "work/out/new"), ("--record", "work/run.json")] {
        let refused = fixture.run("echo x > made").arg(option).arg(fixture.at(place)).finish().code(2);
        refused.says(&format!("error: `{option}`: ")).says("is a link in a directory that tools write to");
    }
    assert_eq!(fs::read_to_string(fixture.at("mine/notes")).unwrap(), "mine");
    assert_eq!(fs::read_dir(fixture.at("mine")).unwrap().count(), 1);
}

#[test]
fn planted_links_in_any_directory_of_a_sandbox_are_not_followed() {
    let fixture = Fixture::new();
    for name in ["shared", "volume", "read"] {
        fs::create_dir(fixture.at(name)).unwrap();
        symlink("../mine", fixture.at(name).join("out")).unwrap();
    }
    fixture.run("ln -s ../mine out").finish().code(0);
    let config = format!(
        "allowed_paths = [{:?}]\nvolumes = [\"{}:/v:rw\", \"{}:/r\"]\n",
        fixture.at("shared"),
        fixture.at("volume").display(),
        fixture.at("read").display()
    );
    fs::write(fixture.at("config.toml"), config).unwrap();
    // The directory `work` was the workspace of the earlier session.
    for (option, place) in
        [("--out", "shared/out"), ("--record", "volume/out/run.json"), ("--out", "work/out/new")]
    {
        let run = fixture.runs(&["run", "Go", "--sandbox", "local"], "echo x > made");
        let refused = run.arg("--config").arg(fixture.at("config.toml")).arg(option).arg(fixture.at(place));
        refused
            .finish()
            .code(2)
            .says(&format!("error: `{option}`: "))
            .says("is a link in a directory that tools write to");
    }
    fixture.own_directory_is_empty();
    let run = fixture.runs(&["run", "Go", "--sandbox", "local"], "echo x > made");
    run.arg("--config")
        .arg(fixture.at("config.toml"))
        .arg("--out")
        .arg(fixture.at("read/out"))
        .finish()
        .code(0);
    assert!(fixture.at("mine/made").exists());
}

#[test]
fn what_is_given_to_the_model_does_not_come_through_planted_links() {
    let fixture = Fixture::new();
    fs::write(fixture.at("mine/key"), "mine").unwrap();
    let done = fixture.run("ln -s ../mine/key report.txt; ln -s ../mine sub").finish().code(0);
    let refused = |command: Conjure| {
        command.finish().code(2).says("is a link in a directory that tools write to");
    };
    for (option, place) in
        [("--attach", "work/report.txt"), ("--file", "work/report.txt"), ("--file", "work/sub/key")]
    {
        refused(fixture.run("true").arg(option).arg(fixture.at(place)));
        refused(
            fixture.runs(&["run", "Go", "--sandbox", "local"], "true").arg(option).arg(fixture.at(place)),
        );
    }
    let resume = fixture.runs(&["sessions", "resume", session(&done), "Again"], "true");
    refused(resume.arg("--file").arg(fixture.at("work/report.txt")));
    let chat = fixture.runs(&["chat", "--sandbox", "local"], "true");
    refused(chat.input(format!("/attach {}\n", fixture.at("work/report.txt").display())));
    // A user's own link is followed.
    symlink("mine/key", fixture.at("key")).unwrap();
    for option in ["--attach", "--file"] {
        fixture.run("true").arg(option).arg(fixture.at("key")).finish().code(0);
    }
    assert_eq!(fs::read_to_string(fixture.at("work/key")).unwrap(), "mine");
}

#[test]
fn planted_links_are_not_followed_on_resume() {
    let fixture = Fixture::new();
    let tool = "ln -s ../mine out";
    let done = fixture.run(tool).finish().code(0);
    let id = session(&done);
    let tool = "echo x > made";
    let resume = || fixture.runs(&["sessions", "resume", id, "Again"], tool);
    for (option, place) in [("--out", "work/out"), ("--record", "work/out/run.json")] {
        let refused = resume().arg(option).arg(fixture.at(place)).finish().code(2);
        refused.says("is a link in a directory that tools write to");
    }
    fixture.own_directory_is_empty();
}

#[test]
fn the_sessions_own_directory_is_writable_by_tools() {
    let fixture = Fixture::new();
    let workspace = fixture.at("mine");
    let tool = format!("ln -s {} out", workspace.display());
    let done = fixture.runs(&["run", "Go", "--sandbox", "local"], &tool).finish().code(0);
    let (_, remainder) = done.stderr.split_once("working in ").unwrap();
    let work = Path::new(remainder.lines().next().unwrap());
    let id = session(&done);
    let resumed = fixture.runs(&["sessions", "resume", id, "Again"], "echo x > made");
    resumed
        .arg("--out")
        .arg(work.join("out"))
        .finish()
        .code(2)
        .says("is a link in a directory that tools write to");
    fixture.own_directory_is_empty();
}

#[test]
fn a_users_own_link_is_followed() {
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
fn a_session_does_not_resume_in_a_replaced_directory() {
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
        let own_dir = fixture.at("mine");
        run(&format!("mv inner old; ln -s {} inner", own_dir.display()), "work");
        let resume = |more: &[&str]| {
            let resume = fixture.runs(&["sessions", "resume", session(&inner), "Again"], "echo x > later");
            resume.args(more).finish()
        };
        let file = fixture.at("file");
        for more in [&[][..], &["--file", file.to_str().unwrap()]] {
            resume(more).code(2).says("a symbolic link stands in the path").says("put it back where it was");
        }
        fixture.own_directory_is_empty();
        // With the directory in its place again, all is well.
        fs::remove_file(fixture.at("work/inner")).unwrap();
        fs::rename(fixture.at("work/old"), fixture.at("work/inner")).unwrap();
        resume(&[]).code(0);
        assert_eq!(fs::read_to_string(fixture.at("work/inner/later")).unwrap(), "x\n");
    }
}
