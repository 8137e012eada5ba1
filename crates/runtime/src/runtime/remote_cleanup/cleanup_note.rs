//! A cleanup note: what has to be deleted at services after sessions of a tenant, or the tenant, were deleted.
//!
//! For each session it names the model, the account and the files. It holds ids, names, addresses and digests of keys,
//! but never a key. The model of that name has the key.

use std::collections::BTreeSet;
use std::time::Duration;

use conjure_artifact::ServiceAccount;
use conjure_base::{Digest, SessionId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::runtime::remote_cleanup::deletion_report::RemainingFiles;

/// The format version of a note.
pub(super) const FORMAT: u32 = 1;
/// How often, and for how long, a service must refuse before the deletion is given up. A wrong key may be corrected
/// meanwhile.
const MAX_REFUSALS: u32 = 20;
const MAX_REFUSED_TIME: Duration = Duration::from_secs(3 * 24 * 3_600);

/// What deletions of a tenant's sessions left at services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CleanupNote {
    pub(super) format: u32,
    pub(crate) tenant: TenantId,
    /// When the note was written.
    pub(super) since: Timestamp,
    /// How often a service refused a deletion, or no key was known.
    pub(super) refusals: u32,
    #[serde(rename = "left")]
    pub(crate) remaining: Vec<FilesToDelete>,
    /// Skills that were uploaded under a deleted tenant's own key. Such a note has no files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) skills: Option<SkillsToDelete>,
}

/// Skills of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SkillsToDelete {
    pub(crate) account: ServiceAccountRef,
    /// The ids. Those that failed last come after the others.
    pub(crate) ids: Vec<String>,
}

/// The files of one session at the service of one of its models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilesToDelete {
    #[serde(serialize_with = "SessionId::serialize_stored")]
    pub(crate) session: SessionId,
    /// The model's name in the session's record.
    pub(crate) model: Option<String>,
    /// The account when the note was written. `None` if the model was not known.
    pub(crate) account: Option<ServiceAccountRef>,
    pub(crate) files: Vec<String>,
}

/// A [`ServiceAccount`] in its stored form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServiceAccountRef {
    pub(crate) service: String,
    pub(crate) key: Digest,
}

impl From<ServiceAccount> for ServiceAccountRef {
    fn from(account: ServiceAccount) -> Self {
        Self { service: account.service, key: account.key }
    }
}

impl FilesToDelete {
    /// The report for the caller of the deletion.
    pub(super) fn report(&self, reason: &str) -> RemainingFiles {
        RemainingFiles {
            session: self.session,
            model: self.model.clone(),
            service: self.account.as_ref().map(|account| account.service.clone()),
            files: self.files.clone(),
            reason: reason.to_owned(),
        }
    }
}

impl CleanupNote {
    pub(crate) const fn new(tenant: TenantId, since: Timestamp, remaining: Vec<FilesToDelete>) -> Self {
        Self { format: FORMAT, tenant, since, refusals: 0, remaining, skills: None }
    }

    /// A note of skills.
    #[cfg(feature = "anthropic")]
    pub(super) const fn for_skills(tenant: TenantId, since: Timestamp, skills: SkillsToDelete) -> Self {
        Self { format: FORMAT, tenant, since, refusals: 0, remaining: Vec::new(), skills: Some(skills) }
    }

    /// The note's name. It is made of the first session, or of the tenant and the account for skills.
    pub(crate) fn name(&self) -> Option<String> {
        let of_skills = self.skills.as_ref().map(|skills| {
            let account =
                Digest::of_bytes(format!("{} {}", skills.account.service, skills.account.key).as_bytes());
            format!("skills-{}-{}", self.tenant, &account.to_hex()[..16])
        });
        of_skills.or_else(|| self.remaining.first().map(|entry| entry.session.stored_name()))
    }

    /// Whether nothing is left to delete.
    pub(super) fn is_empty(&self) -> bool {
        self.remaining.is_empty() && self.skills.as_ref().is_none_or(|skills| skills.ids.is_empty())
    }

    /// Adds the content of an earlier note of this name: other sessions, whose records may be deleted already, and
    /// skills.
    ///
    /// If the earlier note has an account for a session, that one stays. The tenant's key may be unknown later, so the
    /// first note is most likely to have the right one.
    pub(super) fn merged_over(mut self, before: Option<Self>) -> Self {
        let Some(before) = before else { return self };
        for entry in &mut self.remaining {
            let is_same =
                |known: &&FilesToDelete| (known.session, &known.model) == (entry.session, &entry.model);
            let known = before.remaining.iter().find(is_same);
            if let Some(account) = known.and_then(|known| known.account.clone()) {
                entry.account = Some(account);
            }
        }
        let others =
            before.remaining.into_iter().filter(|entry| !self.has(entry.session)).collect::<Vec<_>>();
        self.remaining.extend(others);
        if let (Some(skills), Some(before)) = (&mut self.skills, before.skills) {
            let others = before.ids.into_iter().filter(|id| !skills.ids.contains(id)).collect::<Vec<_>>();
            skills.ids.extend(others);
        }
        self
    }

    fn has(&self, session: SessionId) -> bool {
        self.remaining.iter().any(|entry| entry.session == session)
    }

    /// Removes a session from the note.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.remaining.retain(|entry| entry.session != session);
    }

    /// Removes deleted files of a session from the note.
    pub(super) fn remove_files(&mut self, session: SessionId, deleted: &BTreeSet<String>) {
        for entry in self.remaining.iter_mut().filter(|entry| entry.session == session) {
            entry.files.retain(|file| !deleted.contains(file));
        }
        self.remaining.retain(|entry| !entry.files.is_empty());
    }

    /// Moves refused files of a session to the end, so that others come first.
    pub(super) fn move_to_end(&mut self, session: SessionId, refused: &BTreeSet<String>) {
        for entry in self.remaining.iter_mut().filter(|entry| entry.session == session) {
            entry.files.sort_by_key(|file| refused.contains(file));
        }
    }

    /// Moves these sessions to the end, so that others come first.
    pub(super) fn move_sessions_to_end(&mut self, failed: &BTreeSet<SessionId>) {
        self.remaining.sort_by_key(|entry| failed.contains(&entry.session));
    }

    /// Whether the next refusal is final.
    pub(super) fn is_given_up(&self, now: Timestamp) -> bool {
        self.refusals >= MAX_REFUSALS && now.duration_since(self.since) >= MAX_REFUSED_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_note(files: &[&str]) -> CleanupNote {
        let entry = FilesToDelete {
            session: SessionId::from_bits(1),
            model: Some("m".to_owned()),
            account: Some(ServiceAccountRef {
                service: "https://example.com/".to_owned(),
                key: Digest::of_bytes(b"k"),
            }),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
        };
        let since = Timestamp::from_millis(1_000_000);
        CleanupNote::new(TenantId::new("acme").unwrap(), since, vec![entry])
    }

    #[test]
    fn what_is_gone_is_taken_off_and_nothing_else() {
        let mut note = sample_note(&["a", "b"]);
        let ids_of = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
        note.remove_files(SessionId::from_bits(2), &ids_of(&["a", "b"]));
        assert_eq!(note, sample_note(&["a", "b"]), "they are another session's");
        note.remove_files(SessionId::from_bits(1), &ids_of(&["b", "c"]));
        assert_eq!(note, sample_note(&["a"]));
        note.remove_files(SessionId::from_bits(1), &ids_of(&["a"]));
        assert!(note.remaining.is_empty() && note.name().is_none());
    }

    #[test]
    fn what_was_refused_lets_the_others_go_first() {
        let mut note = sample_note(&["a", "b", "c"]);
        note.move_to_end(SessionId::from_bits(1), &["a".to_owned()].into());
        assert_eq!(note, sample_note(&["b", "c", "a"]));
        note.move_to_end(SessionId::from_bits(2), &["b".to_owned()].into());
        assert_eq!(note, sample_note(&["b", "c", "a"]));
    }

    #[test]
    fn sessions_of_which_something_failed_let_the_others_go_first() {
        let mut note = sample_note(&["a"]);
        for number in [2, 3] {
            note.remaining
                .push(FilesToDelete { session: SessionId::from_bits(number), ..note.remaining[0].clone() });
        }
        let sessions =
            |numbers: &[u128]| numbers.iter().map(|number| SessionId::from_bits(*number)).collect();
        note.move_sessions_to_end(&sessions(&[1, 2]));
        let seen: Vec<SessionId> = note.remaining.iter().map(|entry| entry.session).collect();
        assert_eq!(seen, [3, 1, 2].map(SessionId::from_bits));
    }

    #[test]
    fn what_is_noted_anew_of_one_session_leaves_what_is_noted_of_others() {
        let of = |number: u128, files: &[&str]| {
            let mut note = sample_note(files);
            note.remaining[0].session = SessionId::from_bits(number);
            note
        };
        let before = of(1, &["a"]).merged_over(Some(of(2, &["b"])));
        let mut now = of(1, &["a", "c"]).merged_over(Some(before));
        let seen: Vec<_> = now.remaining.iter().map(|entry| entry.files.join(" ")).collect();
        assert_eq!(seen, ["a c", "b"]);
        now.forget(SessionId::from_bits(1));
        assert_eq!(now.remaining, of(2, &["b"]).remaining);
    }

    #[test]
    fn a_refusal_is_believed_when_it_was_heard_often_and_for_long() {
        let mut note = sample_note(&["a"]);
        let after = |days: u64| Timestamp::from_millis(1_000_000 + days * 24 * 3_600 * 1_000);
        for (refusals, now, expected) in [
            (0, after(400), false),
            (19, after(400), false),
            (20, after(2), false),
            (20, after(3), true),
            // The clock was set back.
            (20, Timestamp::from_millis(0), false),
        ] {
            note.refusals = refusals;
            assert_eq!(note.is_given_up(now), expected, "{refusals} {now}");
        }
    }
}
