//! An unusable or damaged data directory: the command names the cause, the file and a hint.

use std::path::{Path, PathBuf};

use crate::support::{Conjure, Finished, script};

/// A data directory with one session of a script, at rest.
struct Fixture {
    dir: tempfile::TempDir,
    script: tempfile::NamedTempFile,
}

impl Fixture {
    fn new() -> Self {
        let fixture =
            Self { dir: tempfile::tempdir().unwrap(), script: script(&"- content: Done.\n".repeat(8)) };
        fixture.run(&[]).code(0);
        fixture
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn journal(&self) -> PathBuf {
        self.data().join("journal/journal.sqlite")
    }

    fn command(&self, starter: &[&str], arguments: &[&str]) -> Conjure {
        Conjure::started_by(starter, arguments).env("CONJURE_DATA", self.data())
    }

    fn run(&self, starter: &[&str]) -> Finished {
        let run = self.command(starter, &["run", "--sandbox", "local", "--script"]).arg(self.script.path());
        run.arg("Go").finish()
    }

    fn list(&self) -> Finished {
        self.command(&[], &["sessions", "list"]).finish()
    }

    fn resume(&self) -> Finished {
        let id = self.list().code(0).stdout[..37].to_owned();
        let resume = self.command(&[], &["sessions", "resume", &id, "--script"]).arg(self.script.path());
        resume.arg("And now?").finish()
    }

    /// The message, without the name of the directory.
    fn normalized_error(&self, finished: &Finished) -> String {
        finished.stderr.replace(self.dir.path().to_str().unwrap(), "[DIRECTORY]")
    }
}

/// With other bytes in the place of the journal, and nothing beside it.
fn replace(journal: &Path, bytes: &[u8]) {
    for log in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{log}", journal.display()));
    }
    std::fs::write(journal, bytes).unwrap();
}

#[test]
fn a_damaged_journal_is_reported_with_a_hint() {
    let fixture = Fixture::new();
    let complete = std::fs::read(fixture.journal()).unwrap();
    let mut future = complete.clone();
    // The field that SQLite keeps for a program's own version, big-endian.
    future[60..64].copy_from_slice(&4242_u32.to_be_bytes());
    let mut message = String::new();
    for bytes in [complete[..complete.len() / 2].to_vec(), b"These are notes. ".repeat(1000), future] {
        replace(&fixture.journal(), &bytes);
        message += &fixture.normalized_error(&fixture.list().code(2));
        fixture.run(&[]).code(2).says("hint: ");
    }
    insta::assert_snapshot!("damaged_journals", message);
    // The command changed nothing.
    replace(&fixture.journal(), &complete);
    assert_eq!(fixture.resume().code(0).stdout, "Done.\n");
}

#[test]
fn an_unwritable_journal_is_reported_with_a_hint() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new();
    let data = fixture.data();
    // Mounts of their own, which go with the command.
    let mounted = |mount: &str| {
        let script = format!("{mount} && exec \"$@\"");
        let data = data.to_str().unwrap();
        let script = script.replace("DATA", data);
        let starter = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"];
        fixture.normalized_error(&fixture.run(&starter).code(2))
    };
    let read_only = mounted("mount --bind DATA DATA && mount -o remount,bind,ro DATA");
    let full = mounted("mount -t tmpfs -o size=64k full DATA");
    insta::assert_snapshot!("unwritable_journals", read_only + &full);
    assert_eq!(fixture.resume().code(0).stdout, "Done.\n");
}

#[test]
fn read_only_commands_do_not_create_the_data_directory() {
    let fixture = Fixture::new();
    let missing = fixture.dir.path().join("misspelt");
    let list = |dir: &Path| Conjure::new(["sessions", "list", "--data"]).arg(dir).finish().code(2);
    list(&missing).says("misspelt` is not there").says("hint: `--data DIR`");
    assert!(!missing.exists());
    list(fixture.script.path()).says("cannot be used").says("hint: `--data DIR`");
    // Without a name, it is the usual one, in which nothing was done yet.
    Conjure::new(["sessions", "list"]).finish().code(0).says("no sessions");
}

#[test]
fn lost_files_of_a_session_are_reported_with_a_hint() {
    let fixture = Fixture::new();
    let workspace = fixture.dir.path().join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let run = fixture.command(&[], &["run", "--sandbox", "local", "--skills", "fixtures/skills", "--script"]);
    run.arg(fixture.script.path()).arg("--workspace").arg(&workspace).arg("Go").finish().code(0);
    std::fs::remove_dir(&workspace).unwrap();
    let no_dir = fixture.normalized_error(&fixture.resume().code(2));
    insta::assert_snapshot!("workspace_is_gone", no_dir);
    std::fs::create_dir(&workspace).unwrap();
    std::fs::rename(fixture.data().join("tenants/local/skills"), fixture.dir.path().join("skills")).unwrap();
    let no_skills =
        fixture.resume().code(1).says("is not there any more").says("hint: put the directory back");
    assert_eq!(no_skills.stdout, "");
    std::fs::rename(fixture.dir.path().join("skills"), fixture.data().join("tenants/local/skills")).unwrap();
    assert_eq!(fixture.resume().code(0).stdout, "Done.\n");
}
