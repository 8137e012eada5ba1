//! Python's `zipfile` reads what we write, and we read what it writes. The interpreter is `CONJURE_ORACLE_PYTHON`, else
//! `python3`. Without `skills_ref` in it the test says so and passes, unless `CONJURE_TEST_REQUIRE=all`.

use std::fs;
use std::process::Command;

use super::packing::dir_with;
use super::*;
use crate::Skill;

const SCRIPT: &str = r#"
import os, sys, zipfile
from skills_ref import validate, read_properties
from pathlib import Path
package, target, directory, made = map(Path, sys.argv[1:])
# What we wrote: sound, unpacked by Python, valid for the reference, and the same files.
with zipfile.ZipFile(package) as archive:
    assert archive.testzip() is None
    assert [info.filename for info in archive.infolist()] == sorted(archive.namelist())
    assert all(info.date_time == (1980, 1, 1, 0, 0, 0) for info in archive.infolist())
    modes = {info.filename: oct(info.external_attr >> 16) for info in archive.infolist()}
    assert modes["good/scripts/run.sh"] == "0o100755", modes
    assert modes["good/SKILL.md"] == "0o100644", modes
    archive.extractall(target)
assert validate(target / "good") == [], validate(target / "good")
assert read_properties(target / "good").name == "good"
def files(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
assert files(target / "good") == files(directory)
# What Python writes, each way that it can.
class Stream:
    def __init__(self, path): self.file = open(path, "wb")
    def write(self, data): return self.file.write(data)
    def flush(self): self.file.flush()
for name, root, method, stream, zip64 in [
    ("deflated", "good/", zipfile.ZIP_DEFLATED, False, False),
    ("stored", "good/", zipfile.ZIP_STORED, False, False),
    ("at-root", "", zipfile.ZIP_DEFLATED, False, False),
    ("streamed", "good/", zipfile.ZIP_DEFLATED, True, False),
    ("zip64", "good/", zipfile.ZIP_DEFLATED, False, True),
    ("streamed-zip64", "good/", zipfile.ZIP_DEFLATED, True, True),
    ("directories", "good/", zipfile.ZIP_DEFLATED, False, False),
]:
    path = made / f"{name}.skill"
    target = Stream(path) if stream else path
    with zipfile.ZipFile(target, "w", method) as archive:
        for file in sorted(directory.rglob("*")):
            arcname = root + str(file.relative_to(directory))
            if file.is_dir():
                if name == "directories": archive.write(file, arcname)
            elif zip64 or stream:
                with archive.open(zipfile.ZipInfo(arcname), "w", force_zip64=zip64) as member:
                    member.write(file.read_bytes())
            else:
                archive.write(file, arcname)
        archive.comment = b"made by Python"
    if stream: target.file.close()
print("ok")
"#;

#[test]
fn packages_are_compatible_with_python() {
    let Some(python) = python() else { return };
    let (temp, dir) =
        dir_with(&[("scripts/run.sh", "#!/bin/sh\n"), ("references/日本.md", "é\n"), ("assets/empty", "")]);
    fs::set_permissions(dir.join("scripts/run.sh"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let package = temp.path().join("good.skill");
    pack_file(&dir, &package, PackageLimits::default()).unwrap();
    let (target, made) = (temp.path().join("target"), temp.path().join("made"));
    fs::create_dir(&made).unwrap();
    let script = temp.path().join("oracle.py");
    fs::write(&script, SCRIPT).unwrap();
    let output = command(&python).args([&script, &package, &target, &dir, &made]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let digests = Skill::load(&dir, Mode::Strict).unwrap().digests().unwrap();
    let mut read = Vec::new();
    for entry in fs::read_dir(&made).unwrap() {
        let path = entry.unwrap().path();
        let skill = load_skill_file(&path, Mode::Strict)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(skill.digests().unwrap(), digests, "{}", path.display());
        read.push(path);
    }
    assert_eq!(read.len(), 7);
}

#[expect(clippy::disallowed_methods, reason = "a test asks which oracle there is")]
fn python() -> Option<String> {
    let python = std::env::var("CONJURE_ORACLE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let imported = command(&python).args(["-c", "import skills_ref"]).output();
    if imported.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let reason = format!("`{python}` has no `skills-ref` of PyPI, and CONJURE_ORACLE_PYTHON names no other");
    test_support::skip(&reason, ".ci/run installs it");
    None
}

#[expect(clippy::disallowed_methods, reason = "a test starts its oracle")]
fn command(program: &str) -> Command {
    Command::new(program)
}
