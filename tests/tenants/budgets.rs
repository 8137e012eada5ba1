//! Budgets over all sessions of a tenant.

use std::sync::Arc;
use std::time::Duration;

use conjure::conversation::{Limit, TurnStop};
use conjure::model::{CallSettings, ModelErrorKind, ModelEvent};
use conjure::tenant::{CostLimit, Period, Price, Quota};
use conjure::{
    Block, Message, Model as _, Request, RuntimeOptions, SessionError, Settings, TenantPolicy, model_fn,
};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use tokio::sync::Barrier;

use crate::fixture::{ANSWER, HandClock, Host, answer, ask, budget, follow, say, soon, spec, tenant, until};

/// Room for so many answers, and the requests of one more that is not allowed.
fn room_for(answers: u64) -> TenantPolicy {
    TenantPolicy::new().budget(budget().tokens(Period::Total, answers * ANSWER + 1))
}

async fn spent(runtime: &conjure::Runtime, whose: &str) -> u64 {
    let usage = runtime.tenant(&tenant(whose)).await.unwrap().usage;
    let total = |spent: &&conjure::tenant::Spent| spent.quota == Quota::Tokens(Period::Total);
    usage.spent.iter().find(total).unwrap().used
}

#[tokio::test]
async fn a_budget_that_ends_in_mid_turn_ends_the_turn_and_going_on_is_a_matter_of_more() {
    let host = Host::new();
    let runtime = host.start(host.options().tenant(tenant("acme"), room_for(3))).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let mut turn = session.send("for ever").await.unwrap();
    // It waits for its turn, whatever the one before comes to.
    let mut queued = session.send("queued").await.unwrap();
    let (stop, _) = follow(&mut turn).await;
    assert_eq!(stop, TurnStop::Limit(Limit::TenantTokens), "{stop}");
    assert_eq!(stop.to_string(), "the tenant's budget of tokens was reached");
    assert_eq!(spent(&runtime, "acme").await, 3 * ANSWER);
    // Another tenant's turns go on.
    let other = runtime.open(spec("globex")).await.unwrap();
    assert_eq!(ask(&other, "$ echo here").await, "it says: here\n");
    // A session that has nothing waiting is refused before anything is recorded.
    let second = runtime.open(spec("acme")).await.unwrap();
    let error = second.send("hello").await.map(drop).unwrap_err();
    let SessionError::Quota(exceeded) = &error else { panic!("{error}") };
    assert_eq!((exceeded.quota, exceeded.limit), (Quota::Tokens(Period::Total), 3 * ANSWER + 1));
    assert!(exceeded.current > exceeded.limit, "{error}");
    assert_eq!(second.snapshot().await.unwrap().events, 1, "nothing but its opening");
    // What waits still waits, also over a restart.
    assert_eq!(session.snapshot().await.unwrap().queue.len(), 1);
    runtime.set_tenant(&tenant("acme"), room_for(5)).unwrap();
    let (stop, said) = follow(&mut queued).await;
    assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
    assert_eq!(said, "heard: queued");
    assert_eq!(spent(&runtime, "acme").await, 4 * ANSWER);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn what_was_spent_is_known_after_a_restart_and_stays_when_sessions_go() {
    let host = Host::new();
    let runtime = host.start(host.options().tenant(tenant("acme"), room_for(2))).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let mut turn = session.send("for ever").await.unwrap();
    let _queued = session.send("queued").await.unwrap();
    assert_eq!(follow(&mut turn).await.0, TurnStop::Limit(Limit::TenantTokens));
    runtime.shutdown(soon()).await.unwrap();

    let runtime = host.start(host.options().tenant(tenant("acme"), room_for(2))).await;
    let again = runtime.session(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!(again.snapshot().await.unwrap().queue.len(), 1);
    let fresh = runtime.open(spec("acme")).await.unwrap();
    assert!(matches!(fresh.send("hello").await, Err(SessionError::Quota(_))));
    runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert!(matches!(fresh.send("hello").await, Err(SessionError::Quota(_))));
    assert_eq!(spent(&runtime, "acme").await, 2 * ANSWER);
    runtime.set_tenant(&tenant("acme"), room_for(3)).unwrap();
    assert_eq!(ask(&fresh, "hello").await, "heard: hello");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_queued_message_waits_over_a_restart_until_there_is_more() {
    let host = Host::new();
    let runtime = host.start(host.options().tenant(tenant("acme"), room_for(1))).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let mut turn = session.send("for ever").await.unwrap();
    let _queued = session.send("queued").await.unwrap();
    follow(&mut turn).await;
    runtime.shutdown(soon()).await.unwrap();
    let runtime = host.start(host.options().tenant(tenant("acme"), room_for(1))).await;
    let session = runtime.session(&tenant("acme"), session.id()).await.unwrap();
    let events = session.snapshot().await.unwrap().events;
    runtime.set_tenant(&tenant("acme"), room_for(2)).unwrap();
    let mut heard = session.subscribe(events).await.unwrap();
    loop {
        let update = heard.next().await.unwrap();
        if let conjure::Update::Recorded(event) = update
            && let conjure::SessionEventKind::AgentMessage { content } = event.kind
        {
            assert_eq!(Message::assistant(content).text(), "heard: queued");
            break;
        }
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// All calls begin before any is answered: what each may come to is reserved.
#[tokio::test]
async fn many_sessions_at_once_do_not_spend_more_than_there_is() {
    const SESSIONS: usize = 12;
    let host = Host::new();
    let policy = |answers: u64| {
        // So much is reserved for each that no two answers more fit than there is room for.
        let reserving = conjure::tenant::Budget::default().with_reserved_output(ANSWER);
        TenantPolicy::new().budget(reserving.tokens(Period::Total, answers * ANSWER + 4_000))
    };
    let runtime = host.start(host.options().tenant(tenant("acme"), policy(4))).await;
    let sessions = join_all((0..SESSIONS).map(|_| runtime.open(spec("acme")))).await;
    let begun = Arc::new(Barrier::new(SESSIONS));
    let turns = sessions.into_iter().map(|session| {
        let begun = Arc::clone(&begun);
        async move {
            let session = session.unwrap();
            begun.wait().await;
            match session.send("hello").await {
                Ok(mut turn) => follow(&mut turn).await.0,
                Err(SessionError::Quota(_)) => TurnStop::Limit(Limit::TenantTokens),
                Err(other) => panic!("{other}"),
            }
        }
    });
    let stops = join_all(turns).await;
    let answered = stops.iter().filter(|stop| matches!(stop, TurnStop::Answered(_))).count() as u64;
    let refused = stops.iter().filter(|stop| **stop == TurnStop::Limit(Limit::TenantTokens)).count() as u64;
    assert_eq!(answered + refused, SESSIONS as u64, "{stops:?}");
    assert!((3..=4).contains(&answered), "{stops:?}");
    assert_eq!(spent(&runtime, "acme").await, answered * ANSWER, "they add up exactly");
    let usage = runtime.tenant(&tenant("acme")).await.unwrap().usage;
    assert_eq!((usage.reserved_tokens, usage.model_calls.admitted), (0, 0), "all of it is given back");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_clock_that_jumps_gives_no_day_twice() {
    let host = Host::new();
    let clock = HandClock::at(30);
    let policy = TenantPolicy::new()
        .budget(budget().tokens(Period::Day, ANSWER + 1).tokens(Period::Month, 3 * ANSWER + 1));
    let options = host.options().tenant(tenant("acme"), policy).clock(clock.clone());
    let runtime = host.start(options).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let is_refused = |result: Result<conjure::TurnHandle, SessionError>, period| match result.map(drop) {
        Err(SessionError::Quota(exceeded)) => exceeded.quota == Quota::Tokens(period),
        other => panic!("{other:?}"),
    };
    ask(&session, "one").await;
    assert!(is_refused(session.send("two").await, Period::Day), "what it may come to does not fit");
    // A day back, a day ahead, and each only once.
    clock.jump(29);
    ask(&session, "on the day before").await;
    assert!(is_refused(session.send("more").await, Period::Day));
    clock.jump(30);
    assert!(
        is_refused(session.send("two").await, Period::Day),
        "it is spent, whatever the clock showed meanwhile"
    );
    clock.jump(28);
    ask(&session, "and before").await;
    clock.jump(27);
    assert!(is_refused(session.send("of this month").await, Period::Month));
    // The next month; far ahead; before all of it.
    for day in [31, 3_000_000, 0] {
        clock.jump(day);
        match day {
            0 => assert!(is_refused(session.send("in January").await, Period::Month)),
            _ => drop(ask(&session, "later").await),
        }
    }
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn money_is_reckoned_by_the_budgets_price_where_no_other_is_known() {
    let host = Host::new();
    // 4,999 tokens in at 2 dollars a million, and one out at 1,000 dollars a million.
    let price = Price { input: 2_000_000, output: 1_000_000_000 };
    let money = CostLimit { micros: 25_000, price };
    let policy = TenantPolicy::new().budget(budget().money(Period::Month, money));
    let runtime = host.start(host.options().tenant(tenant("acme"), policy)).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let (stop, _) = say(&session, "for ever").await;
    assert_eq!(stop, TurnStop::Limit(Limit::TenantCost));
    let usage = runtime.tenant(&tenant("acme")).await.unwrap().usage;
    let month = |spent: &&conjure::tenant::Spent| spent.quota == Quota::Cost(Period::Month);
    let month = usage.spent.iter().find(month).unwrap();
    assert_eq!(month.limit, Some(25_000));
    assert_eq!(month.used % (2 * 4_999 + 1_000), 0, "whole answers");
    // Each began when what it sends fitted.
    assert!(month.used > 0 && month.used <= 25_000 + 2 * 4_999 + 1_000, "{month:?}");
    runtime.shutdown(soon()).await.unwrap();
}

/// One tenant asks without end, and hits every limit that it has; another's turns go on.
#[tokio::test]
async fn a_tenant_that_floods_hinders_nobody() {
    let host = Host::new();
    let yielding = model_fn(|request: Request| async move {
        tokio::task::yield_now().await;
        Ok(answer(&request))
    });
    let flooder = room_for(20).live_sessions(10).sandboxes(1).model_calls(2).waiting_model_calls(3);
    // So long each of the flood waits for a sandbox, which one of them has.
    let impatient = Settings { tool_timeout: Some(Duration::from_secs(5)), ..Settings::default() };
    let options = RuntimeOptions::from(host.config().with(impatient).unwrap());
    let options = options.model("yielding", yielding).tenant(tenant("flood"), flooder);
    let runtime = host.start(options).await;
    let session = runtime.open(spec("steady")).await.unwrap();
    // The start of its sandbox is not what this is about, and may take longer than a call has on a slow machine.
    until(async || ask(&session, "$ echo ready").await == "it says: ready\n").await;
    let flood = async {
        let all = (0..30).map(|_| async {
            let Ok(session) = runtime.open(spec("flood")).await else { return 0_u32 };
            let mut turns = 0;
            for _ in 0..5 {
                if let Ok(mut turn) = session.send("$ echo flood").await {
                    follow(&mut turn).await;
                    turns += 1;
                }
            }
            turns
        });
        join_all(all).await.into_iter().sum::<u32>()
    };
    let steady = async {
        for number in 0..10 {
            let said = ask(&session, &format!("$ echo {number}")).await;
            assert_eq!(said, format!("it says: {number}\n"));
        }
    };
    let both = futures_util::future::join(flood, steady);
    let (turns, ()) = tokio::time::timeout(Duration::from_secs(300), both).await.expect("it never ends");
    assert!(turns > 0);
    // A call that began while its input fitted may end beyond the budget. Two run at once, and three more wait behind them.
    assert!(spent(&runtime, "flood").await <= 20 * ANSWER + 1 + 5 * ANSWER);
    runtime.shutdown(soon()).await.unwrap();
}

/// Nothing records such calls: each is charged when its response arrives.
#[tokio::test]
async fn calls_without_a_session_are_paid_by_the_budget_too() {
    let host = Host::new();
    let runtime = host.start(host.options().tenant(tenant("acme"), room_for(2))).await;
    let model = runtime.model(&tenant("acme"), "echo", &CallSettings::default()).unwrap();
    let call = || {
        let request = Request::new(vec![Arc::new(Message::user(vec![Block::text("hello")]))]);
        model.stream(request).collect::<Vec<_>>()
    };
    for answers in 1..=2 {
        let events = call().await;
        assert!(matches!(events.last(), Some(Ok(ModelEvent::Finished(_)))), "{events:?}");
        until(async || spent(&runtime, "acme").await == answers * ANSWER).await;
    }
    let events = call().await;
    let Some(Err(error)) = events.last() else { panic!("{events:?}") };
    assert_eq!(error.kind, ModelErrorKind::Exhausted(Limit::TenantTokens), "{error}");
    assert_eq!(spent(&runtime, "acme").await, 2 * ANSWER);
    runtime.shutdown(soon()).await.unwrap();
}
