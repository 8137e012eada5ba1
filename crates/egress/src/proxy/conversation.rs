//! From a fresh connection to the protocol that its first byte decides, and how a refusal is said in it.
//!
//! A connection first takes one of the places of those that are open, so that waiting ones hold no memory and ask for
//! nothing. The place is given back when the conversation ends or is dropped.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::activity::Activity;
use super::peer::Peer;
use super::{http, socks};
use crate::egress::Egress;
use crate::refusal::Reason;
use crate::target::Target;
use crate::within::within;

/// Why a conversation ended before its time.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Refused, and nothing was said to the client yet.
    Refused(Reason, Option<Target>),
    /// Refused, and it is too late to say so but by hanging up.
    TooLate(Reason, Option<Target>),
    /// One of the two ends is gone.
    Broken(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason, None)
    }
}

/// Whom a conversation is between, and what watches over it.
#[derive(Debug)]
pub(crate) struct Conversation<'a, S> {
    pub(crate) egress: &'a Egress,
    pub(crate) activity: &'a Activity,
    pub(crate) client: Peer<S>,
}

/// Serves one client, until one of the two has hung up or nothing moves any more.
pub(crate) async fn serve<S>(egress: &Egress, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let activity = Activity::new(Arc::clone(egress.clock()), egress.bounds().idle);
    let client = Peer::new(stream, &activity, egress.bounds().buffer_bytes);
    let conversation = Conversation { egress, activity: &activity, client };
    tokio::select! {
        biased;
        () = conversation.run() => {}
        () = activity.quiet() => tracing::debug!("closed an idle connection"),
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Conversation<'_, S> {
    async fn run(mut self) {
        let (clock, bounds) = (&**self.egress.clock(), self.egress.bounds());
        let place = Arc::clone(self.egress.places()).acquire_owned();
        let place = match within(clock, clock.deadline(bounds.place), place).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(Reason::TooManyConnections),
        };
        let deadline = clock.deadline(bounds.request);
        let first = match within(clock, deadline, self.client.first_byte()).await {
            Ok(Ok(Some(first))) => first,
            // Whoever hangs up without a word has asked for nothing.
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => {
                self.egress.refused(Reason::RequestTimedOut { waited: bounds.request }, None);
                return;
            }
        };
        match (first, &place) {
            (5, place) => socks::serve(self, place.as_ref().err().cloned(), deadline).await,
            (b'A'..=b'Z' | b'a'..=b'z', place) => {
                http::serve(self, place.as_ref().err().cloned(), deadline).await;
            }
            (4, _) => {
                self.egress.refused(Reason::SocksVersion { version: 4 }, None);
                // "Request rejected or failed", in SOCKS4.
                self.part(&[0, 91, 0, 0, 0, 0, 0, 0]).await;
            }
            (first, _) => {
                let refusal = self.egress.refused(Reason::Protocol { first }, None);
                let answer = http::refusal_answer(&refusal);
                self.part(&answer).await;
            }
        }
    }

    /// Says a last thing and hangs up.
    pub(crate) async fn part(&mut self, last: &[u8]) {
        let clock = &**self.egress.clock();
        let deadline = clock.deadline(self.egress.bounds().farewell);
        let said = async {
            self.client.say(last).await?;
            self.client.farewell().await
        };
        // A client that is gone, or does not read, has missed it.
        let _ = within(clock, deadline, said).await;
    }
}
