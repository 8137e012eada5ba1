//! Sessions that move from the model of one wire to that of another one, and back.

use conjure::model::Role;
use conjure::{Block, Runtime, Session};
use serde_json::json;

use crate::support::host::{Host, ask, follow, spec};
use crate::support::sent_request::SentItem;
use crate::support::test_reply::{TestReply, call, image, note, thinking};
use crate::support::test_wire::{TestService, TestWire, on_every_wire};

on_every_wire!(a_session_moves_to_each_other_wire_and_back);

/// The services of all wires, and a runtime with a model at each.
struct Services {
    services: Vec<TestService>,
    runtime: Runtime,
    // Its directory is in use until the runtime has ended.
    _host: Host,
}

impl Services {
    async fn start() -> Self {
        let mut services = Vec::new();
        for wire in TestWire::ALL {
            services.push(TestService::start(wire, []).await);
        }
        let host = Host::new();
        let models = TestWire::ALL.map(TestWire::name).into_iter().zip(&services);
        let runtime = Runtime::spawn(host.options(models).ephemeral()).await.unwrap();
        Self { services, runtime, _host: host }
    }

    fn of(&self, wire: TestWire) -> &TestService {
        let place = TestWire::ALL.iter().position(|other| *other == wire).unwrap();
        &self.services[place]
    }

    fn plan(&self, wire: TestWire, replies: impl IntoIterator<Item = TestReply>) {
        replies.into_iter().for_each(|reply| self.of(wire).add_reply(&reply));
    }
}

/// A turn with everything: an image, thinking, a text, two calls at once, a result and an error.
async fn first_turn(services: &Services, session: &Session, wire: TestWire) {
    let calls = vec![
        thinking("Let me look."),
        Block::text("I look."),
        note("call_1", "a"),
        call("call_2", "fail", &json!({"text": "b"})),
    ];
    let done = TestReply::blocks(vec![thinking("One of two."), Block::text("One failed.")]);
    services.plan(wire, [TestReply::blocks(calls), done]);
    let mut turn = session.send(vec![Block::text("Look at this."), image()]).await.unwrap();
    assert_eq!(follow(&mut turn).await.1, "One failed.");
}

/// What any wire is told of that turn, but for ids and thinking.
fn told_of_first_turn() -> Vec<Told> {
    vec![
        Told::Text(Role::User, "Look at this.".to_owned()),
        Told::Image,
        Told::Text(Role::Assistant, "I look.".to_owned()),
        Told::Call("note".to_owned(), json!({"text": "a"})),
        Told::Call("fail".to_owned(), json!({"text": "b"})),
        Told::Result("noted a".to_owned(), false),
        Told::Result("it failed".to_owned(), true),
        Told::Text(Role::Assistant, "One failed.".to_owned()),
    ]
}

/// A part of a history without what differs between wires.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Text(Role, String),
    Image,
    Call(String, serde_json::Value),
    Result(String, bool),
}

fn told(items: Vec<SentItem>) -> Vec<Told> {
    let tell = |item| match item {
        SentItem::User(text) => Some(Told::Text(Role::User, text)),
        SentItem::Image => Some(Told::Image),
        SentItem::Answer(text) => Some(Told::Text(Role::Assistant, text)),
        SentItem::Thinking => None,
        SentItem::Call { name, input, .. } => Some(Told::Call(name, input)),
        SentItem::Result { text, is_error, .. } => Some(Told::Result(text, is_error)),
    };
    items.into_iter().filter_map(tell).collect()
}

fn has_thinking(items: &[SentItem]) -> bool {
    items.contains(&SentItem::Thinking)
}

async fn a_session_moves_to_each_other_wire_and_back(from: TestWire) {
    let services = Services::start().await;
    for to in TestWire::ALL.into_iter().filter(|to| *to != from) {
        let session = services.runtime.open(spec().model(from.name())).await.unwrap();
        first_turn(&services, &session, from).await;
        let own = services.of(from).last_request();

        session.set_model(to.name()).await.unwrap();
        let work =
            TestReply::blocks(vec![thinking("My turn."), Block::text("I go on."), note("call_1", "c")]);
        services.plan(to, [work, TestReply::text("I am done.")]);
        assert_eq!(ask(&session, "Go on.").await, "I am done.", "{from:?} to {to:?}");
        let mut expected = told_of_first_turn();
        expected.push(Told::Text(Role::User, "Go on.".to_owned()));
        let requests = services.of(to).requests();
        let [first, second] = &requests[requests.len() - 2..] else { panic!("{to:?} was not asked") };
        assert_eq!(told(first.items()), expected, "{from:?} to {to:?}");
        assert!(!has_thinking(&first.items()), "{to:?} is sent thoughts of {from:?}: {}", first.body());
        expected.push(Told::Text(Role::Assistant, "I go on.".to_owned()));
        expected.push(Told::Call("note".to_owned(), json!({"text": "c"})));
        expected.push(Told::Result("noted c".to_owned(), false));
        assert_eq!(told(second.items()), expected, "{from:?} to {to:?}");
        // Its own thoughts go back to it.
        assert!(has_thinking(&second.items()), "{to:?}: {}", second.body());
        assert!(second.prefix().starts_with(&first.prefix()), "{from:?} to {to:?}");

        session.set_model(from.name()).await.unwrap();
        services.plan(from, [TestReply::text("Here I am.")]);
        assert_eq!(ask(&session, "And back.").await, "Here I am.", "{from:?} to {to:?}");
        let back = services.of(from).last_request();
        expected.push(Told::Text(Role::Assistant, "I am done.".to_owned()));
        expected.push(Told::Text(Role::User, "And back.".to_owned()));
        assert_eq!(told(back.items()), expected, "{from:?} to {to:?} and back");
        // What it said itself goes back as before, thoughts and signatures included.
        assert!(back.prefix().starts_with(&own.prefix()), "{}\nand then\n{}", own.prefix(), back.prefix());
        services.of(to).check();
    }
    services.of(from).check();
}
