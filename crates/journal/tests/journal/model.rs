//! Random calls in any order match a simple model, in memory and in SQLite.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::TenantId;
use conjure_journal::conformance::JournalFixture;
use conjure_journal::{
    CounterIncrement, Epoch, Journal, JournalError, JournalErrorKind, LeaseOwner, NewEvent, SessionKey,
    Snapshot, SqliteOptions, read_all,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::support::{InMemory, OnDisk, key, options};

const HOUR: Duration = Duration::from_secs(3_600);

/// Which epoch a call names, from that of the session.
#[derive(Debug, Clone, Copy)]
enum EpochChoice {
    Current,
    Former,
    Later,
}

#[derive(Debug, Clone)]
enum Op {
    Create,
    /// So many events, with a sequence that is off by this, and awaited or dropped.
    Append {
        sizes: Vec<usize>,
        off: i64,
        under: EpochChoice,
        is_dropped: bool,
    },
    Acquire {
        owner: bool,
    },
    Renew {
        under: EpochChoice,
        time: Duration,
    },
    Release {
        under: EpochChoice,
    },
    SaveSnapshot {
        seq: u64,
        under: EpochChoice,
        size: usize,
    },
    DeleteSession,
    DeleteTenant,
    Sweep,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let under = || prop_oneof![6 => Just(EpochChoice::Current), 1 => Just(EpochChoice::Former), 1 => Just(EpochChoice::Later)];
    let size = || prop_oneof![4 => 0..40_usize, 1 => 60..200_usize];
    let append = (
        prop::collection::vec(size(), 0..4),
        prop_oneof![6 => Just(0), 1 => -2..3_i64],
        under(),
        prop::bool::weighted(0.2),
    );
    prop_oneof![
        3 => Just(Op::Create),
        8 => append.prop_map(|(sizes, off, under, is_dropped)| Op::Append { sizes, off, under, is_dropped }),
        2 => any::<bool>().prop_map(|owner| Op::Acquire { owner }),
        1 => (under(), prop_oneof![Just(HOUR), Just(Duration::ZERO)])
            .prop_map(|(under, time)| Op::Renew { under, time }),
        1 => under().prop_map(|under| Op::Release { under }),
        2 => (0..6_u64, under(), size()).prop_map(|(seq, under, size)| Op::SaveSnapshot { seq, under, size }),
        1 => Just(Op::DeleteSession),
        1 => Just(Op::DeleteTenant),
        1 => Just(Op::Sweep),
        1 => Just(Op::Reopen),
    ]
}

/// The calls, each to one of four sessions: two ids under two tenants.
fn calls() -> impl Strategy<Value = Vec<(usize, Op)>> {
    prop::collection::vec((0..4_usize, op()), 1..40)
}

#[derive(Default)]
struct Session {
    events: Vec<(u64, Vec<u8>)>,
    epoch: u64,
    /// The owner, and whether the lease has ended.
    lease: Option<(bool, bool)>,
    snapshot: Option<(u64, Vec<u8>)>,
}

struct Test<'a> {
    fixture: &'a dyn JournalFixture,
    journal: Arc<dyn Journal>,
    keys: [SessionKey; 4],
    model: BTreeMap<SessionKey, Session>,
    /// The charges of each tenant.
    charged: BTreeMap<TenantId, u64>,
    /// Makes each body another one.
    count: u8,
}

fn owner(which: bool) -> LeaseOwner {
    LeaseOwner::new(if which { "one" } else { "other" }).unwrap()
}

fn kind<T>(result: Result<T, JournalError>) -> Option<JournalErrorKind> {
    result.err().map(|error| error.kind())
}

impl Test<'_> {
    fn body(&mut self, size: usize) -> Vec<u8> {
        self.count = self.count.wrapping_add(1);
        vec![self.count; size]
    }

    /// The epoch that a call names.
    fn epoch(&self, key: &SessionKey, under: EpochChoice) -> Epoch {
        let current = self.model.get(key).map_or(0, |session| session.epoch);
        Epoch::from_number(match under {
            EpochChoice::Current => current,
            EpochChoice::Former => current.wrapping_sub(1).min(1 << 40),
            EpochChoice::Later => current + 1,
        })
    }

    /// The error of a call that needs the session and its epoch.
    fn refusal(&self, key: &SessionKey, epoch: Epoch) -> Option<JournalErrorKind> {
        match self.model.get(key) {
            None => Some(JournalErrorKind::NotFound),
            Some(session) if session.epoch != epoch.number() => Some(JournalErrorKind::StaleEpoch),
            Some(_) => None,
        }
    }

    async fn call(&mut self, key: &SessionKey, op: Op) {
        let journal = Arc::clone(&self.journal);
        match op {
            Op::Create => {
                let expected = self.model.contains_key(key).then_some(JournalErrorKind::Exists);
                assert_eq!(kind(journal.create(key).await), expected);
                self.model.entry(key.clone()).or_default();
            }
            Op::Append { sizes, off, under, is_dropped } => {
                self.append(key, sizes, off, under, is_dropped).await
            }
            Op::Acquire { owner: which } => {
                let result = journal.acquire_lease(key, &owner(which), HOUR).await;
                let Some(session) = self.model.get_mut(key) else {
                    assert_eq!(kind(result), Some(JournalErrorKind::NotFound));
                    return;
                };
                if session.lease.is_some_and(|(holder, has_ended)| holder != which && !has_ended) {
                    assert_eq!(kind(result), Some(JournalErrorKind::LeaseHeld));
                } else {
                    session.epoch += 1;
                    session.lease = Some((which, false));
                    assert_eq!(result.unwrap().epoch.number(), session.epoch);
                }
            }
            Op::Renew { under, time } => {
                let epoch = self.epoch(key, under);
                let result = journal.renew_lease(key, epoch, time).await;
                let refusal = self.refusal(key, epoch);
                match self.model.get_mut(key).and_then(|session| session.lease.as_mut()) {
                    Some(lease) if refusal.is_none() => {
                        assert_eq!(result.unwrap().owner, owner(lease.0));
                        lease.1 = time.is_zero();
                    }
                    _ => assert_eq!(kind(result), Some(refusal.unwrap_or(JournalErrorKind::StaleEpoch))),
                }
            }
            Op::Release { under } => {
                let epoch = self.epoch(key, under);
                let result = journal.release_lease(key, epoch).await;
                let refusal = self.refusal(key, epoch);
                match self.model.get_mut(key) {
                    Some(session) if refusal.is_none() && session.lease.is_some() => {
                        session.lease = None;
                        session.epoch += 1;
                        result.unwrap();
                    }
                    _ => assert_eq!(kind(result), Some(refusal.unwrap_or(JournalErrorKind::StaleEpoch))),
                }
            }
            Op::SaveSnapshot { seq, under, size } => {
                let (epoch, body) = (self.epoch(key, under), self.body(size));
                let snapshot = Snapshot { seq, version: 1, body: body.clone() };
                let result = journal.save_snapshot(key, epoch, snapshot).await;
                if let Some(refusal) = self.refusal(key, epoch) {
                    assert_eq!(kind(result), Some(refusal));
                    return;
                }
                let session = self.model.get_mut(key).unwrap();
                if seq > session.events.len() as u64 {
                    assert_eq!(kind(result), Some(JournalErrorKind::Conflict));
                } else {
                    result.unwrap();
                    if session.snapshot.as_ref().is_none_or(|(last, _)| *last <= seq) {
                        session.snapshot = Some((seq, body));
                    }
                }
            }
            Op::DeleteSession => {
                let result = journal.delete_session(key).await;
                let expected = self.model.remove(key).is_none().then_some(JournalErrorKind::NotFound);
                assert_eq!(kind(result), expected);
            }
            Op::DeleteTenant => {
                let before = self.model.len();
                self.model.retain(|other, _| other.tenant != key.tenant);
                self.charged.remove(&key.tenant);
                let expected = (before - self.model.len()) as u64;
                assert_eq!(journal.delete_tenant(&key.tenant).await, Ok(expected));
            }
            Op::Sweep => drop(journal.sweep().await.unwrap()),
            Op::Reopen => self.journal = self.fixture.open().await.unwrap(),
        }
    }

    async fn append(
        &mut self,
        key: &SessionKey,
        sizes: Vec<usize>,
        off: i64,
        under: EpochChoice,
        is_dropped: bool,
    ) {
        let epoch = self.epoch(key, under);
        let found = self.model.get(key).map_or(0, |session| session.events.len() as u64);
        let expected = found.saturating_add_signed(off);
        let bodies: Vec<Vec<u8>> = sizes.into_iter().map(|size| self.body(size)).collect();
        let events = bodies.iter().map(|body| NewEvent::new("note", 1, body.clone())).collect();
        let amount = bodies.iter().map(|body| body.len() as u64).sum();
        let charges = vec![CounterIncrement::new("bytes", amount)];
        let append = self.journal.append_with_counters(key, expected, epoch, events, charges);
        let conflict = (expected != found).then_some(JournalErrorKind::Conflict);
        let refusal = self.refusal(key, epoch).or(conflict);
        let total = found + bodies.len() as u64;
        let happened = if is_dropped {
            drop(append);
            // Whatever came before has been carried out when a later call is.
            let now = self.journal.append(key, u64::MAX, epoch, Vec::new()).await;
            let has_grown = matches!(now, Err(JournalError::Conflict { found: now, .. }) if now != found);
            if has_grown {
                assert_eq!(now, Err(JournalError::Conflict { expected: u64::MAX, found: total }));
            }
            assert!(!has_grown || refusal.is_none());
            has_grown
        } else {
            let result = append.await;
            match refusal {
                Some(refusal) => assert_eq!(kind(result), Some(refusal)),
                None => assert_eq!(result, Ok(total)),
            }
            refusal.is_none()
        };
        if happened {
            *self.charged.entry(key.tenant.clone()).or_default() += amount;
            let session = self.model.get_mut(key).unwrap();
            session.events.extend(bodies.into_iter().map(|body| (epoch.number(), body)));
        }
    }

    /// Compares all readable data with the model.
    async fn compare(&self) {
        for key in &self.keys {
            let Some(session) = self.model.get(key) else {
                let missing = read_all(&*self.journal, key, 0).await;
                assert_eq!(kind(missing), Some(JournalErrorKind::NotFound));
                continue;
            };
            let events = read_all(&*self.journal, key, 0).await.unwrap();
            let events: Vec<_> = events.into_iter().map(|event| (event.epoch.number(), event.body)).collect();
            assert_eq!(events, session.events);
            let snapshot = self.journal.snapshot(key).await.unwrap();
            assert_eq!(snapshot.map(|snapshot| (snapshot.seq, snapshot.body)), session.snapshot);
            let info = self.journal.session(key).await.unwrap();
            assert_eq!(info.epoch.number(), session.epoch);
            assert_eq!(info.lease.map(|lease| lease.owner), session.lease.map(|(which, _)| owner(which)));
            assert_eq!(info.snapshot, session.snapshot.as_ref().map(|(seq, _)| *seq));
        }
        for key in &self.keys {
            let listed = self.journal.sessions(&key.tenant, None, 100).await.unwrap().sessions;
            let expected = self.model.keys().filter(|other| other.tenant == key.tenant).count();
            assert_eq!(listed.len(), expected);
            assert_eq!(self.journal.session_count(&key.tenant).await, Ok(expected as u64));
            let counted = self.journal.counters(&key.tenant, vec!["bytes".to_owned()]).await;
            let charged = self.charged.get(&key.tenant).copied().unwrap_or(0);
            assert_eq!(counted, Ok(vec![charged]));
        }
    }
}

fn run(fixture: &dyn JournalFixture, calls: Vec<(usize, Op)>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let keys = [key("acme", 1), key("acme", 2), key("globex", 1), key("globex", 2)];
        let journal = fixture.open().await.unwrap();
        let mut test = Test {
            fixture,
            journal,
            keys: keys.clone(),
            model: BTreeMap::new(),
            charged: BTreeMap::new(),
            count: 0,
        };
        for (which, op) in calls {
            test.call(&keys[which], op).await;
        }
        test.compare().await;
    });
}

/// The same cases every time. After a change to a journal, run more of them with another seed.
fn campaign(cases: u32) -> ProptestConfig {
    ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(campaign(256))]

    #[test]
    fn the_journal_in_memory_matches_the_reference_model(calls in calls()) {
        run(&InMemory::default(), calls);
    }
}

proptest! {
    #![proptest_config(campaign(32))]

    #[test]
    fn the_journal_in_sqlite_matches_the_reference_model(calls in calls()) {
        run(&OnDisk::with(SqliteOptions { blob_threshold: 64, ..options() }), calls);
    }
}
