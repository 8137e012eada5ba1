//! The instructions around the skills: the structure of specification 7.1 and the top-level prompt (10.1).

use std::path::Path;

use conjure_conversation::{Activation, Delivery};
use conjure_skill::Skill;

use crate::options::PromptOptions;
use crate::skill_tools::SkillTool;
use crate::skills::available_skills_block_at;
use crate::xml::XmlWriter;

/// What skills are and how to use them, without the skills themselves: the two instructing elements of
/// [`generate`], with an empty line between them.
#[must_use]
pub fn discovery_instructions(options: &PromptOptions) -> String {
    let wording = Wording::of(options, Scripts::Some, Places::Told);
    let mut xml = XmlWriter::default();
    wording.describe(&mut xml);
    xml.blank();
    wording.instruct(&mut xml);
    xml.finish()
}

/// The complete fragment on skills, in the order of specification 7.1: description, block, usage. No skills: an
/// empty text.
#[must_use]
pub fn generate<'s>(skills: impl IntoIterator<Item = &'s Skill>, options: &PromptOptions) -> String {
    skills_fragment(skills, options, Scripts::Some)
}

/// The same, where scripts can be run or not.
pub(crate) fn skills_fragment<'s>(
    skills: impl IntoIterator<Item = &'s Skill>,
    options: &PromptOptions,
    scripts: Scripts,
) -> String {
    let mut places = Places::Untold;
    let skills = skills.into_iter().inspect(|skill| {
        if options.locations.of(skill.location()).is_some() {
            places = Places::Told;
        }
    });
    let block = available_skills_block_at(skills, &options.locations);
    if block.is_empty() {
        return block;
    }
    let wording = Wording::of(options, scripts, places);
    let mut xml = XmlWriter::default();
    xml.element("skills", |xml| {
        wording.describe(xml);
        xml.blank();
        xml.fragment(&block);
        xml.blank();
        wording.instruct(xml);
    });
    xml.finish()
}

/// Where the model's tools work: the path of the workspace, as the sandbox has it.
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

/// The top-level instructions of a call: the host's base prompt as it is, then what this crate adds. Parts that
/// are empty are left out; the others are set apart by an empty line.
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
    parts(base, skills, options).join("\n\n")
}

/// The parts of the top-level instructions that are not empty: base prompt, environment, skills.
fn parts<'s>(
    base: &str,
    skills: impl IntoIterator<Item = &'s Skill>,
    options: &PromptOptions,
) -> Vec<String> {
    stable_parts(base, options, generate(skills, options))
}

/// Base prompt, environment and what tells of the skills, without those that are empty.
pub(crate) fn stable_parts(base: &str, options: &PromptOptions, skills: String) -> Vec<String> {
    let environment = options.workspace.as_deref().map(environment_instructions).unwrap_or_default();
    [base.to_owned(), environment, skills].into_iter().filter(|part| !part.trim().is_empty()).collect()
}

/// Whether there is a tool that runs scripts of skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scripts {
    Some,
    None,
}

/// Whether the model is told where skills lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Places {
    Told,
    Untold,
}

/// What the model reads about skills, by the way in which it gets at them.
#[derive(Debug, Clone, Copy)]
enum Wording {
    View,
    Load { delivery: Delivery, scripts: Scripts, places: Places },
}

impl Wording {
    const fn of(options: &PromptOptions, scripts: Scripts, places: Places) -> Self {
        match options.activation {
            Activation::View => Self::View,
            _ => Self::Load { delivery: options.delivery, scripts, places },
        }
    }

    fn describe(self, xml: &mut XmlWriter) {
        xml.element("skills_description", |xml| {
            let what = "You have access to a set of skills that extend your capabilities for specialized tasks.";
            let text = match self {
                Self::View => format!(
                    "{what}\nOnly the name, description and location of each skill are listed here; its instructions \
                     are in its SKILL.md.\nTo use a skill, first read its SKILL.md file using the view tool."
                ),
                Self::Load { places, .. } => {
                    let listed = match places {
                        Places::Told => "name, description and location",
                        Places::Untold => "name and description",
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

    fn instruct(self, xml: &mut XmlWriter) {
        xml.element("skill_usage_instructions", |xml| match self {
            Self::View => xml.fragment(
                "When a task matches a skill's description:\n\
                 1. Use the view tool to read the skill's SKILL.md file before you use anything else of the skill\n\
                 2. Follow the instructions in the skill\n\
                 3. Use additional resources (scripts/, references/, assets/) as directed by the skill\n\
                 Paths in a skill are relative to the folder of its SKILL.md, which must not be changed. Run its \
                 scripts from that folder (`cd` there in the same command), and name your own files by absolute \
                 paths.",
            ),
            Self::Load { delivery, scripts, .. } => {
                let [load, unload, read, run] = SkillTool::ALL.map(SkillTool::name);
                let place = match delivery {
                    Delivery::Result => "which the result holds",
                    _ => "which are then in <active_skills>",
                };
                let use_files = match scripts {
                    Scripts::Some => format!("read them with {read}, and run its scripts with {run}"),
                    Scripts::None => format!("read them with {read}"),
                };
                xml.fragment(&format!(
                    "When a task matches a skill's description:\n\
                     1. Call {load} with the skill's name before you use anything else of the skill; load no more than the \
                     task needs\n\
                     2. Follow the skill's instructions, {place}\n\
                     3. Use its other files as the instructions direct: {use_files}\n\
                     4. When another task needs other skills, load those instead: {load} replaces what is loaded, unless its \
                     mode is add; {unload} unloads\n\
                     Paths in a skill are relative to its folder, which cannot be changed. Scripts start in that folder, \
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
    use crate::locations::Locations;

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
            locations: Locations::mapped(|host| {
                Some(Path::new("/mnt/skills").join(host.strip_prefix("/home/me/skills").ok()?))
            }),
            workspace: Some("/workspace".into()),
            ..PromptOptions::default()
        };
        insta::assert_snapshot!(build_system_prompt("You are a helpful assistant.", &skills, &options));
    }

    #[test]
    fn without_locations_no_path_of_the_host_is_told() {
        let skills = [skill("pdf", "Reads PDF files.")];
        for locations in [Locations::omitted(), Locations::mapped(|_| None)] {
            let text = generate(&skills, &PromptOptions { locations, ..PromptOptions::default() });
            assert!(text.contains("\npdf\n") && !text.contains("/home"), "{text}");
        }
    }

    #[test]
    fn what_the_model_reads_about_skills() {
        insta::assert_snapshot!(discovery_instructions(&PromptOptions::default()));
    }

    #[test]
    fn what_the_model_reads_about_skills_that_it_must_load() {
        let options = PromptOptions { activation: Activation::Load, ..PromptOptions::default() };
        insta::assert_snapshot!(discovery_instructions(&options));
        let result = PromptOptions { delivery: Delivery::Result, ..options };
        let text = discovery_instructions(&result);
        assert!(text.contains("instructions, which the result holds\n"), "{text}");
        assert!(!text.contains("active_skills"), "{text}");
    }

    #[test]
    fn without_scripts_and_without_locations_nothing_speaks_of_them() {
        let skills = [skill("pdf", "Reads PDF files.")];
        let options = PromptOptions {
            activation: Activation::Load,
            locations: Locations::omitted(),
            ..PromptOptions::default()
        };
        let text = skills_fragment(&skills, &options, Scripts::None);
        assert!(text.contains("Only the name and description of each"), "{text}");
        assert!(
            text.contains("direct: read them with skills_read\n") && !text.contains("run_script"),
            "{text}"
        );
        assert!(!text.contains("location"), "{text}");
    }

    #[test]
    fn what_the_model_reads_about_its_workspace() {
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
