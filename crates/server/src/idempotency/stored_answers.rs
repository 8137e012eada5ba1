//! The answers to creations, as rows of their tenant, by key and route.
//!
//! A row is written before the creation begins. The answer is added before the client receives it. A crash between the two leaves a pending
//! row: it is unknown whether the creation happened, and the row says so until it expires.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use conjure_base::{Digest, TenantId, Timestamp};
use conjure_journal::{
    Direction, NewRecord, Record, RecordErrorKind, RecordKey, RecordKind, RecordOrder, RecordQuery, Records,
};
use serde::{Deserialize, Serialize};

use crate::http::ApiError;
use crate::objects::{busy, decode, delete_all, encode};

const IDEMPOTENCY_KEY: RecordKind = RecordKind::from_static("idempotency_key");

/// How long an answer is kept.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The maximum size of a stored answer, in bytes. A row has at most 1 MiB, and quotes are escaped in it.
pub(super) const MAX_ANSWER: usize = 480 << 10;

/// The maximum number of attempts at a reservation, if other writers change the row.
const MAX_ATTEMPTS: usize = 8;

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

#[derive(Serialize, Deserialize)]
struct Row {
    /// The digest of the request's body.
    body: Digest,
    outcome: Outcome,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Outcome {
    /// The request is being handled, it failed after it may have had an effect, or the server ended before its answer was stored.
    Pending,
    /// The stored answer.
    Answered { status: u16, json: String },
    /// The request was answered, but the answer was too large to store.
    TooLarge,
}

/// The outcome of a reservation.
pub(super) enum Reserved {
    /// The request is the first one. Its row was written.
    First(Reservation),
    /// The stored answer of the first request.
    Answered(Response),
}

/// The pending row of a request that is being handled.
pub(super) struct Reservation {
    key: RecordKey,
    version: u64,
    body: Digest,
}

/// The stored answers of a tenant.
#[derive(Debug, Clone)]
pub(crate) struct StoredAnswers {
    records: Arc<dyn Records>,
    tenant: TenantId,
}

impl StoredAnswers {
    pub(crate) const fn new(records: Arc<dyn Records>, tenant: TenantId) -> Self {
        Self { records, tenant }
    }

    /// Reserves the key for a request with this body. If another request used the key in the last 24 hours, returns that request's stored
    /// answer.
    ///
    /// # Errors
    /// 400 if the other request had another body. 409 if it has no stored answer.
    pub(super) async fn reserve(&self, id: &str, body: Digest, now: Timestamp) -> Result<Reserved, ApiError> {
        let key = RecordKey::new(&self.tenant, IDEMPOTENCY_KEY, id)?;
        for _ in 0..MAX_ATTEMPTS {
            let content = encode(&Row { body, outcome: Outcome::Pending })?;
            match self.records.insert(NewRecord::new(key.clone(), content)).await {
                Ok(record) => return Ok(Reserved::First(Reservation { key, version: record.version, body })),
                Err(error) if error.kind() == RecordErrorKind::Exists => {}
                Err(error) => return Err(error.into()),
            }
            let Some(record) = self.records.get(&key).await? else { continue };
            if is_expired(&record, now) {
                match self.records.delete(&key, Some(record.version)).await {
                    Ok(_) => continue,
                    Err(error) if error.kind() == RecordErrorKind::VersionConflict => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            return replay(decode(&record)?, &body).map(Reserved::Answered);
        }
        Err(busy())
    }

    /// Stores a JSON answer.
    pub(super) async fn store(
        &self,
        reservation: Reservation,
        status: StatusCode,
        json: &Bytes,
    ) -> Result<(), ApiError> {
        let outcome = match std::str::from_utf8(json) {
            Ok(text) if text.len() <= MAX_ANSWER => {
                Outcome::Answered { status: status.as_u16(), json: text.to_owned() }
            }
            _ => Outcome::TooLarge,
        };
        self.write(reservation, outcome).await
    }

    /// Records that the request was answered, without its answer.
    pub(super) async fn store_too_large(&self, reservation: Reservation) -> Result<(), ApiError> {
        self.write(reservation, Outcome::TooLarge).await
    }

    async fn write(&self, reservation: Reservation, outcome: Outcome) -> Result<(), ApiError> {
        let Reservation { key, version, body } = reservation;
        self.records.replace(&key, version, encode(&Row { body, outcome })?).await?;
        Ok(())
    }

    /// Releases the key after an error, so that it can be used again.
    pub(super) async fn release(&self, reservation: Reservation) -> Result<(), ApiError> {
        self.records.delete(&reservation.key, Some(reservation.version)).await?;
        Ok(())
    }

    /// Deletes all rows that are older than 24 hours.
    pub(crate) async fn delete_expired(&self, now: Timestamp) -> Result<(), ApiError> {
        let from = Bound::Unbounded;
        let to = Bound::Excluded(Timestamp::from_millis(now.millis().saturating_sub(lifetime_millis())));
        let order = RecordOrder::CreatedAt { from, to };
        let query = RecordQuery::new(&self.tenant, IDEMPOTENCY_KEY).with_order(order, Direction::Ascending);
        delete_all(&*self.records, query).await
    }
}

fn lifetime_millis() -> u64 {
    u64::try_from(LIFETIME.as_millis()).unwrap_or(u64::MAX)
}

fn is_expired(record: &Record, now: Timestamp) -> bool {
    now.duration_since(record.created_at) > LIFETIME
}

/// The answer to a request whose key has a row.
fn replay(row: Row, body: &Digest) -> Result<Response, ApiError> {
    if row.body != *body {
        return Err(ApiError::invalid(
            "this `Idempotency-Key` was used for a request with another body; use a new key for a new request",
        ));
    }
    match row.outcome {
        Outcome::Answered { status, json } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
            let json_type = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let replayed = (REPLAYED, HeaderValue::from_static("true"));
            Ok((status, [json_type, replayed], json).into_response())
        }
        Outcome::Pending => Err(ApiError::conflict(
            "the outcome of the first request with this `Idempotency-Key` is unknown: it failed after it may have had an effect, its server \
             ended before it answered, or another server is still at it; look whether the object is there, and use a new key to create it \
             again",
        )),
        Outcome::TooLarge => Err(ApiError::conflict(
            "the first request with this `Idempotency-Key` succeeded, and its answer was too large to be kept; list the objects to find \
             what it created",
        )),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use conjure_base::{Clock as _, SystemClock};
    use conjure_journal::MemoryRecords;

    use super::*;

    const JSON: &[u8] = br#"{"id":"agent_1"}"#;

    fn answers() -> StoredAnswers {
        StoredAnswers::new(Arc::new(MemoryRecords::new()), TenantId::new("acme").unwrap())
    }

    fn now() -> Timestamp {
        SystemClock.timestamp()
    }

    async fn first(answers: &StoredAnswers, body: &str, at: Timestamp) -> Reservation {
        match answers.reserve("id", Digest::of_bytes(body.as_bytes()), at).await.unwrap() {
            Reserved::First(reservation) => reservation,
            Reserved::Answered(_) => panic!("the key was free"),
        }
    }

    /// The status and the body of a repeated request; the error's status and message.
    async fn repeated(answers: &StoredAnswers, body: &str) -> (u16, String) {
        match answers.reserve("id", Digest::of_bytes(body.as_bytes()), now()).await {
            Ok(Reserved::First(_)) => panic!("the key was taken"),
            Ok(Reserved::Answered(response)) => {
                assert_eq!(response.headers()["idempotent-replayed"], "true");
                let status = response.status().as_u16();
                let bytes = to_bytes(response.into_body(), MAX_ANSWER).await.unwrap();
                (status, String::from_utf8(bytes.to_vec()).unwrap())
            }
            Err(error) => (error.status().as_u16(), error.to_string()),
        }
    }

    #[tokio::test]
    async fn an_answer_is_given_again_for_the_same_body_alone() {
        let answers = answers();
        let reservation = first(&answers, "{}", now()).await;
        answers.store(reservation, StatusCode::OK, &Bytes::from_static(JSON)).await.unwrap();
        assert_eq!(repeated(&answers, "{}").await, (200, r#"{"id":"agent_1"}"#.to_owned()));
        let (status, message) = repeated(&answers, "{ }").await;
        assert!(status == 400 && message.contains("another body"), "{status} {message}");
    }

    #[tokio::test]
    async fn without_an_answer_the_outcome_is_unknown_and_after_an_error_the_key_is_free() {
        let answers = answers();
        let reservation = first(&answers, "{}", now()).await;
        let (status, message) = repeated(&answers, "{}").await;
        assert!(status == 409 && message.contains("is unknown"), "{status} {message}");
        answers.release(reservation).await.unwrap();
        first(&answers, "other", now()).await;
    }

    #[tokio::test]
    async fn a_large_answer_is_not_kept_and_the_creation_not_repeated() {
        let answers = answers();
        let reservation = first(&answers, "{}", now()).await;
        let large = Bytes::from(vec![b'"'; MAX_ANSWER + 1]);
        answers.store(reservation, StatusCode::OK, &large).await.unwrap();
        let (status, message) = repeated(&answers, "{}").await;
        assert!(status == 409 && message.contains("too large"), "{status} {message}");
    }

    #[tokio::test]
    async fn the_largest_answer_fits_a_row() {
        let answers = answers();
        let reservation = first(&answers, "{}", now()).await;
        let largest = Bytes::from(vec![b'"'; MAX_ANSWER]);
        answers.store(reservation, StatusCode::OK, &largest).await.unwrap();
        assert_eq!(repeated(&answers, "{}").await.1.len(), MAX_ANSWER);
    }

    #[tokio::test]
    async fn after_a_day_the_key_is_free_and_the_row_is_deleted() {
        let answers = answers();
        let day = now().saturating_add(LIFETIME + Duration::from_secs(60));
        for delete in [false, true] {
            let reservation = first(&answers, "{}", day).await;
            answers.store(reservation, StatusCode::OK, &Bytes::from_static(JSON)).await.unwrap();
            answers.delete_expired(now()).await.unwrap();
            assert_eq!(repeated(&answers, "{}").await.0, 200, "it is young");
            if delete {
                answers.delete_expired(day).await.unwrap();
                first(&answers, "{}", now()).await;
            }
        }
    }
}
