//! Decides what a push does with each skill, from the local files, the index and the service's list. It does no I/O.

use conjure_base::Digest;

use crate::hosted::sync::upload_index::{UploadedSkill, UploadedSkills};
use crate::hosted::{SkillId, SkillMetadata, SkillSource, VersionId};

/// What to do with a local skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// The service does not have it: upload it.
    Create,
    /// The service has another version: upload a new one.
    Update { skill: SkillId },
    /// The service has the same files: do nothing.
    Unchanged { skill: SkillId, version: VersionId },
    /// The service's version is not in the index. Another client uploaded it, or a push uploaded it and did not record it. Its files must
    /// be compared.
    Compare { skill: SkillId, version: VersionId, matched_by: Match },
    /// The service has several skills with this title.
    Ambiguous { skills: Vec<SkillId> },
}

/// How a skill of the service was matched with a local one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// By its id in the index, with the digest of the files that this machine last uploaded.
    Remembered(Digest),
    /// By its title, which may be a coincidence.
    Title,
}

/// Decides what to do with the skill of this name and digest.
pub(super) fn decide(
    name: &str,
    digest: Digest,
    remembered: Option<&UploadedSkill>,
    listed: &[SkillMetadata],
) -> Decision {
    let known =
        remembered.and_then(|known| Some((known, listed.iter().find(|record| record.id == known.id)?)));
    if let Some((known, record)) = known {
        return match &record.latest {
            Some(latest) if known.version.as_ref() == Some(latest) && known.digest == digest => {
                Decision::Unchanged { skill: record.id.clone(), version: latest.clone() }
            }
            Some(latest) if known.version.as_ref() != Some(latest) => {
                let (skill, version) = (record.id.clone(), latest.clone());
                Decision::Compare { skill, version, matched_by: Match::Remembered(known.digest) }
            }
            // Its files are known to differ, or it has no version.
            _ => Decision::Update { skill: record.id.clone() },
        };
    }
    let has_title = |record: &&SkillMetadata| {
        record.source == SkillSource::Custom && record.title.as_deref() == Some(name)
    };
    let with_same_title: Vec<&SkillMetadata> = listed.iter().filter(has_title).collect();
    match with_same_title.as_slice() {
        [] => Decision::Create,
        [only] => match &only.latest {
            None => Decision::Update { skill: only.id.clone() },
            Some(latest) => {
                let (skill, version) = (only.id.clone(), latest.clone());
                Decision::Compare { skill, version, matched_by: Match::Title }
            }
        },
        several => Decision::Ambiguous { skills: several.iter().map(|record| record.id.clone()).collect() },
    }
}

/// The skills that were uploaded from this directory and are missing in it now, by name.
pub(super) fn absent<'m>(
    dir: &str,
    here: &[&str],
    memory: &'m UploadedSkills,
) -> impl Iterator<Item = (&'m String, &'m UploadedSkill)> {
    memory.iter().filter(move |(name, known)| known.dir == dir && !here.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn record(id: &str, title: &str, latest: Option<&str>, source: &str) -> SkillMetadata {
        let record = json!({"id": id, "display_title": title, "latest_version": latest, "source": source});
        serde_json::from_value(record).unwrap()
    }

    fn known(id: &str, version: Option<&str>, content: &str) -> UploadedSkill {
        let digest = Digest::of_bytes(content.as_bytes());
        UploadedSkill { id: id.into(), version: version.map(VersionId::new), digest, dir: "/f".to_owned() }
    }

    fn check(remembered: Option<UploadedSkill>, listed: &[SkillMetadata], expected: &Decision) {
        let decided = decide("a", Digest::of_bytes(b"new"), remembered.as_ref(), listed);
        assert_eq!(&decided, expected, "{remembered:?} {listed:?}");
    }

    fn compare(id: &str, version: &str, matched_by: Match) -> Decision {
        Decision::Compare { skill: id.into(), version: version.into(), matched_by }
    }

    #[test]
    fn every_case_has_its_decision() {
        let custom = |id: &str, latest| record(id, "a", latest, "custom");
        let update = |id: &str| Decision::Update { skill: id.into() };
        let (old, new) = (Digest::of_bytes(b"old"), "new");
        // Nothing is remembered.
        check(None, &[], &Decision::Create);
        check(None, &[record("s", "b", Some("1"), "custom")], &Decision::Create);
        check(None, &[record("a", "a", Some("1"), "anthropic")], &Decision::Create);
        check(None, &[custom("s", Some("1"))], &compare("s", "1", Match::Title));
        check(None, &[custom("s", None)], &update("s"));
        let both = Decision::Ambiguous { skills: vec!["s".into(), "t".into()] };
        check(None, &[custom("s", Some("1")), custom("t", None)], &both);
        // Its id is.
        let unchanged = Decision::Unchanged { skill: "s".into(), version: "1".into() };
        let two = [custom("t", Some("7")), custom("s", Some("1"))];
        check(Some(known("s", Some("1"), new)), &two, &unchanged);
        check(Some(known("s", Some("1"), "old")), &two, &update("s"));
        let of = |digest| compare("s", "1", Match::Remembered(digest));
        check(Some(known("s", Some("0"), "old")), &two, &of(old));
        check(Some(known("s", Some("0"), new)), &two, &of(Digest::of_bytes(b"new")));
        check(Some(known("s", None, new)), &two, &of(Digest::of_bytes(b"new")));
        check(Some(known("s", Some("1"), new)), &[custom("s", None)], &update("s"));
        // Under another title, too.
        check(Some(known("s", Some("1"), new)), &[record("s", "A!", Some("1"), "custom")], &unchanged);
        // The service has it no more.
        check(Some(known("s", Some("1"), new)), &[], &Decision::Create);
        check(Some(known("s", Some("1"), new)), &[custom("t", Some("7"))], &compare("t", "7", Match::Title));
    }

    #[test]
    fn skills_uploaded_from_another_directory_are_not_missing() {
        let mut memory = UploadedSkills::new();
        memory.insert("a".to_owned(), known("s", None, ""));
        memory.insert("b".to_owned(), known("t", None, ""));
        memory.insert("c".to_owned(), UploadedSkill { dir: "/g".to_owned(), ..known("u", None, "") });
        let names: Vec<_> = absent("/f", &["a"], &memory).map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["b"]);
    }

    proptest! {
        /// Whatever is in the index: a skill is created only if the service lists none with this id or title, and
        /// counts as unchanged only if the indexed version is the newest.
        #[test]
        fn plans_have_no_duplicates_and_no_omissions(
            listed in proptest::collection::vec(("[st]", "[ab]", proptest::option::of("[12]")), 0..4),
            remembered in proptest::option::of(("[st]", proptest::option::of("[12]"), "(old|new)")),
        ) {
            let listed: Vec<SkillMetadata> = listed
                .iter()
                .enumerate()
                .map(|(at, (id, title, latest))| record(&format!("{id}{at}"), title, latest.as_deref(), "custom"))
                .collect();
            let remembered = remembered
                .map(|(id, version, content)| known(&format!("{id}0"), version.as_deref(), &content));
            let decided = decide("a", Digest::of_bytes(b"new"), remembered.as_ref(), &listed);
            let is_listed = |id: &SkillId| listed.iter().any(|record| record.id == *id);
            match &decided {
                Decision::Create => {
                    prop_assert!(listed.iter().all(|record| record.title.as_deref() != Some("a")));
                    prop_assert!(remembered.is_none_or(|known| !is_listed(&known.id)));
                }
                Decision::Unchanged { skill, version } => {
                    let known = remembered.unwrap();
                    prop_assert_eq!((&known.id, known.version.as_ref()), (skill, Some(version)));
                    prop_assert_eq!(known.digest, Digest::of_bytes(b"new"));
                }
                Decision::Update { skill } | Decision::Compare { skill, .. } => prop_assert!(is_listed(skill)),
                Decision::Ambiguous { skills } => prop_assert!(skills.len() > 1 && skills.iter().all(is_listed)),
            }
        }
    }
}
