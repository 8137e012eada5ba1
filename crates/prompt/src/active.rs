//! The `<active_skills>` block (runtime specification, "Prompt/Instruction Contract"): the instructions of the loaded skills.
//!
//! A skill's text is Markdown with code in it, and the model copies from it. So it is not escaped as XML: it stands as written, in an
//! element of its own, and only what would read as a tag of *our* structure loses its `<` to `&lt;`. With that no text can end its own
//! element, or pretend to be another skill's.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

use conjure_conversation::{PinnedSkill, Standing};
use conjure_skill::SkillError;

use crate::session_skills::{SessionSkill, SessionSkills};
use crate::xml::{XmlWriter, escape, without_forbidden};

/// How many of a skill's files are named when it is loaded.
pub const MOST_FILES_NAMED: usize = 50;

/// The elements that only we write. A skill's text has none of them.
const OURS: [&str; 20] = [
    "active_skills",
    "artifact_usage",
    "artifacts",
    "artifacts_description",
    "available_skills",
    "environment",
    "input",
    "inputs",
    "skill",
    "skill_assets",
    "skill_directory",
    "skill_files",
    "skill_instructions",
    "skill_usage_instructions",
    "skills",
    "skills_description",
    "user_artifacts",
    "value-withheld",
    "variable",
    "workspace",
];

impl SessionSkills {
    /// The block with the instructions of the active skills, in their order, without a newline at the end; empty where none is.
    ///
    /// A skill that is active and cannot be read, or is not there in the content that was loaded, is named with that: the
    /// conversation goes on, and the model knows what it does not have.
    #[must_use]
    pub fn active_skills_block(&self, standing: &Standing) -> String {
        let active = standing.active_skills();
        if active.is_empty() {
            return String::new();
        }
        let mut xml = XmlWriter::default();
        xml.element("active_skills", |xml| {
            xml.fragment(
                "These skills are loaded, the most recent last. Where their instructions conflict, those of the later skill count.",
            );
            for pinned in active {
                let element = match self.recorded(pinned) {
                    None => missing(pinned, "it is not there any more with the content that was loaded"),
                    Some(skill) => self.active_skill(skill).unwrap_or_else(|error| {
                        tracing::warn!(skill = pinned.name, %error, "the instructions of an active skill cannot be read");
                        missing(pinned, "its instructions cannot be read")
                    }),
                };
                xml.fragment(&element);
            }
        });
        xml.finish()
    }

    /// The element of one loaded skill: its folder, the names of some of its files, and its instructions.
    ///
    /// # Errors
    /// When the instructions cannot be read.
    pub fn active_skill(&self, skill: &SessionSkill) -> Result<String, SkillError> {
        let body = skill.body()?;
        let mut xml = XmlWriter::default();
        xml.named("skill", skill.name(), |xml| {
            if let Some(folder) = self.root_dir(skill) {
                xml.value("skill_directory", &folder.to_string_lossy());
            }
            let files = skill.files();
            if !files.is_empty() {
                xml.element("skill_files", |xml| xml.fragment(&names(files)));
            }
            xml.element("skill_instructions", |xml| xml.fragment(&guarded(&body)));
        });
        Ok(xml.finish())
    }
}

fn missing(pinned: &PinnedSkill, why: &str) -> String {
    let mut xml = XmlWriter::default();
    xml.named("skill", &pinned.name, |xml| {
        xml.fragment(&format!("This skill is loaded, but {why}. Load it again, or do without it."));
    });
    xml.finish()
}

/// Names of files, one a line, as many as are named.
fn names(files: &[impl AsRef<Path>]) -> String {
    let mut text = String::new();
    for file in files.iter().take(MOST_FILES_NAMED) {
        let name = file.as_ref().to_string_lossy().replace(char::is_control, "\u{FFFD}");
        text.push_str(&escape(&name));
        text.push('\n');
    }
    match files.len().checked_sub(MOST_FILES_NAMED) {
        Some(more @ 1..) => {
            let _ = write!(text, "[{more} more files are not named here]");
        }
        _ => text.truncate(text.trim_end_matches('\n').len()),
    }
    text
}

/// A skill's text as it may stand in its element: every tag of ours has lost its `<`, characters that XML forbids are replaced, and
/// everything else is as written.
fn guarded(text: &str) -> Cow<'_, str> {
    let text = without_forbidden(text);
    let opens = |place: &usize| is_ours(&text[place + 1..]);
    let mut places = text.match_indices('<').map(|(place, _)| place).filter(opens).peekable();
    if places.peek().is_none() {
        drop(places);
        return text;
    }
    let mut out = String::with_capacity(text.len() + 64);
    let mut copied = 0;
    for place in places {
        out.push_str(&text[copied..place]);
        out.push_str("&lt;");
        copied = place + 1;
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Whether what follows a `<` would be read as the name of an element of ours, also by a reader that forgives space and what does
/// not show.
fn is_ours(rest: &str) -> bool {
    let mut characters =
        rest.chars().filter(|c| !is_invisible(*c)).skip_while(|c| c.is_whitespace() || *c == '/').peekable();
    let mut name = String::new();
    while let Some(c) = characters.next_if(|c| c.is_alphanumeric() || matches!(c, '_' | '-')) {
        if name.len() > 32 {
            return false;
        }
        name.push(c);
    }
    OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours))
}

/// Characters that take no room: marks of width and direction, joiners, the soft hyphen, and variation selectors.
const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{3164}'
            | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{E0000}'..='\u{E0FFF}'
    )
}

#[cfg(test)]
mod tests;
