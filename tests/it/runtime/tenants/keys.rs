//! Many sessions on one rate-limited key: all are answered, none is rejected twice, and sessions of another key do not
//! wait. The
//! tests of `crates/anthropic` show the order of the retries.

use std::time::Duration;

use conjure::anthropic::{Client, ModelOptions, config};
use conjure::config::ExecutorKind;
use conjure::conversation::{Limit, TurnStop};
use conjure::{Block, Config, Limits, Runtime, Session};
use conjure_anthropic::fake::{FakeMessages, RateLimit, Refusal, Reply};
use conjure_conversation::ApiErrorKind;
use futures_util::future::join_all;

use crate::runtime::fixture::{Fixture, say, spec, tenant};

const SESSIONS: usize = 16;
/// How many requests of a key the service takes in a window.
const TAKEN: u32 = 8;

fn text_reply(text: &str) -> Reply {
    Reply::blocks(vec![Block::text(text)])
}

/// The client of a key, which all sessions of its models share.
fn client(fixture: &Config, fake: &FakeMessages, key: &str) -> Client {
    Client::new(&config(fixture, key.to_owned().into()).with_base_url(fake.base_url())).unwrap()
}

/// Sessions of two tenants, in turns.
async fn open(runtime: &Runtime, model: &str, count: usize) -> Vec<Session> {
    let opening = (0..count).map(|number| {
        let tenant = tenant(if number % 2 == 0 { "acme" } else { "globex" });
        runtime.open(conjure::SessionSpec::new(tenant).model(model))
    });
    join_all(opening).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn many_sessions_on_one_limited_key_are_answered_with_at_most_one_rejection_each() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let limit = RateLimit { requests: TAKEN, window: Duration::from_secs(1) };
    let turns = (0..SESSIONS).map(|_| text_reply("Hi."));
    let fake = FakeMessages::builder().rate_limit(limit).turns(turns).start().await.unwrap();
    let client = client(&fixture.config(), &fake, "sk-of-all");
    // Two models of one key: the limit is the key's.
    let options = ["one", "two"].into_iter().fold(fixture.options(), |options, name| {
        options.model(name, client.messages(ModelOptions::new(name)).unwrap())
    });
    let runtime = Runtime::spawn(options).await.unwrap();
    let mut sessions = open(&runtime, "one", SESSIONS / 2).await;
    sessions.extend(open(&runtime, "two", SESSIONS / 2).await);
    let ended = join_all(sessions.iter().map(|session| say(session, "Hello"))).await;
    for (stop, text) in ended {
        assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
        assert_eq!(text, "Hi.");
    }
    // Those that were refused heed the wait, and come back once.
    let received = usize::try_from(fake.received()).unwrap();
    let refused = SESSIONS - usize::try_from(TAKEN).unwrap();
    assert!(
        (SESSIONS..=SESSIONS + refused).contains(&received),
        "{received} requests for {SESSIONS} answers"
    );
}

#[tokio::test]
async fn sessions_of_another_key_do_not_wait_for_a_limited_one() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let refusal = Reply::error(Refusal::new(ApiErrorKind::RateLimit, "wait"));
    let refusing = std::iter::repeat_n(refusal.with_header("retry-after", "600"), SESSIONS);
    let limited = FakeMessages::builder().faults(refusing).start().await.unwrap();
    let free = FakeMessages::builder().turns((0..SESSIONS).map(|_| text_reply("Hi."))).start().await.unwrap();
    let settings = fixture.config();
    let of = |fake: &FakeMessages, key: &str| {
        client(&settings, fake, key).messages(ModelOptions::new("m")).unwrap()
    };
    let options =
        fixture.options().model("limited", of(&limited, "sk-limited")).model("free", of(&free, "sk-free"));
    let runtime = Runtime::spawn(options).await.unwrap();
    let limits = Limits { wall_clock: Some(Duration::from_secs(60)), ..Limits::default() };
    let waiting = runtime.open(spec().model("limited").limits(limits)).await.unwrap();
    let (waited, ended) = tokio::join!(say(&waiting, "Hello"), async {
        let sessions = open(&runtime, "free", SESSIONS).await;
        join_all(sessions.iter().map(|session| say(session, "Hello"))).await
    });
    assert!(ended.iter().all(|(stop, text)| matches!(stop, TurnStop::Answered(_)) && text == "Hi."));
    // It heeds its own deadline, not the service's ten minutes, and asked no second time.
    assert!(matches!(waited.0, TurnStop::Limit(Limit::WallClock) | TurnStop::ModelFailed(_)), "{}", waited.0);
    assert_eq!(limited.received(), 1);
}
