//! The system prompt: the instructions about skills (specification 7.1) and the top-level prompt (10.1).

use std::path::Path;

use conjure_conversation::{SkillActivation, SkillDelivery};
use conjure_skill::Skill;

use crate::available_skills::available_skills_block_at;
use crate::options::PromptOptions;
use crate::skill_tools::SkillTool;
use crate::xml::XmlWriter;

/// Explains what skills are and how to use them, without listing them: the two instructing elements of [`generate`], with an empty
/// line between them.
#[must_use]
pub fn discovery_instructions(options: &PromptOptions) -> String {
    let style = PromptStyle::new(options, ScriptTool::Available, LocationDisclosure::Shown);
    let mut xml = XmlWriter::default();
    style.write_description(&mut xml);
    xml.blank();
    style.write_usage(&mut xml);
    xml.finish()
}

/// The complete fragment on skills, in the order of specification 7.1: description, block, usage. Without skills the text is empty.
#[must_use]
pub fn generate<'s>(skills: impl IntoIterator<Item = &'s Skill>, options: &PromptOptions) -> String {
    skills_fragment(skills, options, ScriptTool::Available)
}

/// The fragment on skills, with or without a tool that runs scripts.
pub(crate) fn skills_fragment<'s>(
    skills: impl IntoIterator<Item = &'s Skill>,
    options: &PromptOptions,
    scripts: ScriptTool,
) -> String {
    let mut locations = LocationDisclosure::Hidden;
    let skills = skills.into_iter().inspect(|skill| {
        if options.locations.location_of(skill.location()).is_some() {
            locations = LocationDisclosure::Shown;
        }
    });
    let block = available_skills_block_at(skills, &options.locations);
    if block.is_empty() {
        return block;
    }
    let style = PromptStyle::new(options, scripts, locations);
    let mut xml = XmlWriter::default();
    xml.element("skills", |xml| {
        style.write_description(xml);
        xml.blank();
        xml.fragment(&block);
        xml.blank();
        style.write_usage(xml);
    });
    xml.finish()
}

/// The environment of the model's tools: the sandbox path of the workspace.
#[must_use]
pub fn environment_instructions(workspace: &Path) -> String {
    let path = workspace.to_string_lossy();
    let mut xml = XmlWriter::default();
    xml.element("environment", |xml| {
        xml.value("workspace", &path);
        xml.fragment(
            "Commands start in the workspace, and relative paths are resolved against it. Create and change files \
             there; the user finds them there.",
        );
    });
    xml.finish()
}

/// The top-level instructions of a call: the embedder's base prompt, unchanged, and then the sections of this crate. Empty sections
/// are left out; the others are separated by an empty line.
///
/// ```
/// use conjure_prompt::{PromptOptions, build_system_prompt};
/// use conjure_skill::{Frontmatter, Mode, Skill};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let document = Frontmatter::parse("---\nname: pdf\ndescription: Reads PDF files.\n---\n", Mode::Strict)?;
/// let skill = Skill::new(document.frontmatter, "/mnt/skills/pdf/SKILL.md");
/// let prompt = build_system_prompt("You are a helpful assistant.", [&skill], &PromptOptions::default());
/// assert!(prompt.starts_with("You are a helpful assistant.\n\n<skills>"));
/// assert!(prompt.contains("<location>\n/mnt/skills/pdf/SKILL.md\n</location>"));
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn build_system_prompt<'s>(
    base: &str,
    skills: impl IntoIterator<Item = &'s Skill>,
    options: &PromptOptions,
) -> String {
    all_sections(base, skills, options).join("\n\n")
}

/// The sections of the top-level instructions that are not empty: base prompt, environment, skills.
fn all_sections<'s>(
    base: &str,
    skills: impl IntoIterator<Item = &'s Skill>,
    options: &PromptOptions,
) -> Vec<String> {
    static_sections(base, options, generate(skills, options))
}

/// Base prompt, environment and skills, without empty ones.
pub(crate) fn static_sections(base: &str, options: &PromptOptions, skills: String) -> Vec<String> {
    let environment = options.workspace.as_deref().map(environment_instructions).unwrap_or_default();
    [base.to_owned(), environment, skills].into_iter().filter(|part| !part.trim().is_empty()).collect()
}

/// Whether there is a tool that runs scripts of skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptTool {
    Available,
    None,
}

/// Whether the model sees the locations of skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LocationDisclosure {
    Shown,
    Hidden,
}

/// The wording about skills, which depends on how the model reads their instructions.
#[derive(Debug, Clone, Copy)]
enum PromptStyle {
    View,
    Load { delivery: SkillDelivery, scripts: ScriptTool, locations: LocationDisclosure },
}

impl PromptStyle {
    const fn new(options: &PromptOptions, scripts: ScriptTool, locations: LocationDisclosure) -> Self {
        match options.activation {
            SkillActivation::View => Self::View,
            _ => Self::Load { delivery: options.delivery, scripts, locations },
        }
    }

    fn write_description(self, xml: &mut XmlWriter) {
        xml.element("skills_description", |xml| {
            let what = "You have access to a set of skills that extend your capabilities for specialized tasks.";
            let text = match self {
                Self::View => format!(
                    "{what}\nOnly the name, description and location of each skill are listed here; its instructions \
                     are in its SKILL.md.\nTo use a skill, first read its SKILL.md file using the view tool."
                ),
                Self::Load { locations, .. } => {
                    let listed = match locations {
                        LocationDisclosure::Shown => "name, description and location",
                        LocationDisclosure::Hidden => "name and description",
                    };
                    let load = SkillTool::Load.name();
                    format!(
                        "{what}\nOnly the {listed} of each skill are listed here, not its instructions.\nYou MUST load a \
                         skill with the {load} tool before you use any of its instructions, files or scripts."
                    )
                }
            };
            xml.fragment(&text);
        });
    }

    fn write_usage(self, xml: &mut XmlWriter) {
        xml.element("skill_usage_instructions", |xml| match self {
            Self::View => xml.fragment(
                "When a task matches a skill's description:\n\
                 1. Use the view tool to read the skill's SKILL.md file before you use anything else of the skill\n\
                 2. Follow the instructions in the skill\n\
                 3. Use additional resources (scripts/, references/, assets/) as directed by the skill\n\
                 Paths in a skill are relative to the directory of its SKILL.md, which must not be changed. Run its \
                 scripts from that directory (`cd` there in the same command), and name your own files by absolute \
                 paths.",
            ),
            Self::Load { delivery, scripts, .. } => {
                let [load, unload, read, run] = SkillTool::ALL.map(SkillTool::name);
                let location = match delivery {
                    SkillDelivery::Result => "which the result holds",
                    _ => "which are then in <active_skills>",
                };
                let use_files = match scripts {
                    ScriptTool::Available => format!("read them with {read}, and run its scripts with {run}"),
                    ScriptTool::None => format!("read them with {read}"),
                };
                xml.fragment(&format!(
                    "When a task matches a skill's description:\n\
                     1. Call {load} with the skill's name before you use anything else of the skill; load no more than the \
                     task needs\n\
                     2. Follow the skill's instructions, {location}\n\
                     3. Use its other files as the instructions direct: {use_files}\n\
                     4. When another task needs other skills, load those instead: {load} replaces what is loaded, unless its \
                     mode is add; {unload} unloads\n\
                     Paths in a skill are relative to its directory, which cannot be changed. Scripts start in that directory, \
                     so name your own files to them by absolute paths.",
                ));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use conjure_skill::{Frontmatter, Mode};

    use super::*;
    use crate::skill_locations::SkillLocations;

    fn skill(name: &str, description: &str) -> Skill {
        let content = format!("---\nname: {name}\ndescription: {description}\n---\n# {name}\n");
        let frontmatter = Frontmatter::parse(&content, Mode::Strict).unwrap().frontmatter;
        Skill::new(frontmatter, format!("/home/me/skills/{name}/SKILL.md"))
    }

    #[test]
    fn the_whole_prompt_with_the_paths_of_the_sandbox() {
        let skills = [
            skill("log-analyzer", "Finds errors in logs. Use for files that end in .log."),
            skill("sales-report", "Computes growth by region & product from a <CSV>."),
        ];
        let options = PromptOptions {
            locations: SkillLocations::mapped(|host| {
                Some(Path::new("/mnt/skills").join(host.strip_prefix("/home/me/skills").ok()?))
            }),
            workspace: Some("/workspace".into()),
            ..PromptOptions::default()
        };
        insta::assert_snapshot!(build_system_prompt("You are a helpful assistant.", &skills, &options));
    }

    #[test]
    fn without_locations_no_local_path_is_shown() {
        let skills = [skill("pdf", "Reads PDF files.")];
        for locations in [SkillLocations::omitted(), SkillLocations::mapped(|_| None)] {
            let text = generate(&skills, &PromptOptions { locations, ..PromptOptions::default() });
            assert!(text.contains("\npdf\n") && !text.contains("/home"), "{text}");
        }
    }

    #[test]
    fn instructions_about_skills() {
        insta::assert_snapshot!(discovery_instructions(&PromptOptions::default()));
    }

    #[test]
    fn instructions_about_skills_with_explicit_loading() {
        let options = PromptOptions { activation: SkillActivation::Load, ..PromptOptions::default() };
        insta::assert_snapshot!(discovery_instructions(&options));
        let result = PromptOptions { delivery: SkillDelivery::Result, ..options };
        let text = discovery_instructions(&result);
        assert!(text.contains("instructions, which the result holds\n"), "{text}");
        assert!(!text.contains("active_skills"), "{text}");
    }

    #[test]
    fn without_scripts_and_locations_neither_is_mentioned() {
        let skills = [skill("pdf", "Reads PDF files.")];
        let options = PromptOptions {
            activation: SkillActivation::Load,
            locations: SkillLocations::omitted(),
            ..PromptOptions::default()
        };
        let text = skills_fragment(&skills, &options, ScriptTool::None);
        assert!(text.contains("Only the name and description of each"), "{text}");
        assert!(
            text.contains("direct: read them with skills_read\n") && !text.contains("run_script"),
            "{text}"
        );
        assert!(!text.contains("location"), "{text}");
    }

    #[test]
    fn instructions_about_the_workspace() {
        insta::assert_snapshot!(environment_instructions(Path::new("/workspace & <more>")));
    }

    #[test]
    fn without_skills_there_is_no_block() {
        let options = PromptOptions::default();
        assert_eq!(generate([], &options), "");
        assert_eq!(build_system_prompt("Be brief.", [], &options), "Be brief.");
        assert_eq!(build_system_prompt("", [], &options), "");
    }
}
