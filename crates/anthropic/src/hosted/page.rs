//! Lists that the service returns page by page.
//!
//! Endless lists are detected in two ways: a page that names itself as the next one, and a maximum number of pages.

use std::pin::Pin;

use futures_util::{Stream, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::hosted::{HostedError, HostedErrorKind};

/// The maximum number of pages that are read of one list.
const MAX_PAGES: u32 = 10_000;

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<T> {
    /// Its items in the service's order.
    #[serde(rename = "data")]
    items: Vec<T>,
    /// The token of the next page; `None` or empty on the last.
    #[serde(default, rename = "next_page")]
    next: Option<String>,
}

/// All items of a list, fetched page by page.
pub type Items<T> = Pin<Box<dyn Stream<Item = Result<T, HostedError>> + Send>>;

/// Parses a page.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<Page<T>, String> {
    let mut page: Page<T> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    page.next = page.next.filter(|token| !token.is_empty());
    Ok(page)
}

/// The items of all pages.
pub(crate) fn items<T, F>(fetch: F) -> Items<T>
where
    T: Send + 'static,
    F: Fn(Option<String>) -> PageFuture<T> + Send + Sync + 'static,
{
    struct State<T, F> {
        fetch: F,
        ready: std::vec::IntoIter<T>,
        next: Next,
        pages: u32,
    }
    enum Next {
        First,
        At(String),
        Over,
    }
    let state = State { fetch, ready: Vec::new().into_iter(), next: Next::First, pages: 0 };
    Box::pin(stream::unfold(state, |mut state| async move {
        loop {
            if let Some(item) = state.ready.next() {
                return Some((Ok(item), state));
            }
            let token = match std::mem::replace(&mut state.next, Next::Over) {
                Next::First => None,
                Next::At(token) => Some(token),
                Next::Over => return None,
            };
            state.pages += 1;
            match (state.fetch)(token.clone()).await {
                Ok(page) if page.next.is_some() && (page.next == token || state.pages >= MAX_PAGES) => {
                    let message = format!(
                        "the service repeats a page or has more than {MAX_PAGES} pages; narrow the list"
                    );
                    return Some((Err(HostedError::new(HostedErrorKind::Protocol, message)), state));
                }
                Ok(page) => {
                    state.next = page.next.map_or(Next::Over, Next::At);
                    state.ready = page.items.into_iter();
                }
                Err(error) => return Some((Err(error), state)),
            }
        }
    }))
}

/// A request for a page.
pub(crate) type PageFuture<T> = Pin<Box<dyn Future<Output = Result<Page<T>, HostedError>> + Send>>;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt as _, TryStreamExt as _};
    use proptest::prelude::*;
    use serde_json::json;

    fn next(page: serde_json::Value) -> Option<String> {
        parse::<u32>(page.to_string().as_bytes()).unwrap().next
    }

    #[test]
    fn the_token_of_the_next_page_is_read() {
        assert_eq!(next(json!({"data": [1], "next_page": "p2"})), Some("p2".to_owned()));
        assert_eq!(next(json!({"data": []})), None);
        assert_eq!(next(json!({"data": [], "next_page": null})), None);
        assert_eq!(next(json!({"data": [], "next_page": ""})), None);
        assert!(parse::<u32>(b"{}").is_err() && parse::<u32>(b"<html>").is_err());
    }

    #[tokio::test]
    async fn a_page_that_repeats_itself_ends_the_list() {
        let three = items(|at| {
            let at: usize = at.map_or(0, |token| token.parse().unwrap());
            let page = Page { items: vec![at * 2, at * 2 + 1], next: (at < 2).then(|| (at + 1).to_string()) };
            Box::pin(std::future::ready(Ok(page)))
        });
        assert_eq!(three.try_collect::<Vec<_>>().await.unwrap(), [0, 1, 2, 3, 4, 5]);

        let mut endless = items(|_| {
            let page = Page { items: vec![1], next: Some("again".to_owned()) };
            Box::pin(std::future::ready(Ok(page)))
        });
        assert_eq!(endless.next().await.unwrap().unwrap(), 1);
        let error = endless.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), HostedErrorKind::Protocol);
        assert!(endless.next().await.is_none());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}", token in any::<String>()) {
            let _ = parse::<String>(text.as_bytes());
            let page = json!({"data": ["x"], "next_page": token});
            let page = parse::<String>(page.to_string().as_bytes()).unwrap();
            prop_assert_eq!(page.next.is_some(), !token.is_empty());
        }
    }
}
