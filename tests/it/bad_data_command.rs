//! A data folder that cannot be used, or has lost something: the command names what, where, and what helps.

use std::path::{Path, PathBuf};

use crate::support::{Conjure, Finished, script};

/// A data folder with one session of a script, at rest.
struct Bed {
    folder: tempfile::TempDir,
    script: tempfile::NamedTempFile,
}

impl Bed {
    fn new() -> Self {
        let bed =
            Self { folder: tempfile::tempdir().unwrap(), script: script(&"- content: Done.\n".repeat(8)) };
        bed.run(&[]).code(0);
        bed
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn journal(&self) -> PathBuf {
        self.data().join("journal/journal.sqlite")
    }

    fn told(&self, starter: &[&str], arguments: &[&str]) -> Conjure {
        Conjure::started_by(starter, arguments).env("CONJURE_DATA", self.data())
    }

    fn run(&self, starter: &[&str]) -> Finished {
        let run = self.told(starter, &["run", "--sandbox", "local", "--script"]).arg(self.script.path());
        run.arg("Go").finish()
    }

    fn list(&self) -> Finished {
        self.told(&[], &["sessions", "list"]).finish()
    }

    fn resume(&self) -> Finished {
        let id = self.list().code(0).stdout[..36].to_owned();
        let resume = self.told(&[], &["sessions", "resume", &id, "--script"]).arg(self.script.path());
        resume.arg("And now?").finish()
    }

    /// What was said, with the folder's name taken out.
    fn said(&self, finished: &Finished) -> String {
        finished.stderr.replace(self.folder.path().to_str().unwrap(), "[FOLDER]")
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
fn a_journal_that_is_damaged_is_named_with_what_helps() {
    let bed = Bed::new();
    let whole = std::fs::read(bed.journal()).unwrap();
    let mut future = whole.clone();
    // The field that SQLite keeps for a program's own version, big-endian.
    future[60..64].copy_from_slice(&4242_u32.to_be_bytes());
    let mut told = String::new();
    for bytes in [whole[..whole.len() / 2].to_vec(), b"These are notes. ".repeat(1000), future] {
        replace(&bed.journal(), &bytes);
        told += &bed.said(&bed.list().code(2));
        bed.run(&[]).code(2).says("hint: ");
    }
    insta::assert_snapshot!("damaged_journals", told);
    // Nothing was made worse by looking.
    replace(&bed.journal(), &whole);
    assert_eq!(bed.resume().code(0).stdout, "Done.\n");
}

#[test]
fn a_journal_that_cannot_be_written_is_named_with_what_helps() {
    let bed = Bed::new();
    let data = bed.data();
    // Mounts of their own, which go with the command.
    let mounted = |mount: &str| {
        let script = format!("{mount} && exec \"$@\"");
        let data = data.to_str().unwrap();
        let script = script.replace("DATA", data);
        let starter = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"];
        bed.said(&bed.run(&starter).code(2))
    };
    let read_only = mounted("mount --bind DATA DATA && mount -o remount,bind,ro DATA");
    let full = mounted("mount -t tmpfs -o size=64k full DATA");
    insta::assert_snapshot!("unwritable_journals", read_only + &full);
    assert_eq!(bed.resume().code(0).stdout, "Done.\n");
}

#[test]
fn a_data_folder_that_is_not_there_is_not_made_by_looking() {
    let bed = Bed::new();
    let missing = bed.folder.path().join("misspelt");
    let list = |folder: &Path| Conjure::new(["sessions", "list", "--data"]).arg(folder).finish().code(2);
    list(&missing).says("misspelt` is not there").says("hint: `--data DIR`");
    assert!(!missing.exists());
    list(bed.script.path()).says("cannot be used").says("hint: `--data DIR`");
    // Without a name, it is the usual one, in which nothing was done yet.
    Conjure::new(["sessions", "list"]).finish().code(0).says("no sessions");
}

#[test]
fn what_a_session_has_lost_is_named_with_what_helps() {
    let bed = Bed::new();
    let workspace = bed.folder.path().join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let run = bed.told(&[], &["run", "--sandbox", "local", "--skills", "fixtures/skills", "--script"]);
    run.arg(bed.script.path()).arg("--workspace").arg(&workspace).arg("Go").finish().code(0);
    std::fs::remove_dir(&workspace).unwrap();
    let no_folder = bed.said(&bed.resume().code(2));
    insta::assert_snapshot!("workspace_is_gone", no_folder);
    std::fs::create_dir(&workspace).unwrap();
    std::fs::rename(bed.data().join("tenants/local/skills"), bed.folder.path().join("skills")).unwrap();
    let no_skills = bed.resume().code(1).says("is not there any more").says("hint: put the folder back");
    assert_eq!(no_skills.stdout, "");
    std::fs::rename(bed.folder.path().join("skills"), bed.data().join("tenants/local/skills")).unwrap();
    assert_eq!(bed.resume().code(0).stdout, "Done.\n");
}
