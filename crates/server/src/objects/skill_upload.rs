//! Builds the package of a skill from an upload: the files of one directory, or an archive of it.
//!
//! The files are written to a private directory, validated as a skill, and packed again. So every stored package has the same form: all
//! files are below a directory with the skill's name.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path};

use conjure_skill::{Package, PackageLimits, pack};

/// The maximum length of a file's path in bytes, and the maximum number of its components.
const MAX_PATH: usize = 512;
const MAX_DEPTH: usize = 16;

/// An uploaded file.
pub(crate) struct UploadedFile {
    /// The path, as the client sent it.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

/// The package of a skill.
pub(crate) struct SkillPackage {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) bytes: Vec<u8>,
}

/// Builds the package. Blocks.
///
/// # Errors
/// The reason why the files are not a valid skill, as text for the client.
pub(crate) fn package(files: Vec<UploadedFile>) -> Result<SkillPackage, String> {
    let failed = |error: &dyn std::fmt::Display| format!("files: the skill cannot be read: {error}");
    match <[UploadedFile; 1]>::try_from(files) {
        Ok([archive]) if archive.bytes.starts_with(b"PK") => {
            let package = Package::from_bytes(archive.bytes, archive.path, PackageLimits::default());
            let unpacked =
                package.and_then(|package| package.extract(None)).map_err(|error| failed(&error))?;
            packed(unpacked.path())
        }
        Ok(files) => from_dir(&files),
        Err(files) => from_dir(&files),
    }
}

fn from_dir(files: &[UploadedFile]) -> Result<SkillPackage, String> {
    let dir = tempfile::tempdir().map_err(|error| format!("files: they cannot be written: {error}"))?;
    let mut top: Option<&str> = None;
    for file in files {
        let (first, _) = checked(&file.path)?;
        match top {
            Some(top) if top != first => {
                return Err(format!(
                    "files: `{}` is not in the directory `{top}` of the others; upload the files of one directory",
                    file.path.escape_debug()
                ));
            }
            _ => top = Some(first),
        }
        write(&dir.path().join(&file.path), &file.bytes)
            .map_err(|error| format!("files: `{}` cannot be written: {error}", file.path.escape_debug()))?;
    }
    let top = top.ok_or(
        "files: the field is missing; upload the files of a directory with a `SKILL.md`, or a zip of it",
    )?;
    packed(&dir.path().join(top))
}

/// Splits a path into its first component and the rest. Fails unless the path is a plain relative path of a file below a directory.
fn checked(path: &str) -> Result<(&str, &str), String> {
    let is_plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
        && !path.split('/').any(|name| matches!(name, "" | "." | ".."))
        && !path.chars().any(|char| char.is_control() || char == '\\');
    let fits = path.len() <= MAX_PATH && path.split('/').count() <= MAX_DEPTH;
    path.split_once('/').filter(|_| is_plain && fits).ok_or_else(|| {
        format!(
            "files: `{}` is not the path of a file in a directory; name each file as `NAME/SKILL.md`, without `..`, `\\` and \
             control characters, in at most {MAX_DEPTH} directories",
            path.escape_debug()
        )
    })
}

/// Writes a new file. Scripts become executable.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mode = if bytes.starts_with(b"#!") { 0o755 } else { 0o644 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(bytes)
}

fn packed(dir: &Path) -> Result<SkillPackage, String> {
    let mut bytes = Vec::new();
    let report = pack(dir, &mut bytes, PackageLimits::default()).map_err(|error| {
        // Removes the private directory from the message, because it means nothing to the client.
        let parent = dir.parent().unwrap_or(dir).display().to_string();
        format!("files: the skill is not valid: {}", error.to_string().replace(&format!("{parent}/"), ""))
    })?;
    Ok(SkillPackage {
        name: report.skill.name().to_string(),
        description: report.skill.description().to_string(),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SKILL: &str = "---\nname: greeter\ndescription: Greets people\n---\nSay hello.\n";

    fn file(path: &str, bytes: &[u8]) -> UploadedFile {
        UploadedFile { path: path.to_owned(), bytes: bytes.to_vec() }
    }

    #[test]
    fn a_directory_and_its_archive_make_the_same_package() {
        let dir =
            package(vec![file("greeter/SKILL.md", SKILL.as_bytes()), file("greeter/run.sh", b"#!/bin/sh\n")])
                .unwrap();
        assert_eq!((dir.name.as_str(), dir.description.as_str()), ("greeter", "Greets people"));
        let archive = package(vec![file("greeter.zip", &dir.bytes)]).unwrap();
        assert_eq!(archive.bytes, dir.bytes);
    }

    #[test]
    fn what_leaves_its_directory_is_refused() {
        for path in [
            "SKILL.md",
            "/greeter/SKILL.md",
            "greeter/../SKILL.md",
            "greeter//SKILL.md",
            "greeter/a\\b",
            "a/\n",
        ] {
            let error = package(vec![file(path, SKILL.as_bytes())]).err().unwrap();
            assert!(error.contains("is not the path of a file in a directory"), "{path}: {error}");
        }
        let two = vec![file("greeter/SKILL.md", SKILL.as_bytes()), file("other/a", b"")];
        assert!(package(two).err().unwrap().contains("`other/a` is not in the directory `greeter`"));
        let twice = vec![file("greeter/SKILL.md", SKILL.as_bytes()), file("greeter/SKILL.md", b"")];
        assert!(package(twice).err().unwrap().contains("cannot be written"));
        assert!(package(Vec::new()).err().unwrap().contains("the field is missing"));
    }

    #[test]
    fn what_is_no_skill_is_refused_without_the_servers_paths() {
        let error = package(vec![file("greeter/README.md", b"")]).err().unwrap();
        assert!(error.starts_with("files: the skill is not valid: ") && !error.contains("/tmp"), "{error}");
        let error = package(vec![file("other/SKILL.md", SKILL.as_bytes())]).err().unwrap();
        assert!(error.starts_with("files: the skill is not valid: "), "{error}");
        let error = package(vec![file("a.zip", b"PK\x03\x04 broken")]).err().unwrap();
        assert!(error.starts_with("files: the skill cannot be read: "), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn any_path_is_taken_below_its_directory_or_refused(path in "[a-z./\\\\ \\x00-\\x1fä]{0,24}") {
            if let Ok(package) = package(vec![file("greeter/SKILL.md", SKILL.as_bytes()), file(&path, b"")]) {
                let package = Package::from_bytes(package.bytes, "greeter.zip", PackageLimits::default()).unwrap();
                let unpacked = package.extract(None).unwrap();
                proptest::prop_assert!(unpacked.path().ends_with("greeter"));
            }
        }

        #[test]
        fn a_broken_archive_is_read_or_refused(changes in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), 0..=u8::MAX), 1..8)) {
            let mut bytes = package(vec![file("greeter/SKILL.md", SKILL.as_bytes()), file("greeter/a", &[7; 300])]).unwrap().bytes;
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            let _ = package(vec![file("a.zip", &bytes)]);
        }
    }
}
