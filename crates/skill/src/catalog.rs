//! An immutable snapshot of skills, looked up by name and by words.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fields::name::SkillName;
use crate::skill::Skill;

/// An immutable snapshot of skills by name, sorted by name. It is cheap to share behind an [`Arc`]. A change
/// creates a new snapshot.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    skills: BTreeMap<SkillName, Arc<Skill>>,
}

impl Catalog {
    /// Creates a catalog. Of two skills with the same name, the first is kept.
    #[must_use]
    pub fn new(skills: impl IntoIterator<Item = Skill>) -> Self {
        skills.into_iter().map(Arc::new).collect()
    }

    /// The skill of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Skill>> {
        self.skills.get(name)
    }

    /// All skills, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Skill>> {
        self.skills.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.skills.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    /// Returns the skills whose name or description contains some of these words, best match first. Skills with
    /// more of the words come first, then those with words in the name, then by name. A word also matches longer
    /// words that begin with it. Filler words (`the`, `for`) are ignored.
    #[must_use]
    pub fn search(&self, words: &str) -> Vec<&Arc<Skill>> {
        let mut wanted: Vec<String> = words_of(words).filter(|word| !is_filler(word)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut hits: Vec<_> = self
            .iter()
            .filter_map(|skill| {
                let score = Score::of(skill, &wanted);
                (score.words > 0).then_some((score, skill))
            })
            .collect();
        // The sort is stable, so equal scores stay sorted by name.
        hits.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        hits.into_iter().map(|(_, skill)| skill).collect()
    }
}

/// Of two skills with the same name, the first is kept.
impl FromIterator<Arc<Skill>> for Catalog {
    fn from_iter<I: IntoIterator<Item = Arc<Skill>>>(skills: I) -> Self {
        let mut map = BTreeMap::new();
        for skill in skills {
            map.entry(skill.name().clone()).or_insert(skill);
        }
        Self { skills: map }
    }
}

/// An index of skills by name: [`Catalog::new`] as a function.
#[must_use]
pub fn index(skills: impl IntoIterator<Item = Skill>) -> Catalog {
    Catalog::new(skills)
}

/// The skill of this name in an index: [`Catalog::get`] as a function.
#[must_use]
pub fn find<'a>(index: &'a Catalog, name: &str) -> Option<&'a Arc<Skill>> {
    index.get(name)
}

/// How well a skill matches. Earlier fields weigh more than all later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Score {
    /// The number of words that match.
    words: usize,
    /// The total quality of the matches.
    weight: usize,
}

impl Score {
    fn of(skill: &Skill, wanted: &[String]) -> Self {
        const IN_NAME: usize = 8;
        const BEGINS_IN_NAME: usize = 4;
        const IN_DESCRIPTION: usize = 2;
        const BEGINS_IN_DESCRIPTION: usize = 1;
        let name: Vec<_> = words_of(skill.name().as_str()).collect();
        let description: Vec<_> = words_of(skill.description()).collect();
        let mut score = Self::default();
        for word in wanted {
            let is = |candidate: &String| candidate == word;
            let begins = |candidate: &String| candidate.starts_with(word.as_str());
            let weight = if name.iter().any(is) {
                IN_NAME
            } else if name.iter().any(begins) {
                BEGINS_IN_NAME
            } else if description.iter().any(is) {
                IN_DESCRIPTION
            } else if description.iter().any(begins) {
                BEGINS_IN_DESCRIPTION
            } else {
                continue;
            };
            score.words += 1;
            score.weight += weight;
        }
        score
    }
}

/// The words of a text in lowercase.
fn words_of(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// Whether almost every description contains this word.
fn is_filler(word: &str) -> bool {
    const FILLERS: [&str; 24] = [
        "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "i", "in", "is", "it", "my", "of",
        "on", "or", "that", "the", "this", "to", "when", "with",
    ];
    FILLERS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frontmatter, Mode};

    fn skill(name: &str, description: &str) -> Skill {
        let content = format!("---\nname: {name}\ndescription: {description}\n---\n");
        Skill::new(
            Frontmatter::parse(&content, Mode::Strict).unwrap().frontmatter,
            format!("/{name}/SKILL.md"),
        )
    }

    fn catalog() -> Catalog {
        index([
            skill("sales-report", "Computes growth by region from a CSV"),
            skill("pdf-forms", "Fill in forms; reports what is missing"),
            skill("csv", "Reads tables"),
            skill("csv", "Another of the same name"),
        ])
    }

    fn check(words: &str, expected: &[&str]) {
        let catalog = catalog();
        let names: Vec<_> = catalog.search(words).iter().map(|skill| skill.name().as_str()).collect();
        assert_eq!(names, expected, "{words:?}");
    }

    #[test]
    fn skills_are_found_by_name_and_listed_in_its_order() {
        let catalog = catalog();
        let names: Vec<_> = catalog.iter().map(|skill| skill.name().as_str()).collect();
        assert_eq!(names, ["csv", "pdf-forms", "sales-report"]);
        assert_eq!(find(&catalog, "csv").unwrap().description(), "Reads tables");
        assert!(find(&catalog, "CSV").is_none());
        assert_eq!((catalog.len(), catalog.is_empty()), (3, false));
    }

    #[test]
    fn search_results_are_ordered_by_relevance() {
        check("csv", &["csv", "sales-report"]);
        check("a report for the region", &["sales-report", "pdf-forms"]);
        check("FORMS", &["pdf-forms"]);
        check("the of", &[]);
        check("", &[]);
        check("zebra", &[]);
    }
}
