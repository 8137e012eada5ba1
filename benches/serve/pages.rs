//! Pages of a long session: what they cost must not depend on where they are.

use std::time::{Duration, Instant};

use conjure::model::parse_response;
use conjure::session::{EventCursor, EventOrder, EventQuery};
use conjure::{Clock as _, Runtime, RuntimeOptions, SessionId, SessionSpec, SystemClock, model_fn};

use crate::harness::Result;
use crate::library::{settings, tenant};
use crate::setup::Setup;
use crate::times::{Times, header};

/// How many events the sessions have.
const LENGTHS: [u64; 2] = [1_000, 100_000];
const LIMIT: usize = 20;
const TIMES: usize = 200;

pub(crate) async fn measure() -> Result<()> {
    let setup = Setup::new()?;
    let answer = parse_response(r#"{"content":[{"type":"text","text":"Four."}],"stop_reason":"end_turn"}"#)?;
    let model = model_fn(move |_| std::future::ready(Ok(answer.clone())));
    let options = RuntimeOptions::from(settings(&setup.data())?).model("scripted", model);
    let runtime = Runtime::spawn(options).await?;
    header();
    let mut medians: Vec<Vec<(&str, f64)>> = Vec::new();
    for length in LENGTHS {
        let session = fill(&runtime, length).await?;
        let mut of_length = Vec::new();
        for (name, order, from) in [
            ("first-page", EventOrder::Ascending, None),
            ("middle", EventOrder::Ascending, Some(length / 2)),
            ("last", EventOrder::Ascending, Some(length - 10)),
            ("first-page-descending", EventOrder::Descending, None),
            ("middle-descending", EventOrder::Descending, Some(length / 2)),
            ("last-descending", EventOrder::Descending, Some(10)),
        ] {
            let from = from.map(|seq| EventCursor { seq, index: 0 });
            let query = EventQuery { order, from, limit: LIMIT };
            let mut times = Times::default();
            for _ in 0..TIMES {
                let started = Instant::now();
                let page = runtime.event_page(&tenant()?, session, query).await?;
                times.add(started.elapsed());
                if page.events.is_empty() {
                    return Err("a page is empty".into());
                }
            }
            times.print(&format!("{name} of {length}"));
            of_length.push((name, times.percentile(50)));
        }
        medians.push(of_length);
    }
    let [short, long] = &medians[..] else { return Err("two were measured".into()) };
    for ((name, short), (_, long)) in short.iter().zip(long) {
        println!(
            "RESULT goal=serve case=page-{name} ours={long:.3} other={short:.3} unit=ms ratio={:.2}",
            long / short
        );
    }
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(60))).await?;
    Ok(())
}

/// A session with at least so many recorded events.
async fn fill(runtime: &Runtime, length: u64) -> Result<SessionId> {
    let session = runtime.open(SessionSpec::new(tenant()?).without_skills()).await?;
    let started = Instant::now();
    loop {
        for _ in 0..16 {
            session.send("What is two and two?").await?.end().await?;
        }
        let events = session.snapshot().await?.events;
        if events >= length {
            println!("{events} events in {:.1} s", started.elapsed().as_secs_f64());
            return Ok(session.id());
        }
    }
}
