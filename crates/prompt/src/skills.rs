//! The `<available_skills>` block (specification 5.4 and 7), in the bytes of the format's reference validator.

use std::borrow::Cow;

use conjure_base::without_deceptive;
use conjure_skill::{MAX_DESCRIPTION_CHARS, Skill};

use crate::locations::Locations;
use crate::xml::XmlWriter;

/// The `<available_skills>` block with the host's own paths, byte for byte as the reference validator writes it,
/// without a newline at the end. No skills: an empty text, since a block without skills only costs tokens.
///
/// Four differences on purpose: the reference leaves `location` unescaped, and control characters as they are, and
/// it shows a description of any length, with characters that nobody sees. Here one that is longer than the format allows,
/// which only a lenient skill has, is cut at [`MAX_DESCRIPTION_CHARS`]: it would else go whole into every request. And what
/// people do not see, models are not told ([`conjure_base::without_deceptive`]).
#[must_use]
pub fn available_skills_block<'s>(skills: impl IntoIterator<Item = &'s Skill>) -> String {
    available_skills_block_at(skills, &Locations::host())
}

/// The `<available_skills>` block with the paths of `locations`, in the order of `skills`.
#[must_use]
pub fn available_skills_block_at<'s>(
    skills: impl IntoIterator<Item = &'s Skill>,
    locations: &Locations,
) -> String {
    block(skills.into_iter().map(|skill| Entry::of(skill, locations)))
}

/// The `<skill>` element of one skill, without a newline at the end.
#[must_use]
pub fn format_skill(skill: &Skill, locations: &Locations) -> String {
    let mut xml = XmlWriter::default();
    Entry::of(skill, locations).write(&mut xml);
    xml.finish()
}

/// What the model is told of one skill.
struct Entry<'s> {
    name: &'s str,
    description: &'s str,
    location: Option<String>,
}

impl<'s> Entry<'s> {
    fn of(skill: &'s Skill, locations: &Locations) -> Self {
        Self {
            name: skill.name().as_str(),
            description: skill.description(),
            location: locations.of(skill.location()).map(|path| path.to_string_lossy().into_owned()),
        }
    }

    fn write(&self, xml: &mut XmlWriter) {
        xml.element("skill", |xml| {
            xml.value("name", self.name);
            xml.value("description", &shown(&without_deceptive(self.description)));
            if let Some(location) = &self.location {
                xml.value("location", location);
            }
        });
    }
}

/// The description, as long as the format allows: what is longer ends in an ellipsis, which counts.
fn shown(description: &str) -> Cow<'_, str> {
    let mut ends = description.char_indices().map(|(start, _)| start).skip(MAX_DESCRIPTION_CHARS - 1);
    match (ends.next(), ends.next()) {
        (Some(end), Some(_)) => Cow::Owned(format!("{}…", &description[..end])),
        _ => Cow::Borrowed(description),
    }
}

fn block<'s>(entries: impl Iterator<Item = Entry<'s>>) -> String {
    let mut entries = entries.peekable();
    if entries.peek().is_none() {
        return String::new();
    }
    let mut xml = XmlWriter::default();
    xml.element("available_skills", |xml| entries.for_each(|entry| entry.write(xml)));
    xml.finish()
}

#[cfg(test)]
mod tests;
