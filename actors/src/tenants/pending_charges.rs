//! The charges for aborted calls that the journal has not acknowledged. No event is recorded for them, so they are
//! charged separately.
//!
//! State: in memory. A charge is added when its call ends, and is submitted at once, whether or not a caller waits. Charges that
//! the journal certainly refused are kept with their account. They are submitted again before the tenant's next call, and by a
//! maintenance task. A crash of the process loses charges that the journal did not take.

use conjure_journal::{CounterIncrement, JournalError, JournalErrorKind, JournalFuture};
use futures_util::FutureExt;
use futures_util::future::Shared;

/// The journal's answer, shared by all callers that wait for it.
pub(super) type Answer = Shared<JournalFuture<()>>;

/// The charges that are not acknowledged.
#[derive(Default)]
pub(super) struct PendingCharges {
    open: Vec<PendingCharge>,
}

struct PendingCharge {
    charges: Vec<CounterIncrement>,
    /// `None`: no journal has accepted it.
    answer: Option<Answer>,
}

impl PendingCharges {
    /// Adds a charge and submits it, if a journal is open.
    pub(super) fn add(
        &mut self,
        charges: Vec<CounterIncrement>,
        submit: &impl Fn(Vec<CounterIncrement>) -> Option<JournalFuture<()>>,
    ) {
        self.open.push(PendingCharge { charges, answer: None });
        self.flush(submit);
    }

    /// Removes acknowledged charges, and submits those that were not submitted or certainly not carried out.
    pub(super) fn flush(&mut self, submit: &impl Fn(Vec<CounterIncrement>) -> Option<JournalFuture<()>>) {
        self.open.retain_mut(|charge| {
            match charge.answer.as_ref().map(|answer| answer.clone().now_or_never()) {
                Some(None) => return true,
                Some(Some(Ok(()))) => return false,
                Some(Some(Err(error))) if !is_undone(&error) => {
                    tracing::warn!(%error, "the usage of an aborted model call may not be charged");
                    return false;
                }
                None | Some(Some(Err(_))) => {}
            }
            charge.answer = submit(charge.charges.clone()).map(FutureExt::shared);
            true
        });
    }

    /// The pending amount of this counter.
    pub(super) fn amount_for(&self, counter_name: &str) -> u64 {
        let charges = self
            .open
            .iter()
            .flat_map(|charge| &charge.charges)
            .filter(|charge| charge.counter == counter_name);
        charges.fold(0, |sum, charge| sum.saturating_add(charge.amount))
    }

    /// Drops all charges because the tenant is deleted.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// The answer to the first charge that is not acknowledged. The inner `None`: no journal has accepted the charge.
    pub(super) fn oldest_unacknowledged(&self) -> Option<Option<Answer>> {
        self.open.first().map(|charge| charge.answer.clone())
    }
}

impl Drop for PendingCharges {
    fn drop(&mut self) {
        self.flush(&|_| None);
        let lost = self.open.iter().filter(|charge| charge.answer.is_none()).count();
        if lost > 0 {
            tracing::warn!(lost, "usage of aborted model calls is not charged: no journal accepted it");
        }
    }
}

/// Whether the journal certainly did nothing, so that the same charge may be submitted again.
pub(crate) const fn is_undone(error: &JournalError) -> bool {
    matches!(
        error.kind(),
        JournalErrorKind::Overloaded
            | JournalErrorKind::Locked
            | JournalErrorKind::DiskFull
            | JournalErrorKind::ReadOnly
            | JournalErrorKind::Invalid
            | JournalErrorKind::Closed
            | JournalErrorKind::ThreadEnded
    )
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use conjure_journal::{CounterIncrement, JournalError, JournalFuture};
    use futures_util::FutureExt as _;
    use futures_util::future::{pending, ready};

    use super::PendingCharges;

    /// Answers one submission after the other as instructed, and remembers them.
    struct FakeJournal {
        answers: RefCell<Vec<Option<JournalFuture<()>>>>,
        taken: RefCell<Vec<u64>>,
    }

    impl FakeJournal {
        fn new(answers: impl IntoIterator<Item = Option<JournalFuture<()>>>) -> Self {
            let mut answers: Vec<_> = answers.into_iter().collect();
            answers.reverse();
            Self { answers: RefCell::new(answers), taken: RefCell::default() }
        }

        fn take(&self, charges: Vec<CounterIncrement>) -> Option<JournalFuture<()>> {
            self.taken.borrow_mut().extend(charges.iter().map(|charge| charge.amount));
            self.answers.borrow_mut().pop().expect("nothing is submitted more often than it must be")
        }
    }

    fn amount_for(pending: &mut PendingCharges, charge_fn: &FakeJournal, amount: u64) {
        pending.add(vec![CounterIncrement::new("a", amount)], &|charges| charge_fn.take(charges));
    }

    fn answer(result: Result<(), JournalError>) -> Option<JournalFuture<()>> {
        Some(ready(result).boxed())
    }

    #[test]
    fn what_is_acknowledged_is_forgotten() {
        let (mut pending, charge_fn) =
            (PendingCharges::default(), FakeJournal::new([answer(Ok(())), answer(Ok(()))]));
        amount_for(&mut pending, &charge_fn, 1);
        amount_for(&mut pending, &charge_fn, 2);
        pending.flush(&|charges| charge_fn.take(charges));
        assert!(pending.oldest_unacknowledged().is_none());
        assert_eq!(*charge_fn.taken.borrow(), [1, 2], "each once");
    }

    #[test]
    fn what_is_on_its_way_is_not_submitted_again() {
        let (mut pending, charge_fn) =
            (PendingCharges::default(), FakeJournal::new([Some(pending().boxed())]));
        amount_for(&mut pending, &charge_fn, 1);
        pending.flush(&|charges| charge_fn.take(charges));
        let first = pending.oldest_unacknowledged().flatten().expect("it is not acknowledged");
        assert!(first.now_or_never().is_none());
        assert_eq!(*charge_fn.taken.borrow(), [1]);
    }

    #[test]
    fn what_nobody_took_or_was_surely_not_done_is_submitted_again() {
        let busy = JournalError::Overloaded { tenant: None, waiting: 9, bytes: 9 };
        let ended = JournalError::ThreadEnded { part: "writer", reason: "the test ended it".to_owned() };
        let charge_fn = FakeJournal::new([
            None,
            answer(Err(busy)),
            answer(Err(JournalError::Closed)),
            answer(Err(ended)),
            answer(Ok(())),
        ]);
        let mut pending = PendingCharges::default();
        amount_for(&mut pending, &charge_fn, 7);
        assert!(matches!(pending.oldest_unacknowledged(), Some(None)));
        for _ in 0..5 {
            pending.flush(&|charges| charge_fn.take(charges));
        }
        assert!(pending.oldest_unacknowledged().is_none());
        assert_eq!(*charge_fn.taken.borrow(), [7; 5]);
    }

    #[test]
    fn what_may_have_been_done_is_not_submitted_again() {
        let lost = JournalError::Lost { part: "writer", reason: "the test ended it".to_owned() };
        let (mut pending, charge_fn) = (PendingCharges::default(), FakeJournal::new([answer(Err(lost))]));
        amount_for(&mut pending, &charge_fn, 1);
        pending.flush(&|charges| charge_fn.take(charges));
        assert!(pending.oldest_unacknowledged().is_none());
        assert_eq!(*charge_fn.taken.borrow(), [1]);
    }
}
