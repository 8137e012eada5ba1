//! `skills.read`: a file of an active skill, read beneath the handle of its folder.
//!
//! The whole folder may be read. A `SKILL.md` in a folder beneath is a file like any other: it makes no skill.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use conjure_base::Redactor;
use conjure_prompt::SessionSkill;
use conjure_skill::{SkillError, SkillErrorKind};

use super::error::{SkillCallError, in_words};
use super::{SkillCall, SkillTools, beneath, blocking};
use crate::limits::OutputLimits;
use crate::text::{cut, quote};
use crate::tool::ToolOutcome;

/// How many files of a folder are listed, and how many are offered where one is not there.
const MOST_LISTED: usize = 200;
const MOST_OFFERED: usize = 10;

/// Bytes of a result that are set apart for notices.
const NOTICES: usize = 1024;

impl SkillTools {
    pub(super) async fn read(
        &self,
        name: Option<&str>,
        path: &str,
        call: &SkillCall<'_>,
    ) -> Result<ToolOutcome, SkillCallError> {
        let skill = self.chosen(name, &call.standing)?;
        let relative = self.relative(skill, path)?;
        let place =
            self.skills.root_dir(skill).map(|root| beneath(&root, &relative).to_string_lossy().into_owned());
        let most = (call.limits.view as u64).max(call.limits.raw_image());
        let (reader, file) = (Arc::clone(skill), relative.clone());
        let read = blocking(move || {
            // So that what is not there can be told by what is.
            reader.files();
            let start = reader.skill().resource_start(&file, 0)?;
            if start.size > most {
                Ok(Err(start.size))
            } else {
                reader.skill().read_resource_up_to(&file, most).map(Ok)
            }
        });
        let failed = |reason: &str| SkillCallError::File {
            name: skill.name().to_owned(),
            path: quote(path),
            reason: reason.to_owned(),
        };
        match read.await.ok_or_else(|| failed("its reading was broken off"))? {
            Ok(Ok(bytes)) => Ok(shown(path, &bytes, place.as_deref(), call.limits, call.redactor)),
            Ok(Err(size)) => Err(SkillCallError::TooLarge {
                name: skill.name().to_owned(),
                path: quote(path),
                size,
                most,
                place,
            }),
            Err(error) => match list(skill, &relative) {
                Some(listing) => Ok(ToolOutcome::text(listing)),
                None => Err(missing_or_refused(skill, path, &relative, &error)),
            },
        }
    }
}

/// Why a file of a skill cannot be had, and what may have been meant.
pub(super) fn missing_or_refused(
    skill: &SessionSkill,
    path: &str,
    relative: &Path,
    error: &SkillError,
) -> SkillCallError {
    let (name, path) = (skill.name().to_owned(), quote(path));
    match error.kind() {
        SkillErrorKind::FileNotFound => SkillCallError::NoFile { name, path, files: offer(skill, relative) },
        kind => SkillCallError::File { name, path, reason: in_words(kind).to_owned() },
    }
}

/// What of a skill may have been meant: the file of the same name elsewhere, else some of those that there are.
fn offer(skill: &SessionSkill, relative: &Path) -> String {
    let files = skill.files();
    let same = files.iter().filter(|file| file.file_name() == relative.file_name());
    let mut offered: Vec<String> =
        same.take(MOST_OFFERED).map(|file| format!("`{}`", file.to_string_lossy())).collect();
    if !offered.is_empty() {
        return format!("there is {}", offered.join(", "));
    }
    offered.extend(files.iter().take(MOST_OFFERED).map(|file| format!("`{}`", file.to_string_lossy())));
    match offered.len() {
        0 => "it has no file beside its SKILL.md".to_owned(),
        count if count < files.len() => format!("among its files are {}", offered.join(", ")),
        _ => format!("its files are {}", offered.join(", ")),
    }
}

/// The files beneath a folder of a skill, if it is one.
fn list(skill: &SessionSkill, folder: &Path) -> Option<String> {
    let beneath = || skill.files().iter().filter(|file| file.starts_with(folder));
    beneath().next()?;
    let mut text = format!("files of the skill `{}`:\n", skill.name());
    for file in beneath().take(MOST_LISTED) {
        let name = file.to_string_lossy().replace(char::is_control, "\u{FFFD}");
        let _ = writeln!(text, "{name}");
    }
    if let Some(more @ 1..) = beneath().count().checked_sub(MOST_LISTED) {
        let _ = write!(text, "[{more} more files are not listed here]");
    }
    Some(text)
}

/// A file's content as the model is shown it: text, an image, or what it is. `place`: where commands find it.
pub(crate) fn shown(
    path: &str,
    bytes: &[u8],
    place: Option<&str>,
    limits: &OutputLimits,
    redactor: &Redactor,
) -> ToolOutcome {
    let at = place.map_or_else(String::new, |place| format!("; commands find it at `{place}`"));
    if let Some(media_type) = image_type(bytes) {
        if bytes.len() as u64 <= limits.raw_image() {
            return ToolOutcome::image(media_type, bytes);
        }
        return ToolOutcome::text(format!(
            "[`{}` is an image ({media_type}) of {} bytes, which is more than can be shown{at}]",
            quote(path),
            bytes.len()
        ));
    }
    let is_text = std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0);
    if !is_text {
        return ToolOutcome::text(format!(
            "[`{}` is binary, {} bytes, {}{at}]",
            quote(path),
            bytes.len(),
            binary_type(Path::new(path))
        ));
    }
    if bytes.is_empty() {
        return ToolOutcome::text(format!("[`{}` is empty]", quote(path)));
    }
    let budget = limits.view.saturating_sub(NOTICES);
    let text = cut(bytes, b"", bytes.len() as u64, budget);
    if text.omitted == 0 {
        return ToolOutcome::text(text.head);
    }
    // Only here it is known where the text was cut, and so where a part of a secret may stand.
    let (head, tail) = (redactor.redact_head(&text.head), redactor.redact_tail(&text.tail));
    ToolOutcome::text(format!(
        "{head}\n[{} of {} bytes are left out here{at}]\n{tail}",
        text.omitted,
        bytes.len()
    ))
}

/// The type of an image that a model can be shown, by its first bytes.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// The media type of what is neither text nor such an image, by its name.
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
