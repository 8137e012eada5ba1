//! A note of what is to be deleted at services: whose, by which model, under which key, and for how long that is tried.
//!
//! It holds ids, names, an address and a digest of the key, and never the key: the model of that name is what knows one.

use std::collections::BTreeSet;
use std::time::Duration;

use conjure_artifact::ServiceAccount;
use conjure_base::{Digest, SessionId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::report::LeftAtService;

/// The form of a note.
pub(super) const FORMAT: u32 = 1;
/// How often a service refuses before it is believed, and for how long: keys are put right, too.
const MOST_REFUSALS: u32 = 20;
const LONGEST_REFUSED: Duration = Duration::from_secs(3 * 24 * 3_600);

/// What deletions of one tenant's sessions left to be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remains {
    pub(super) format: u32,
    pub(crate) tenant: TenantId,
    /// When it was noted.
    pub(super) since: Timestamp,
    /// How often services refused to delete some of it, or nobody knew a key.
    pub(super) refusals: u32,
    pub(crate) left: Vec<FilesLeft>,
    /// Skills that were uploaded under the tenant's own key, who is deleted; then nothing else is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) skills: Option<SkillsLeft>,
}

/// Skills of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SkillsLeft {
    pub(crate) account: Account,
    /// Those that failed last behind the others.
    pub(crate) ids: Vec<String>,
}

/// The files of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilesLeft {
    pub(crate) session: SessionId,
    /// The model's name, as the session was recorded with it.
    pub(crate) model: Option<String>,
    /// Where they were to be reached when it was noted; `None`: the model was not known.
    pub(crate) account: Option<Account>,
    pub(crate) files: Vec<String>,
}

/// A [`ServiceAccount`], as it is put down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) service: String,
    pub(crate) key: Digest,
}

impl From<ServiceAccount> for Account {
    fn from(account: ServiceAccount) -> Self {
        Self { service: account.service, key: account.key }
    }
}

impl FilesLeft {
    /// The same for who asked for the deletion.
    pub(super) fn report(&self, reason: &str) -> LeftAtService {
        LeftAtService {
            session: self.session,
            model: self.model.clone(),
            service: self.account.as_ref().map(|account| account.service.clone()),
            files: self.files.clone(),
            reason: reason.to_owned(),
        }
    }
}

impl Remains {
    pub(crate) const fn new(tenant: TenantId, since: Timestamp, left: Vec<FilesLeft>) -> Self {
        Self { format: FORMAT, tenant, since, refusals: 0, left, skills: None }
    }

    /// Of skills.
    #[cfg(feature = "anthropic")]
    pub(super) const fn of_skills(tenant: TenantId, since: Timestamp, skills: SkillsLeft) -> Self {
        Self { format: FORMAT, tenant, since, refusals: 0, left: Vec::new(), skills: Some(skills) }
    }

    /// What the note is called: after the first session in it, or after the tenant and the account.
    pub(crate) fn name(&self) -> Option<String> {
        let of_skills = self.skills.as_ref().map(|skills| {
            let account = Digest::of(format!("{} {}", skills.account.service, skills.account.key).as_bytes());
            format!("skills-{}-{}", self.tenant, &account.to_hex()[..16])
        });
        of_skills.or_else(|| self.left.first().map(|left| left.session.to_string()))
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty() && self.skills.as_ref().is_none_or(|skills| skills.ids.is_empty())
    }

    /// Adds what was noted under this name before: of other sessions, whose records may be gone by now, and of skills. Under which key
    /// the files of a session lie was known best when that was noted first: who notes it again may not have the tenant's.
    pub(super) fn over(mut self, before: Option<Self>) -> Self {
        let Some(before) = before else { return self };
        for left in &mut self.left {
            let known = before.left.iter().find(|known| known.session == left.session);
            if let Some(account) = known.and_then(|known| known.account.clone()) {
                left.account = Some(account);
            }
        }
        let others = before.left.into_iter().filter(|left| !self.has(left.session)).collect::<Vec<_>>();
        self.left.extend(others);
        if let (Some(skills), Some(before)) = (&mut self.skills, before.skills) {
            let others = before.ids.into_iter().filter(|id| !skills.ids.contains(id)).collect::<Vec<_>>();
            skills.ids.extend(others);
        }
        self
    }

    fn has(&self, session: SessionId) -> bool {
        self.left.iter().any(|left| left.session == session)
    }

    /// Forgets a session.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.left.retain(|left| left.session != session);
    }

    /// Takes off the files of a session that are gone.
    pub(super) fn take_off(&mut self, session: SessionId, gone: &BTreeSet<String>) {
        for left in self.left.iter_mut().filter(|left| left.session == session) {
            left.files.retain(|file| !gone.contains(file));
        }
        self.left.retain(|left| !left.files.is_empty());
    }

    /// Puts the files of a session that were refused behind the others, which have their turn first then.
    pub(super) fn put_behind(&mut self, session: SessionId, refused: &BTreeSet<String>) {
        for left in self.left.iter_mut().filter(|left| left.session == session) {
            left.files.sort_by_key(|file| refused.contains(file));
        }
    }

    /// Puts these sessions behind the others, which have their turn first then.
    pub(super) fn put_sessions_behind(&mut self, failed: &BTreeSet<SessionId>) {
        self.left.sort_by_key(|left| failed.contains(&left.session));
    }

    /// Whether what is refused once more is not asked for again.
    pub(super) fn is_hopeless(&self, now: Timestamp) -> bool {
        self.refusals >= MOST_REFUSALS && now.since(self.since) >= LONGEST_REFUSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remains(files: &[&str]) -> Remains {
        let left = FilesLeft {
            session: SessionId::from_bits(1),
            model: Some("m".to_owned()),
            account: Some(Account { service: "https://example.com/".to_owned(), key: Digest::of(b"k") }),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
        };
        let since = Timestamp::from_millis(1_000_000);
        Remains::new(TenantId::new("acme").unwrap(), since, vec![left])
    }

    #[test]
    fn what_is_gone_is_taken_off_and_nothing_else() {
        let mut noted = remains(&["a", "b"]);
        let gone = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
        noted.take_off(SessionId::from_bits(2), &gone(&["a", "b"]));
        assert_eq!(noted, remains(&["a", "b"]), "they are another session's");
        noted.take_off(SessionId::from_bits(1), &gone(&["b", "c"]));
        assert_eq!(noted, remains(&["a"]));
        noted.take_off(SessionId::from_bits(1), &gone(&["a"]));
        assert!(noted.left.is_empty() && noted.name().is_none());
    }

    #[test]
    fn what_was_refused_lets_the_others_go_first() {
        let mut noted = remains(&["a", "b", "c"]);
        noted.put_behind(SessionId::from_bits(1), &["a".to_owned()].into());
        assert_eq!(noted, remains(&["b", "c", "a"]));
        noted.put_behind(SessionId::from_bits(2), &["b".to_owned()].into());
        assert_eq!(noted, remains(&["b", "c", "a"]));
    }

    #[test]
    fn sessions_of_which_something_failed_let_the_others_go_first() {
        let mut noted = remains(&["a"]);
        for number in [2, 3] {
            noted.left.push(FilesLeft { session: SessionId::from_bits(number), ..noted.left[0].clone() });
        }
        let sessions =
            |numbers: &[u128]| numbers.iter().map(|number| SessionId::from_bits(*number)).collect();
        noted.put_sessions_behind(&sessions(&[1, 2]));
        let seen: Vec<SessionId> = noted.left.iter().map(|left| left.session).collect();
        assert_eq!(seen, [3, 1, 2].map(SessionId::from_bits));
    }

    #[test]
    fn what_is_noted_anew_of_one_session_leaves_what_is_noted_of_others() {
        let of = |number: u128, files: &[&str]| {
            let mut noted = remains(files);
            noted.left[0].session = SessionId::from_bits(number);
            noted
        };
        let before = of(1, &["a"]).over(Some(of(2, &["b"])));
        let mut now = of(1, &["a", "c"]).over(Some(before));
        let seen: Vec<_> = now.left.iter().map(|left| left.files.join(" ")).collect();
        assert_eq!(seen, ["a c", "b"]);
        now.forget(SessionId::from_bits(1));
        assert_eq!(now.left, of(2, &["b"]).left);
    }

    #[test]
    fn a_refusal_is_believed_when_it_was_heard_often_and_for_long() {
        let mut noted = remains(&["a"]);
        let after = |days: u64| Timestamp::from_millis(1_000_000 + days * 24 * 3_600 * 1_000);
        for (refusals, now, expected) in [
            (0, after(400), false),
            (19, after(400), false),
            (20, after(2), false),
            (20, after(3), true),
            // A clock that went back.
            (20, Timestamp::from_millis(0), false),
        ] {
            noted.refusals = refusals;
            assert_eq!(noted.is_hopeless(now), expected, "{refusals} {now}");
        }
    }
}
