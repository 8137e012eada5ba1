//! What a tenant owes for calls that were broken off: charged by themselves, since no event is recorded for them.
//!
//! State: in memory, the charges that the journal has not acknowledged. It takes them in the moment in which a call ends, and
//! carries them out whether anybody waits or not; those that it has surely refused are kept, with their account, and submitted again
//! before the tenant's next call and by the janitor. A crash of the process forgets what the journal had not taken.

use std::fmt;

use conjure_journal::{Charge, JournalError, JournalErrorKind, Reply};
use futures_util::FutureExt;
use futures_util::future::Shared;

/// What the journal answers, for whoever waits for it.
pub(super) type Answer = Shared<Reply<()>>;

/// The charges that are not acknowledged.
#[derive(Default)]
pub(super) struct Debts {
    open: Vec<Debt>,
}

struct Debt {
    charges: Vec<Charge>,
    /// `None`: no journal has taken it.
    answer: Option<Answer>,
}

impl Debts {
    /// One more. It is submitted at once, where somebody takes it.
    pub(super) fn owe(&mut self, charges: Vec<Charge>, submit: &impl Fn(Vec<Charge>) -> Option<Reply<()>>) {
        self.open.push(Debt { charges, answer: None });
        self.settle(submit);
    }

    /// Forgets what was acknowledged, and submits what was not yet, or surely not carried out.
    pub(super) fn settle(&mut self, submit: &impl Fn(Vec<Charge>) -> Option<Reply<()>>) {
        self.open.retain_mut(|debt| {
            match debt.answer.as_ref().map(|answer| answer.clone().now_or_never()) {
                Some(None) => return true,
                Some(Some(Ok(()))) => return false,
                Some(Some(Err(error))) if !is_undone(&error) => {
                    tracing::warn!(%error, "what a model call that was broken off has used may not be charged");
                    return false;
                }
                None | Some(Some(Err(_))) => {}
            }
            debt.answer = submit(debt.charges.clone()).map(FutureExt::shared);
            true
        });
    }

    /// How much of this counter is owed.
    pub(super) fn owed(&self, counter: &str) -> u64 {
        let charges =
            self.open.iter().flat_map(|debt| &debt.charges).filter(|charge| charge.counter == counter);
        charges.fold(0, |sum, charge| sum.saturating_add(charge.amount))
    }

    /// Nothing is owed any more, whatever it was: the tenant is gone.
    pub(super) fn forget(&mut self) {
        self.open.clear();
    }

    /// The first that is not acknowledged: its answer, or that nobody has taken it.
    pub(super) fn first(&self) -> Option<Option<Answer>> {
        self.open.first().map(|debt| debt.answer.clone())
    }
}

impl Drop for Debts {
    fn drop(&mut self) {
        self.settle(&|_| None);
        let lost = self.open.iter().filter(|debt| debt.answer.is_none()).count();
        if lost > 0 {
            tracing::warn!(
                lost,
                "what model calls that were broken off have used is not charged: no journal took it"
            );
        }
    }
}

/// Whether the journal has surely done nothing, so that the same may be submitted again.
pub(crate) const fn is_undone(error: &JournalError) -> bool {
    matches!(
        error.kind(),
        JournalErrorKind::Overloaded
            | JournalErrorKind::Locked
            | JournalErrorKind::DiskFull
            | JournalErrorKind::ReadOnly
            | JournalErrorKind::Invalid
            | JournalErrorKind::Closed
            | JournalErrorKind::Ended
    )
}

impl fmt::Debug for Debts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Debts").field("open", &self.open.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use conjure_journal::{Charge, JournalError, Reply};
    use futures_util::FutureExt as _;
    use futures_util::future::{pending, ready};

    use super::Debts;

    /// Answers one after the other as it is told, and remembers what it was given.
    struct Till {
        answers: RefCell<Vec<Option<Reply<()>>>>,
        taken: RefCell<Vec<u64>>,
    }

    impl Till {
        fn new(answers: impl IntoIterator<Item = Option<Reply<()>>>) -> Self {
            let mut answers: Vec<_> = answers.into_iter().collect();
            answers.reverse();
            Self { answers: RefCell::new(answers), taken: RefCell::default() }
        }

        fn take(&self, charges: Vec<Charge>) -> Option<Reply<()>> {
            self.taken.borrow_mut().extend(charges.iter().map(|charge| charge.amount));
            self.answers.borrow_mut().pop().expect("nothing is submitted more often than it must be")
        }
    }

    fn owed(debts: &mut Debts, till: &Till, amount: u64) {
        debts.owe(vec![Charge::new("a", amount)], &|charges| till.take(charges));
    }

    fn answer(result: Result<(), JournalError>) -> Option<Reply<()>> {
        Some(ready(result).boxed())
    }

    #[test]
    fn what_is_acknowledged_is_forgotten() {
        let (mut debts, till) = (Debts::default(), Till::new([answer(Ok(())), answer(Ok(()))]));
        owed(&mut debts, &till, 1);
        owed(&mut debts, &till, 2);
        debts.settle(&|charges| till.take(charges));
        assert!(debts.first().is_none());
        assert_eq!(*till.taken.borrow(), [1, 2], "each once");
    }

    #[test]
    fn what_is_on_its_way_is_not_submitted_again() {
        let (mut debts, till) = (Debts::default(), Till::new([Some(pending().boxed())]));
        owed(&mut debts, &till, 1);
        debts.settle(&|charges| till.take(charges));
        let first = debts.first().flatten().expect("it is not acknowledged");
        assert!(first.now_or_never().is_none());
        assert_eq!(*till.taken.borrow(), [1]);
    }

    #[test]
    fn what_nobody_took_or_was_surely_not_done_is_submitted_again() {
        let busy = JournalError::Overloaded { tenant: None, waiting: 9, bytes: 9 };
        let ended = JournalError::Ended { part: "writer", reason: "the test ended it".to_owned() };
        let till = Till::new([
            None,
            answer(Err(busy)),
            answer(Err(JournalError::Closed)),
            answer(Err(ended)),
            answer(Ok(())),
        ]);
        let mut debts = Debts::default();
        owed(&mut debts, &till, 7);
        assert!(matches!(debts.first(), Some(None)));
        for _ in 0..5 {
            debts.settle(&|charges| till.take(charges));
        }
        assert!(debts.first().is_none());
        assert_eq!(*till.taken.borrow(), [7; 5]);
    }

    #[test]
    fn what_may_have_been_done_is_not_submitted_again() {
        let lost = JournalError::Lost { part: "writer", reason: "the test ended it".to_owned() };
        let (mut debts, till) = (Debts::default(), Till::new([answer(Err(lost))]));
        owed(&mut debts, &till, 1);
        debts.settle(&|charges| till.take(charges));
        assert!(debts.first().is_none());
        assert_eq!(*till.taken.borrow(), [1]);
    }
}
