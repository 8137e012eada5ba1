//! Deleting at services what is noted, a slice at a time.
//!
//! State: none but the notes. Broken off anywhere, it is begun again: what was deleted is absent then, which is as good.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::metrics::ServiceFiles;
use conjure_artifact::{FileRemoval, RemovalError, Removed};
use conjure_base::{Clock as _, Deadline, SystemClock};
use conjure_journal::SessionKey;
use futures_util::future::join_all;

use super::super::error::RuntimeError;
use super::super::handle::Runtime;
use super::noted::{FilesLeft, Remains};
use super::report::{LeftAtService, SkillFate, SkillsAtService};

/// How many files are deleted at a time.
const AT_A_TIME: usize = 4;
/// The most files of one note that are deleted before others have their turn.
const SLICE: usize = 200;
/// How many files of an account fail one after the other before it counts as one that does not answer.
pub(super) const MOST_FAILURES: usize = 3;
/// Why nothing was asked of a service.
const SKIPPED: &str = "the service did not answer others just before";
/// Why a file counts as refused that another key than the one of then does not know.
const NOT_UNDER_THIS_KEY: &str =
    "the key that is known now has no such file, and it is not known to be the one of then";
/// Why what was not tried is left.
pub(super) const NO_TIME: &str = "there was no time for it yet";
/// How long the deletion of one file may take.
pub(super) const FOR_ONE: Duration = Duration::from_secs(20);
/// How long others who change notes are waited for at least.
const FOR_NOTE: Duration = Duration::from_secs(1);

/// What came of one slice.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// How many files are gone.
    pub(crate) gone: u64,
    /// What is there yet, of sessions whose records are gone.
    pub(crate) left: Vec<LeftAtService>,
    /// Skills of a tenant that are there yet.
    pub(crate) skills: Vec<SkillsAtService>,
    /// Why some of it could not be deleted: it is to be tried later, and not at once.
    pub(crate) failure: Option<String>,
    /// Some of it was not even asked for, since the service did not answer others just before. It has failed in nothing.
    pub(crate) is_skipped: bool,
}

impl Carried {
    /// Nothing was looked at: all that is noted counts as left.
    fn untried(noted: &Remains, reason: &str) -> Self {
        let skills = noted.skills.as_ref().map(|skills| SkillsAtService {
            service: skills.account.service.clone(),
            skills: skills.ids.clone(),
            fate: SkillFate::Later,
            reason: reason.to_owned(),
        });
        Self {
            left: noted.left.iter().map(|left| left.report(reason)).collect(),
            skills: skills.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// The accounts at services that do not answer: nothing more is asked of them for now.
#[derive(Debug, Default)]
pub(crate) struct Silent(BTreeMap<String, Answering>);

/// How an account answers.
#[derive(Debug)]
enum Answering {
    /// Since it last did what it was asked, or refused it, it failed to delete these.
    Failing(BTreeSet<String>),
    /// It did not answer.
    Not,
}

impl Silent {
    /// Whether this account is to be left alone: it does not answer, or fails whatever it is asked.
    fn has(&self, account: &str) -> bool {
        match self.0.get(account) {
            Some(Answering::Failing(files)) => files.len() >= MOST_FAILURES,
            Some(Answering::Not) => true,
            None => false,
        }
    }

    fn answers(&mut self, account: &str) {
        if let Some(Answering::Failing(_)) = self.0.get(account) {
            self.0.remove(account);
        }
    }

    fn fails(&mut self, account: &str, file: &str) {
        let answering =
            self.0.entry(account.to_owned()).or_insert_with(|| Answering::Failing(BTreeSet::new()));
        if let Answering::Failing(files) = answering {
            files.insert(file.to_owned());
        }
    }

    fn does_not_answer(&mut self, account: &str) {
        self.0.insert(account.to_owned(), Answering::Not);
    }
}

/// What came of some files of one session.
#[derive(Default)]
struct Tried {
    gone: BTreeSet<String>,
    /// The service refused these, or there is no key.
    refused: BTreeSet<String>,
    /// Why.
    why: Option<String>,
    /// These may well be gone later.
    passing: BTreeSet<String>,
    /// Why not now.
    why_not: Option<String>,
    /// The service did not answer others just before, so it was not asked.
    is_skipped: bool,
}

impl Tried {
    fn refused(&mut self, id: &str, reason: String) {
        self.refused.insert(id.to_owned());
        self.why = Some(reason);
    }

    /// All that are not gone, as the others would be.
    fn all_refused(mut self, left: &FilesLeft, reason: String) -> Self {
        self.refused = left.files.iter().filter(|file| !self.gone.contains(*file)).cloned().collect();
        self.why = Some(reason);
        self
    }
}

/// Deletes some of what is noted under this name.
pub(crate) async fn carry(
    runtime: &Runtime,
    name: &str,
    silent: &mut Silent,
    deadline: Deadline,
) -> Result<Carried, RuntimeError> {
    let shelf = &runtime.inner.remains;
    let mut carried = Carried::default();
    let Some(noted) = shelf.get(name).await? else { return Ok(carried) };
    if SystemClock.remaining(deadline).is_zero() {
        return Ok(Carried::untried(&noted, NO_TIME));
    }
    #[cfg(feature = "anthropic")]
    if let Some(skills) = &noted.skills {
        return super::skills::carry_skills(runtime, name, &noted, skills, deadline).await;
    }
    let records = match within(deadline, runtime.records()).await {
        None => return Ok(Carried::untried(&noted, NO_TIME)),
        Some(Err(error)) => {
            let reason = error.to_string();
            return Ok(Carried { failure: Some(reason.clone()), ..Carried::untried(&noted, &reason) });
        }
        Some(Ok(records)) => records,
    };
    let mut done = Vec::new();
    let mut room = SLICE;
    for left in &noted.left {
        let key = SessionKey::new(noted.tenant.clone(), left.session);
        match within(deadline, records.info(&key)).await {
            Some(Err(RuntimeError::NotFound { .. })) => {}
            // It is not deleted, or not yet.
            Some(Ok(_)) => continue,
            // It does not hold up the others.
            Some(Err(error)) => {
                let reason = error.to_string();
                carried.left.push(left.report(&reason));
                carried.failure = Some(reason);
                continue;
            }
            None => {
                carried.left.push(left.report(NO_TIME));
                continue;
            }
        }
        let tried = try_some(runtime, &noted, left, room, silent, deadline).await;
        room = room.saturating_sub(tried.gone.len());
        carried.gone += tried.gone.len() as u64;
        let rest = left.files.iter().filter(|file| !tried.gone.contains(*file)).cloned().collect::<Vec<_>>();
        let failure = tried.why.clone().or(tried.why_not.clone());
        carried.is_skipped |= tried.is_skipped;
        if !rest.is_empty() {
            let reason = failure.as_deref().unwrap_or(if tried.is_skipped { SKIPPED } else { NO_TIME });
            carried.left.push(FilesLeft { files: rest, ..left.clone() }.report(reason));
        }
        carried.failure = carried.failure.or(failure);
        done.push((left, tried));
    }
    let is_refused = done.iter().any(|(_, tried)| !tried.refused.is_empty());
    let is_hopeless = is_refused && noted.is_hopeless(SystemClock.timestamp());
    if is_hopeless {
        done.iter()
            .filter(|(_, tried)| !tried.refused.is_empty())
            .for_each(|(left, tried)| give_up(&noted, left, tried));
    }
    let done: Vec<_> = done
        .into_iter()
        .map(|(left, tried)| (left.session, tried.gone, tried.refused, tried.passing))
        .collect();
    let failed: BTreeSet<_> =
        done.iter().filter(|(.., passing)| !passing.is_empty()).map(|(session, ..)| *session).collect();
    let is_put_behind = is_refused || !failed.is_empty();
    let changed = move |noted: &mut Remains| {
        noted.refusals += u32::from(is_refused);
        for (session, gone, refused, passing) in &done {
            noted.take_off(*session, gone);
            if is_hopeless {
                noted.take_off(*session, refused);
            } else {
                noted.put_behind(*session, refused);
            }
            noted.put_behind(*session, passing);
        }
        noted.put_sessions_behind(&failed);
    };
    if (carried.gone > 0 || is_put_behind)
        && let Err(error) = shelf.update(name, for_note(deadline), changed).await
    {
        // What is gone is absent the next time.
        carried.failure = Some(error.to_string());
    }
    Ok(carried)
}

/// Tells by name what stays.
fn give_up(noted: &Remains, left: &FilesLeft, tried: &Tried) {
    let service = left.account.as_ref().map_or("unknown", |account| account.service.as_str());
    let model = left.model.as_deref().unwrap_or("unknown");
    let reason = tried.why.as_deref().unwrap_or_default();
    let (tenant, session, files) = (&noted.tenant, left.session, &tried.refused);
    ServiceFiles::GivenUp.count(files.len() as u64);
    tracing::warn!(
        %tenant, %session, service, model, ?files, reason,
        "files of a deleted session stay at its model's service for good, unless somebody deletes them there: it refuses"
    );
}

/// Deletes so many files of a session at most.
async fn try_some(
    runtime: &Runtime,
    noted: &Remains,
    left: &FilesLeft,
    room: usize,
    silent: &mut Silent,
    deadline: Deadline,
) -> Tried {
    let mut tried = Tried::default();
    let removal = match runtime.inner.outfitter.removal(&noted.tenant, left.model.as_deref()) {
        Ok(removal) => removal,
        Err(reason) => return tried.all_refused(left, reason),
    };
    let account = removal.account();
    if let Some(then) = left.account.as_ref().filter(|then| then.service != account.service) {
        let reason =
            format!("the model is one of `{}` now, and they lie at `{}`", account.service, then.service);
        return tried.all_refused(left, reason);
    }
    let name = format!("{} {}", account.service, account.key);
    if silent.has(&name) {
        tried.is_skipped = true;
        return tried;
    }
    let is_same_key = left.account.as_ref().is_some_and(|then| then.key == account.key);
    let files: Vec<&String> = left.files.iter().take(room).collect();
    for some in files.chunks(AT_A_TIME) {
        if SystemClock.remaining(deadline).is_zero() || silent.has(&name) {
            break;
        }
        let mut key_refused = None;
        let removing = some.iter().map(|id| remove(&removal, id, deadline));
        // What became of each is known before anything is made of it.
        for (id, removed) in some.iter().zip(join_all(removing).await) {
            match &removed {
                Err(RemovalError::Unreachable { .. }) => silent.does_not_answer(&name),
                Ok(_) | Err(RemovalError::KeyRefused { .. } | RemovalError::Refused { .. }) => {
                    silent.answers(&name);
                }
                Err(_) => silent.fails(&name, id),
            }
            let outcome = match removed {
                Ok(Removed::Deleted) => ServiceFiles::Deleted,
                Ok(Removed::Absent) if is_same_key => ServiceFiles::Absent,
                Ok(Removed::Absent) => {
                    tried.refused(id, NOT_UNDER_THIS_KEY.to_owned());
                    continue;
                }
                Err(RemovalError::KeyRefused { reason }) => {
                    key_refused = Some(reason);
                    continue;
                }
                Err(RemovalError::Refused { reason }) => {
                    tried.refused(id, reason);
                    continue;
                }
                Err(error) => {
                    tried.why_not = Some(error.to_string());
                    tried.passing.insert((*id).clone());
                    continue;
                }
            };
            outcome.count(1);
            tried.gone.insert((*id).clone());
        }
        if let Some(reason) = key_refused {
            return tried.all_refused(left, reason);
        }
    }
    tried
}

/// What comes of it until then. Where that has passed, it is not begun.
async fn within<T>(deadline: Deadline, work: impl Future<Output = T>) -> Option<T> {
    if SystemClock.remaining(deadline).is_zero() {
        return None;
    }
    tokio::select! {
        biased;
        done = work => Some(done),
        () = SystemClock.sleep_until(deadline) => None,
    }
}

/// How long others who change notes are waited for: until then, and for a moment at least.
pub(super) fn for_note(deadline: Deadline) -> Deadline {
    SystemClock.deadline(SystemClock.remaining(deadline).max(FOR_NOTE))
}

async fn remove(
    removal: &Arc<dyn FileRemoval>,
    id: &str,
    deadline: Deadline,
) -> Result<Removed, RemovalError> {
    let deadline = SystemClock.deadline(FOR_ONE).earlier(deadline);
    tokio::select! {
        biased;
        removed = removal.remove(id) => removed,
        () = SystemClock.sleep_until(deadline) => {
            Err(RemovalError::Unreachable { reason: "the service did not answer in time".to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use conjure_base::{SessionId, TenantId};

    use super::*;
    use crate::config::{Config, Environment, ExecutorKind, Settings};
    use crate::runtime::RuntimeOptions;

    #[tokio::test]
    async fn when_its_time_is_over_what_is_noted_is_told_and_nothing_is_looked_up() {
        let settings = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
        let config = Config::layered(settings, &Environment::default(), None).unwrap();
        let runtime = Runtime::spawn(RuntimeOptions::from(config).ephemeral()).await.unwrap();
        let left = FilesLeft {
            session: SessionId::from_bits(1),
            model: Some("m".to_owned()),
            account: None,
            files: vec!["a".to_owned(), "b".to_owned()],
        };
        let noted = Remains::new(TenantId::new("acme").unwrap(), SystemClock.timestamp(), vec![left.clone()]);
        let shelf = &runtime.inner.remains;
        let name = shelf.put(noted.clone()).await.unwrap().unwrap();
        let over = SystemClock.deadline(Duration::ZERO);
        let carried = carry(&runtime, &name, &mut Silent::default(), over).await.unwrap();
        assert_eq!((carried.left, carried.failure), (vec![left.report(NO_TIME)], None));
        assert_eq!(shelf.get(&name).await.unwrap(), Some(noted));
        assert_eq!(within(over, std::future::ready(1)).await, None);
        let soon = SystemClock.deadline(Duration::from_secs(60));
        assert_eq!(within(soon, std::future::ready(1)).await, Some(1));
        // There is no such model.
        let carried = carry(&runtime, &name, &mut Silent::default(), soon).await.unwrap();
        assert!(carried.left[0].reason.contains("`m`"), "{carried:?}");
        assert_eq!(shelf.get(&name).await.unwrap().unwrap().refusals, 1);
        runtime.shutdown(soon).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_longer_than_there_is_time_is_left() {
        let soon = SystemClock.deadline(Duration::from_secs(60));
        assert_eq!(within(soon, std::future::pending::<()>()).await, None);
    }

    #[test]
    fn an_account_is_left_alone_when_it_does_not_answer_or_fails_of_several_files_in_a_row() {
        // Small: it fails of that one; large: it does not answer; `+`: it does what it is asked, or refuses it.
        for (said, expected) in [
            ("", false),
            ("A", true),
            ("A+", true),
            ("aA+", true),
            ("ab", false),
            ("aaaa", false),
            ("abc", true),
            ("ab+c", false),
            ("ab+cde", true),
            // Beside the others of that moment.
            ("abc+", false),
        ] {
            let mut silent = Silent::default();
            for file in said.chars() {
                match file {
                    '+' => silent.answers("it"),
                    'A'..='Z' => silent.does_not_answer("it"),
                    file => silent.fails("it", &file.to_string()),
                }
            }
            assert_eq!((silent.has("it"), silent.has("another")), (expected, false), "{said}");
        }
    }
}
