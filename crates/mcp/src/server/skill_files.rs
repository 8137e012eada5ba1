//! Skills as resources (SEP-2640): their files by URI, with size and digest.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use conjure_base::text::strip_deceptive;
use conjure_skill::{Skill, raw_document};
use rmcp::model::{Skill as WireSkill, SkillFrontmatter, SkillResource, SkillResources};

/// The main file of a skill.
const SKILL_MD: &str = "SKILL.md";

/// The maximum size of a file that is served, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The skills that a server serves, by name.
#[derive(Debug)]
pub(super) struct SkillFiles(BTreeMap<String, Arc<Skill>>);

impl SkillFiles {
    pub(super) fn new(skills: impl IntoIterator<Item = Arc<Skill>>) -> Self {
        Self(skills.into_iter().map(|skill| (skill.name().to_string(), skill)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Skill>> {
        self.0.values()
    }

    /// Reads a file of a skill. Blocks.
    pub(super) fn read(&self, name: &str, path: &str) -> Result<Vec<u8>, String> {
        let skill = self.0.get(name).ok_or_else(|| {
            let known: Vec<String> = self.0.keys().map(|known| format!("`{known}`")).collect();
            format!("there is no skill `{}`; the skills are: {}", name.escape_debug(), known.join(", "))
        })?;
        let file = if path == SKILL_MD { main_file(skill) } else { Path::new(path) };
        skill.read_resource_up_to(file, MAX_FILE_BYTES).map_err(|error| {
            format!("`{}` of the skill `{name}` cannot be read: {error}", path.escape_debug())
        })
    }

    /// The skill and the path in a URI such as `skill://NAME/references/a.md`.
    pub(super) fn parse_uri(uri: &str) -> Option<(&str, &str)> {
        uri.strip_prefix("skill://")?.split_once('/')
    }

    /// The URIs and sizes of a skill's files, `SKILL.md` first. Blocks.
    pub(super) fn uris(skill: &Skill) -> Vec<(String, u64)> {
        let name = skill.name();
        let size = |path: &Path| skill.resource_start(path, 0).map(|start| start.size);
        let main = size(main_file(skill)).unwrap_or(0);
        let listed = skill.resources().map(|resources| {
            let file = |path: &str, size| (format!("skill://{name}/{path}"), size);
            let files: Vec<_> = resources
                .iter()
                .filter_map(|resource| {
                    let path = resource.path().to_str()?;
                    let size = size(resource.path()).ok()?;
                    (path != SKILL_MD).then(|| file(path, size))
                })
                .collect();
            files
        });
        std::iter::once((format!("skill://{name}/{SKILL_MD}"), main))
            .chain(listed.unwrap_or_default())
            .collect()
    }

    /// The entry of a skill in `skills/list`. Reads all its files; blocks.
    pub(super) fn entry(&self, skill: &Skill) -> Result<WireSkill, String> {
        let mut files = Vec::new();
        for (uri, _) in Self::uris(skill) {
            let (name, path) = Self::parse_uri(&uri).ok_or("a file has no URI")?;
            let bytes = self.read(name, path)?;
            files.push(SkillResource::from_bytes(uri, &bytes));
        }
        let main = self.read(skill.name().as_str(), SKILL_MD)?;
        let (mut fields, _) =
            raw_document(&String::from_utf8_lossy(&main)).map_err(|error| error.message().to_owned())?;
        let mut text = |key: &str| fields.remove(key).and_then(|value| value.as_str().map(str::to_owned));
        let name = text("name").unwrap_or_else(|| skill.name().to_string());
        let description = text("description").unwrap_or_else(|| skill.description().to_owned());
        let mut frontmatter = SkillFrontmatter::new(name, strip_deceptive(&description));
        frontmatter.extra = fields;
        let uri = format!("skill://{}/{SKILL_MD}", skill.name());
        Ok(WireSkill::new(uri, frontmatter, SkillResources::Files(files)))
    }

    /// The skill whose `SKILL.md` has this URI.
    pub(super) fn of_uri(&self, uri: &str) -> Option<&Arc<Skill>> {
        let (name, path) = Self::parse_uri(uri)?;
        self.0.get(name).filter(|_| path == SKILL_MD)
    }
}

/// The name of the skill's main file, which may also be `skill.md`. It is read beneath the skill's directory, because the file may be replaced
/// by a link after the skill was loaded.
fn main_file(skill: &Skill) -> &Path {
    skill.location().file_name().map_or(Path::new(SKILL_MD), Path::new)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use conjure_skill::Mode;

    use super::*;

    #[test]
    fn no_file_is_served_through_a_link_that_leads_out() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, outside) = (temp.path().join("pdf"), temp.path().join("outside"));
        fs::create_dir(&dir).unwrap();
        fs::write(&outside, "secret").unwrap();
        fs::write(dir.join("SKILL.md"), "---\nname: pdf\ndescription: Reads.\n---\nText.\n").unwrap();
        fs::write(dir.join("a.md"), "a").unwrap();
        let skill = Arc::new(Skill::load(&dir, Mode::Strict).unwrap());
        let files = SkillFiles::new([Arc::clone(&skill)]);
        assert!(files.read("pdf", "SKILL.md").unwrap().ends_with(b"Text.\n"));
        assert_eq!(SkillFiles::uris(&skill)[1], ("skill://pdf/a.md".to_owned(), 1));
        for name in ["SKILL.md", "a.md"] {
            fs::remove_file(dir.join(name)).unwrap();
            symlink(&outside, dir.join(name)).unwrap();
            let refused = files.read("pdf", name).unwrap_err();
            assert!(refused.contains("cannot be read"), "{refused}");
        }
        assert_eq!(SkillFiles::uris(&skill), [("skill://pdf/SKILL.md".to_owned(), 0)]);
        assert!(files.entry(&skill).is_err());
    }
}
