//! [`TestWire`] and [`TestService`]: one of the four wires, and a running fake of its service with a client of it.

use std::sync::Arc;

use conjure::Model;
use conjure_anthropic::fake::FakeMessages;
use conjure_anthropic::{Client, Config, ModelOptions};
use conjure_gemini::fake::FakeGemini;
use conjure_gemini::{Gemini, KEY_HEADER};
use conjure_model_http::{HttpClient, HttpConfig, KeyHeader, ModelPrices, Prices};
use conjure_openai::fake::FakeOpenAi;
use conjure_openai::{Chat, Responses};
use secrecy::SecretString;

use crate::support::sent_request::SentRequest;
use crate::support::test_reply::TestReply;

/// The key of every client.
pub(crate) const KEY: &str = "sk-canary-of-the-key";

/// What a token costs, in millionths of a dollar.
pub(crate) const TOKEN_MICROS: u64 = 10;

/// A wire that a model service speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestWire {
    Messages,
    Chat,
    Responses,
    Gemini,
}

impl TestWire {
    pub(crate) const ALL: [Self; 4] = [Self::Messages, Self::Chat, Self::Responses, Self::Gemini];

    /// The name of its model, here and at the service.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages-model",
            Self::Chat => "chat-model",
            Self::Responses => "responses-model",
            Self::Gemini => "gemini-model",
        }
    }

    /// Whether an answer may pause, to be continued by the next request.
    pub(crate) const fn has_pauses(self) -> bool {
        matches!(self, Self::Messages | Self::Gemini)
    }
}

/// A fake of a service.
enum Fake {
    Messages(FakeMessages),
    OpenAi(FakeOpenAi),
    Gemini(FakeGemini),
}

/// A service that speaks a wire. It refuses what the real one would refuse.
pub(crate) struct TestService {
    wire: TestWire,
    fake: Fake,
}

impl TestService {
    /// Answers valid requests with these, in the order in which they come.
    pub(crate) async fn start(wire: TestWire, replies: impl IntoIterator<Item = TestReply>) -> Self {
        let service = Self::start_by_position(wire, []).await;
        replies.into_iter().for_each(|reply| service.add_reply(&reply));
        service
    }

    /// Answers each session's requests by what its history already has: the first reply where there is no answer yet, and so on.
    pub(crate) async fn start_by_position(
        wire: TestWire,
        replies: impl IntoIterator<Item = TestReply>,
    ) -> Self {
        let replies = replies.into_iter();
        let fake = match wire {
            TestWire::Messages => {
                let builder = FakeMessages::builder().key(KEY).model(wire.name());
                let turns = replies.map(|reply| reply.for_messages());
                Fake::Messages(builder.turns(turns).start().await.unwrap())
            }
            TestWire::Chat | TestWire::Responses => {
                let builder = FakeOpenAi::builder().key(KEY).model(wire.name());
                let turns = replies.map(|reply| reply.for_openai(wire));
                Fake::OpenAi(builder.turns(turns).start().await.unwrap())
            }
            TestWire::Gemini => {
                let builder = FakeGemini::builder().key(KEY).model(wire.name());
                let turns = replies.map(|reply| reply.for_gemini());
                Fake::Gemini(builder.turns(turns).start().await.unwrap())
            }
        };
        Self { wire, fake }
    }

    /// Answers the next valid request that nothing is planned for with this.
    pub(crate) fn add_reply(&self, reply: &TestReply) {
        match &self.fake {
            Fake::Messages(fake) => fake.add_fault(reply.for_messages()),
            Fake::OpenAi(fake) => fake.add_fault(reply.for_openai(self.wire)),
            Fake::Gemini(fake) => fake.add_fault(reply.for_gemini()),
        }
    }

    /// A client of it. All its clones share one rate limiter.
    pub(crate) fn model(&self) -> Arc<dyn Model> {
        let key = SecretString::from(KEY);
        let micros = TOKEN_MICROS * 1_000_000;
        let price = ModelPrices { input: micros, output: micros, cache_write: micros, cache_read: micros };
        let prices = Prices::none().with_fallback(price);
        let http = |url: String, header| {
            let config = HttpConfig::new(url).with_key(key.clone(), header);
            HttpClient::new(&config.with_seed(1).with_prices(prices.clone())).unwrap()
        };
        match &self.fake {
            Fake::Messages(fake) => {
                let config = Config::new(key.clone())
                    .with_base_url(fake.base_url())
                    .with_http(|http| http.with_seed(1));
                let client = Client::new(&config.with_prices(prices.clone())).unwrap();
                Arc::new(client.messages(ModelOptions::new(self.wire.name())).unwrap())
            }
            Fake::OpenAi(fake) => {
                let client = http(fake.base_url(), KeyHeader::Bearer);
                match self.wire {
                    TestWire::Chat => Arc::new(Chat::new(client, Chat::options(self.wire.name()))),
                    _ => Arc::new(Responses::new(client, Responses::options(self.wire.name()))),
                }
            }
            Fake::Gemini(fake) => {
                let client = http(fake.base_url(), KEY_HEADER);
                Arc::new(Gemini::new(client, Gemini::options(self.wire.name())))
            }
        }
    }

    /// How many requests it has received.
    pub(crate) fn received(&self) -> u64 {
        match &self.fake {
            Fake::Messages(fake) => fake.received(),
            Fake::OpenAi(fake) => fake.received(),
            Fake::Gemini(fake) => fake.received(),
        }
    }

    /// All requests, in the order in which they came.
    pub(crate) fn requests(&self) -> Vec<SentRequest> {
        let read = |status, body: &[u8], key: Option<&str>| {
            SentRequest::new(self.wire, status, body, key.unwrap_or_default())
        };
        match &self.fake {
            Fake::Messages(fake) => fake
                .requests()
                .iter()
                .map(|sent| read(sent.status(), sent.body(), sent.header("x-api-key")))
                .collect(),
            Fake::OpenAi(fake) => fake
                .requests()
                .iter()
                .map(|sent| read(sent.status(), sent.body(), sent.header("authorization")))
                .collect(),
            Fake::Gemini(fake) => fake
                .requests()
                .iter()
                .map(|sent| read(sent.status(), sent.body(), sent.header("x-goog-api-key")))
                .collect(),
        }
    }

    /// The last request.
    pub(crate) fn last_request(&self) -> SentRequest {
        self.requests().pop().unwrap()
    }

    /// Fails if a request was refused for what it says, or if a call in one of them has not exactly one result.
    pub(crate) fn check(&self) {
        for (place, request) in self.requests().iter().enumerate() {
            assert_ne!(request.status(), Some(400), "{:?}, request {place}: {}", self.wire, request.body());
            request.check_results();
        }
    }
}

/// Makes a test of each wire out of each of these functions: `NAME::messages`, `NAME::chat` and so on.
macro_rules! on_every_wire {
    ($($name:ident),+ $(,)?) => {
        $(
            mod $name {
                use crate::support::test_wire::TestWire;

                #[tokio::test]
                async fn messages() {
                    super::$name(TestWire::Messages).await;
                }

                #[tokio::test]
                async fn chat() {
                    super::$name(TestWire::Chat).await;
                }

                #[tokio::test]
                async fn responses() {
                    super::$name(TestWire::Responses).await;
                }

                #[tokio::test]
                async fn gemini() {
                    super::$name(TestWire::Gemini).await;
                }
            }
        )+
    };
}
pub(crate) use on_every_wire;
