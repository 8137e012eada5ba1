//! `skills.read`: reads a file of an active skill.
//!
//! Every file in the skill's directory may be read. A nested `SKILL.md` is an ordinary file.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use conjure_base::Redactor;
use conjure_base::text::strip_deceptive;
use conjure_prompt::SessionSkill;
use conjure_skill::{SkillError, SkillErrorKind};

use super::error::{SkillCallError, message};
use super::skill_tools::{SkillCallContext, SkillTools, join_in_skill, run_blocking};
use crate::limits::OutputLimits;
use crate::text::{quote, truncate};
use crate::tool::ToolOutput;

/// How many files of a directory are listed, and how many are suggested if a file is missing.
const MAX_LISTED: usize = 200;
const MAX_SUGGESTED: usize = 10;

/// Bytes of a result that are reserved for notices.
const NOTICE_BYTES: usize = 1024;

impl SkillTools {
    pub(super) async fn read(
        &self,
        name: Option<&str>,
        path: &str,
        call: &SkillCallContext<'_>,
    ) -> Result<ToolOutput, SkillCallError> {
        let skill = self.find_active(name, &call.session_view)?;
        let relative = self.relative_path(skill, path)?;
        let command_path = self
            .skills
            .root_dir(skill)
            .map(|root| join_in_skill(&root, &relative).to_string_lossy().into_owned());
        let max = (call.limits.view as u64).max(call.limits.max_image_bytes());
        let (reader, file) = (Arc::clone(skill), relative.clone());
        let read = run_blocking(move || {
            // List the files, for suggestions.
            reader.files();
            let start = reader.skill().resource_start(&file, 0)?;
            if start.size > max {
                Ok(Err(start.size))
            } else {
                reader.skill().read_resource_up_to(&file, max).map(Ok)
            }
        });
        let failed = |reason: &str| SkillCallError::File {
            name: skill.name().to_owned(),
            path: quote(path),
            reason: reason.to_owned(),
        };
        match read.await.ok_or_else(|| failed("its reading was broken off"))? {
            Ok(Ok(bytes)) => {
                Ok(render_content(path, &bytes, command_path.as_deref(), call.limits, call.redactor))
            }
            Ok(Err(size)) => Err(SkillCallError::TooLarge {
                name: skill.name().to_owned(),
                path: quote(path),
                size,
                max,
                command_path,
            }),
            Err(error) => match list_files(skill, &relative) {
                Some(listing) => Ok(ToolOutput::text(listing)),
                None => Err(file_error(skill, path, &relative, &error)),
            },
        }
    }
}

/// The error for an unreadable file, with suggestions.
pub(super) fn file_error(
    skill: &SessionSkill,
    path: &str,
    relative: &Path,
    error: &SkillError,
) -> SkillCallError {
    let (name, path) = (skill.name().to_owned(), quote(path));
    match error.kind() {
        SkillErrorKind::FileNotFound => {
            SkillCallError::NoFile { name, path, files: suggest_files(skill, relative) }
        }
        kind => SkillCallError::File { name, path, reason: message(kind).to_owned() },
    }
}

/// Suggests files: those of the same name elsewhere, else some of the skill's files.
fn suggest_files(skill: &SessionSkill, relative: &Path) -> String {
    let files = skill.files();
    let same = files.iter().filter(|file| file.file_name() == relative.file_name());
    let mut offered: Vec<String> =
        same.take(MAX_SUGGESTED).map(|file| format!("`{}`", file.to_string_lossy())).collect();
    if !offered.is_empty() {
        return format!("there is {}", offered.join(", "));
    }
    offered.extend(files.iter().take(MAX_SUGGESTED).map(|file| format!("`{}`", file.to_string_lossy())));
    match offered.len() {
        0 => "it has no file beside its SKILL.md".to_owned(),
        count if count < files.len() => format!("among its files are {}", offered.join(", ")),
        _ => format!("its files are {}", offered.join(", ")),
    }
}

/// Lists the files beneath a directory of a skill; `None` if there are none.
fn list_files(skill: &SessionSkill, dir: &Path) -> Option<String> {
    let files_in_dir = || skill.files().iter().filter(|file| file.starts_with(dir));
    files_in_dir().next()?;
    let mut text = format!("files of the skill `{}`:\n", skill.name());
    for file in files_in_dir().take(MAX_LISTED) {
        let name = file.to_string_lossy().replace(char::is_control, "\u{FFFD}");
        let _ = writeln!(text, "{name}");
    }
    if let Some(more @ 1..) = files_in_dir().count().checked_sub(MAX_LISTED) {
        let _ = write!(text, "[{more} more files are not listed here]");
    }
    Some(text)
}

/// Renders a file's content for the model: text, an image, or a description. `command_path` is its path for commands.
pub(crate) fn render_content(
    path: &str,
    bytes: &[u8],
    command_path: Option<&str>,
    limits: &OutputLimits,
    redactor: &Redactor,
) -> ToolOutput {
    let at = command_path
        .map_or_else(String::new, |command_path| format!("; commands find it at `{command_path}`"));
    if let Some(media_type) = image_type(bytes) {
        if bytes.len() as u64 <= limits.max_image_bytes() {
            return ToolOutput::image(media_type, bytes);
        }
        return ToolOutput::text(format!(
            "[`{}` is an image ({media_type}) of {} bytes, which is more than can be shown{at}]",
            quote(path),
            bytes.len()
        ));
    }
    let is_text = std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0);
    if !is_text {
        return ToolOutput::text(format!(
            "[`{}` is binary, {} bytes, {}{at}]",
            quote(path),
            bytes.len(),
            binary_type(Path::new(path))
        ));
    }
    if bytes.is_empty() {
        return ToolOutput::text(format!("[`{}` is empty]", quote(path)));
    }
    // Who reviews a skill does not see such characters, so the model does not get them either.
    let visible = String::from_utf8_lossy(bytes);
    let visible = strip_deceptive(&visible);
    let bytes = visible.as_bytes();
    let budget = limits.view.saturating_sub(NOTICE_BYTES);
    let text = truncate(bytes, b"", bytes.len() as u64, budget);
    if text.omitted == 0 {
        return ToolOutput::text(text.head);
    }
    // Redact again here: truncation may have left a part of a secret.
    let (head, tail) = (redactor.redact_head(&text.head), redactor.redact_tail(&text.tail));
    ToolOutput::text(format!(
        "{head}\n[{} of {} bytes are left out here{at}]\n{tail}",
        text.omitted,
        bytes.len()
    ))
}

/// The type of an image that a model accepts, from its first bytes.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// The media type of other binary files, from the file name.
fn binary_type(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "pdf" => "application/pdf",
        "zip" | "skill" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "ttf" => "font/ttf",
        "otf" => "font/otf",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        "sqlite" | "db" => "application/vnd.sqlite3",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}
