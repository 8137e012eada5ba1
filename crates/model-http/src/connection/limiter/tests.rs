use super::*;
use conjure_base::SystemClock;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

type Admission = BoxFuture<'static, Result<Permit, NotAdmitted>>;

fn limiter() -> Arc<Limiter> {
    Arc::new(Limiter::new(Arc::new(SystemClock)))
}

fn far_deadline() -> Deadline {
    SystemClock.deadline(1000 * SECOND)
}

fn admission(limiter: &Arc<Limiter>) -> Admission {
    let limiter = Arc::clone(limiter);
    let ticket = limiter.ticket();
    async move { limiter.admit(ticket, far_deadline()).await }.boxed()
}

/// Polls all that still wait, in order, and returns the places of those that were admitted.
fn poll_all(waiting: &mut [Option<Admission>]) -> Vec<(usize, Permit)> {
    let mut admitted = Vec::new();
    for (place, slot) in waiting.iter_mut().enumerate() {
        if let Some(Some(result)) = slot.as_mut().map(|future| future.now_or_never()) {
            *slot = None;
            admitted.push((place, result.unwrap()));
        }
    }
    admitted
}

fn indexes(admitted: &[(usize, Permit)]) -> Vec<usize> {
    admitted.iter().map(|(place, _)| *place).collect()
}

/// A limiter that was told to wait for a second, and so many waiting calls.
async fn closed(count: usize) -> (Arc<Limiter>, Vec<Option<Admission>>) {
    let limiter = limiter();
    admission(&limiter).await.unwrap().report_limit(SECOND, 0.0);
    let mut waiting: Vec<Option<Admission>> = (0..count).map(|_| Some(admission(&limiter))).collect();
    assert!(poll_all(&mut waiting).is_empty(), "nobody passes while it is closed");
    (limiter, waiting)
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_no_call_waits() {
    let limiter = limiter();
    let mut all: Vec<Option<Admission>> = (0..100).map(|_| Some(admission(&limiter))).collect();
    assert_eq!(poll_all(&mut all).len(), 100);
}

#[tokio::test(start_paused = true)]
async fn after_a_limit_one_probe_goes_first_then_more_and_more_in_order() {
    let (_limiter, mut waiting) = closed(20).await;
    tokio::time::advance(SECOND - Duration::from_millis(1)).await;
    assert!(poll_all(&mut waiting).is_empty(), "not before the time is over");
    tokio::time::advance(Duration::from_millis(1)).await;
    let mut rounds = Vec::new();
    let mut order = Vec::new();
    loop {
        let admitted = poll_all(&mut waiting);
        if admitted.is_empty() {
            break;
        }
        assert!(poll_all(&mut waiting).is_empty(), "nobody else until there is an answer");
        rounds.push(admitted.len());
        order.extend(indexes(&admitted));
        admitted.into_iter().for_each(|(_, permit)| permit.report_response());
    }
    assert_eq!(rounds, [1, 2, 4, 8, 5]);
    assert_eq!(order, (0..20).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_limited_closes_the_gate_again() {
    let (_limiter, mut waiting) = closed(3).await;
    for _ in 0..3 {
        tokio::time::advance(SECOND).await;
        let mut admitted = poll_all(&mut waiting);
        assert_eq!(admitted.len(), 1);
        admitted.remove(0).1.report_limit(SECOND, 0.0);
        assert!(poll_all(&mut waiting).is_empty());
    }
    assert!(waiting.iter().all(Option::is_none));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_probe_delays_others_only_for_the_hold_time() {
    let (limiter, mut waiting) = closed(6).await;
    tokio::time::advance(SECOND).await;
    let mut hung = Vec::new();
    for place in 0..3 {
        let admitted = poll_all(&mut waiting);
        assert_eq!(indexes(&admitted), [place], "one more each time");
        hung.extend(admitted);
        tokio::time::advance(PROBE_HOLD - Duration::from_millis(1)).await;
        assert!(poll_all(&mut waiting).is_empty(), "not before its time is over");
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    // What hung answers at last: that opens the gate as any answer does.
    let admitted = poll_all(&mut waiting);
    assert_eq!(indexes(&admitted), [3]);
    hung.into_iter().chain(admitted).for_each(|(_, permit)| permit.report_response());
    let admitted = poll_all(&mut waiting);
    assert_eq!(indexes(&admitted), [4, 5]);
    admitted.into_iter().for_each(|(_, permit)| permit.report_response());
    assert!(matches!(limiter.lock().gate, Gate::Open));
}

#[tokio::test(start_paused = true)]
async fn a_mid_stream_limit_closes_the_gate() {
    let limiter = limiter();
    let (streaming, sent) = (admission(&limiter).await.unwrap(), admission(&limiter).await.unwrap());
    streaming.report_response();
    limiter.report_limit(SECOND, 0.0);
    sent.report_response();
    let mut waiting = [Some(admission(&limiter)), Some(admission(&limiter))];
    assert!(poll_all(&mut waiting).is_empty());
    tokio::time::advance(SECOND).await;
    assert_eq!(poll_all(&mut waiting).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn jitter_only_lengthens_the_wait() {
    let limiter = limiter();
    admission(&limiter).await.unwrap().report_limit(SECOND, 0.5);
    let mut waiting = [Some(admission(&limiter))];
    poll_all(&mut waiting);
    tokio::time::advance(Duration::from_millis(1049)).await;
    assert!(poll_all(&mut waiting).is_empty());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(poll_all(&mut waiting).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_weeks_is_probed_after_ten_minutes() {
    let limiter = limiter();
    admission(&limiter).await.unwrap().report_limit(Duration::from_secs(3_000_000), 0.0);
    let mut waiting = [Some(admission(&limiter))];
    tokio::time::advance(599 * SECOND).await;
    assert!(poll_all(&mut waiting).is_empty());
    tokio::time::advance(SECOND).await;
    assert_eq!(poll_all(&mut waiting).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_later_limit_never_shortens_the_wait() {
    let limiter = limiter();
    let (a, b) = (admission(&limiter).await.unwrap(), admission(&limiter).await.unwrap());
    a.report_limit(5 * SECOND, 0.0);
    b.report_limit(SECOND, 0.0);
    let mut waiting = [Some(admission(&limiter))];
    tokio::time::advance(4 * SECOND).await;
    assert!(poll_all(&mut waiting).is_empty());
    tokio::time::advance(SECOND).await;
    assert_eq!(poll_all(&mut waiting).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_response_from_before_the_limit_does_not_open_the_gate() {
    let limiter = limiter();
    let (early, limited) = (admission(&limiter).await.unwrap(), admission(&limiter).await.unwrap());
    limited.report_limit(SECOND, 0.0);
    early.report_response();
    let mut waiting = [Some(admission(&limiter)), Some(admission(&limiter))];
    assert!(poll_all(&mut waiting).is_empty());
    tokio::time::advance(SECOND).await;
    assert_eq!(poll_all(&mut waiting).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_waiting_admitted_or_probing_calls_blocks_no_other() {
    let (_limiter, mut waiting) = closed(5).await;
    waiting[0] = None;
    poll_all(&mut waiting);
    tokio::time::advance(SECOND).await;
    let probe = poll_all(&mut waiting);
    assert_eq!(indexes(&probe), [1]);
    drop(probe);
    // The next one was admitted by that; it is dropped before it has noticed.
    waiting[2] = None;
    let probe = poll_all(&mut waiting);
    assert_eq!(indexes(&probe), [3]);
}

/// A host may hold a call without polling it, say while it waits for somebody slow: the other sessions of the key go on.
#[tokio::test(start_paused = true)]
async fn an_unpolled_first_call_delays_others_only_for_the_fallback_delay() {
    let (_limiter, mut waiting) = closed(3).await;
    let mut others = waiting.split_off(1);
    let opens = SystemClock.deadline(SECOND + FALLBACK_DELAY + 2 * PROBE_HOLD);
    let mut permits = Vec::new();
    for other in others.drain(..).flatten() {
        permits.push(other.await.expect("it is admitted"));
    }
    assert_eq!(SystemClock.remaining(opens), Duration::ZERO);
    assert_eq!(SystemClock.deadline(Duration::ZERO), opens, "and not later");
    permits.into_iter().for_each(Permit::report_response);
    assert_eq!(indexes(&poll_all(&mut waiting)), [0], "it has kept its place");
}

#[tokio::test(start_paused = true)]
async fn a_retried_call_keeps_its_queue_position() {
    let (limiter, _waiting) = closed(0).await;
    let old = limiter.ticket();
    let mut younger = [Some(admission(&limiter))];
    poll_all(&mut younger);
    let again = Arc::clone(&limiter);
    let mut older = [Some(async move { again.admit(old, far_deadline()).await }.boxed())];
    poll_all(&mut older);
    tokio::time::advance(SECOND).await;
    assert_eq!(poll_all(&mut younger).len(), 0);
    assert_eq!(poll_all(&mut older).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_call_waits_beyond_the_deadline() {
    let limiter = limiter();
    admission(&limiter).await.unwrap().report_limit(10 * SECOND, 0.0);
    let soon = SystemClock.deadline(SECOND);
    let refused = limiter.admit(limiter.ticket(), soon).now_or_never().expect("it says so at once");
    assert_eq!(refused.unwrap_err(), NotAdmitted { retry_after: 10 * SECOND });

    // The gate opens before the deadline, but the probe's answer takes longer.
    let deadline = SystemClock.deadline(15 * SECOND);
    let mut first = [Some(admission(&limiter))];
    poll_all(&mut first);
    let mut second = Box::pin(limiter.admit(limiter.ticket(), deadline));
    assert!(second.as_mut().now_or_never().is_none());
    tokio::time::advance(10 * SECOND).await;
    let _probe = poll_all(&mut first);
    assert!(second.as_mut().now_or_never().is_none());
    tokio::time::advance(5 * SECOND).await;
    let refused = second.as_mut().now_or_never().expect("the deadline has passed").unwrap_err();
    assert_eq!(refused, NotAdmitted { retry_after: Duration::ZERO });
}

proptest! {
    /// Whatever is dropped, limited or answered, in whatever order: whoever still waits is admitted in the end.
    #[test]
    fn random_operations_never_deadlock(steps in proptest::collection::vec((0u8..9, any::<prop::sample::Index>()), 0..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let limiter = limiter();
            let mut waiting: Vec<Option<Admission>> = Vec::new();
            let mut permits: Vec<Permit> = Vec::new();
            for (step, index) in steps {
                match step {
                    0 | 1 => waiting.push(Some(admission(&limiter))),
                    2 => permits.extend(poll_all(&mut waiting).into_iter().map(|(_, permit)| permit)),
                    3 if !waiting.is_empty() => *index.get_mut(&mut waiting) = None,
                    4 if !permits.is_empty() => permits.swap_remove(index.index(permits.len())).report_response(),
                    5 if !permits.is_empty() => permits.swap_remove(index.index(permits.len())).report_limit(SECOND, 0.3),
                    6 if !permits.is_empty() => drop(permits.swap_remove(index.index(permits.len()))),
                    7 => limiter.report_limit(SECOND / 2, 0.1),
                    8 => tokio::time::advance(PROBE_HOLD).await,
                    _ => tokio::time::advance(SECOND / 3).await,
                }
            }
            permits.into_iter().for_each(Permit::report_response);
            for _ in 0..waiting.len() + 2 {
                tokio::time::advance(2 * SECOND).await;
                poll_all(&mut waiting).into_iter().for_each(|(_, permit)| permit.report_response());
            }
            assert!(waiting.iter().all(Option::is_none), "somebody still waits: {limiter:?}");
            let state = limiter.lock();
            assert!(state.waiting.is_empty() && state.in_flight == 0, "{state:?}");
        });
    }
}
