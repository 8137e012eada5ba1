//! Validates an uploaded skill or file as the service does.

use bytes::Bytes;
use conjure_skill::{Frontmatter, Mode};

use super::multipart_parser::{Field, parse};
use crate::fake::refusal::Refusal;

/// The largest total size of a skill's files, in bytes.
const MAX_SKILL_BYTES: usize = 30_000_000;
/// The longest title, in characters.
const MAX_TITLE_CHARS: usize = 255;

/// An uploaded skill.
#[derive(Debug)]
pub(super) struct UploadedSkill {
    pub(super) title: Option<String>,
    pub(super) name: String,
    pub(super) description: String,
    /// The files by path, including the top directory.
    pub(super) files: Vec<(String, Bytes)>,
}

/// Reads the form of a skill. `title` is the name of the title field, if one is allowed.
pub(super) fn skill(content_type: &str, body: &Bytes, title: Option<&str>) -> Result<UploadedSkill, Refusal> {
    let fields = parse(content_type, body).map_err(Refusal::invalid)?;
    let mut uploaded =
        UploadedSkill { title: None, name: String::new(), description: String::new(), files: Vec::new() };
    for field in fields {
        if Some(field.name.as_str()) == title {
            let text = String::from_utf8(field.content.to_vec());
            let text = text.map_err(|_| Refusal::invalid(format!("{}: not UTF-8", field.name)))?;
            if text.chars().count() > MAX_TITLE_CHARS {
                let message =
                    format!("{}: String should have at most {MAX_TITLE_CHARS} characters", field.name);
                return Err(Refusal::invalid(message));
            }
            uploaded.title = Some(text);
        } else if field.name == "files[]" {
            let name = field.file_name.filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| Refusal::invalid("files: each file needs a filename"))?;
            uploaded.files.push((name, field.content));
        } else {
            return Err(Refusal::invalid(format!("{}: Extra inputs are not permitted", field.name)));
        }
    }
    if uploaded.files.iter().map(|(_, content)| content.len()).sum::<usize>() > MAX_SKILL_BYTES {
        return Err(Refusal::too_large());
    }
    let top = |name: &str| name.split_once('/').map(|(top, _)| top.to_owned());
    let dir = uploaded.files.first().and_then(|(name, _)| top(name)).unwrap_or_default();
    let is_in_dir = |(name, _): &(String, Bytes)| top(name).as_deref() == Some(dir.as_str());
    if dir.is_empty() || !uploaded.files.iter().all(is_in_dir) {
        return Err(Refusal::invalid("files: All files must be in the same top-level directory"));
    }
    let main = format!("{dir}/SKILL.md");
    let main = uploaded.files.iter().find(|(name, _)| *name == main);
    let (_, main) = main.ok_or_else(|| Refusal::invalid("files: SKILL.md not found at the root"))?;
    let text = std::str::from_utf8(main).map_err(|_| Refusal::invalid("SKILL.md: not UTF-8"))?;
    let document = Frontmatter::parse(text, Mode::Strict);
    let document =
        document.map_err(|error| Refusal::invalid(format!("SKILL.md: invalid frontmatter: {error}")))?;
    if document.frontmatter.name().as_str() != dir {
        return Err(Refusal::invalid("SKILL.md: `name` must be that of the top-level directory"));
    }
    uploaded.name = dir;
    uploaded.description = document.frontmatter.description().to_owned();
    Ok(uploaded)
}

/// Reads the form of a file and returns its name, type and content.
pub(super) fn file(content_type: &str, body: &Bytes) -> Result<(String, String, Bytes), Refusal> {
    let mut fields = parse(content_type, body).map_err(Refusal::invalid)?;
    let is_one = fields.len() == 1 && fields[0].name == "file";
    let Some(Field { file_name, media_type, content, .. }) = fields.pop().filter(|_| is_one) else {
        return Err(Refusal::invalid("file: Field required, and no other"));
    };
    let name = file_name.unwrap_or_default();
    let name = name.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("unnamed").to_owned();
    Ok((name, media_type.unwrap_or_else(|| "application/octet-stream".to_owned()), content))
}
