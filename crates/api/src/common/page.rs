//! Pages of lists, and the cursors between them.

use serde::Serialize;

use crate::RequestError;

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Page<T> {
    /// The elements of the page.
    pub data: Vec<T>,
    /// The cursor of the next page; null on the last page.
    pub next_page: Option<String>,
}

/// A page of a list that can also be read backwards, such as the list of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TwoWayPage<T> {
    /// The elements of the page.
    pub data: Vec<T>,
    /// The cursor of the next page; null on the last page.
    pub next_page: Option<String>,
    /// The cursor of the previous page; null on the first page.
    pub prev_page: Option<String>,
}

/// A page of a list that is paged by the ids of its elements, such as the list of models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdPage<T> {
    /// The elements of the page.
    pub data: Vec<T>,
    /// Whether there are more elements in the direction of the request.
    pub has_more: bool,
    /// The id of the first element.
    pub first_id: Option<String>,
    /// The id of the last element.
    pub last_id: Option<String>,
}

/// A page of files. Older clients page by ids, newer ones by cursors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilePage<T> {
    /// The page by ids.
    #[serde(flatten)]
    pub by_id: IdPage<T>,
    /// The cursor of the next page; null on the last page.
    pub next_page: Option<String>,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    Ascending,
    /// Newest first.
    Descending,
}

impl Order {
    /// The API's name for the order.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ascending => "asc",
            Self::Descending => "desc",
        }
    }
}

/// A position in a list. A cursor is only valid for the same list, order and filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The list: its name, order and filters.
    pub list: String,
    /// The position after which the page begins. Only the server understands this text.
    pub position: String,
}

const PREFIX: &str = "page_";

impl Cursor {
    /// Encodes the cursor as text for clients.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = PREFIX.to_owned();
        for byte in self.list.bytes().chain([0]).chain(self.position.bytes()) {
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }

    /// Decodes a cursor of `list` and returns its position.
    ///
    /// # Errors
    /// If the text is not a cursor, or belongs to a list with another order or other filters.
    pub fn position(text: &str, list: &str) -> Result<String, RequestError> {
        let cursor = Self::decode(text).ok_or_else(|| {
            RequestError::new(
                "page",
                "the value is not a cursor; pass `next_page` of an earlier response unchanged",
            )
        })?;
        if cursor.list == list {
            return Ok(cursor.position);
        }
        Err(RequestError::new(
            "page",
            "the cursor comes from a list with another order or other filters; send the same ones, or start without \
             `page`",
        ))
    }

    fn decode(text: &str) -> Option<Self> {
        let hex = text.strip_prefix(PREFIX)?.as_bytes();
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let bytes: Vec<u8> = hex
            .chunks(2)
            .map(|pair| match pair {
                [high, low] => Some(digit(high)? * 16 + digit(low)?),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let text = String::from_utf8(bytes).ok()?;
        let (list, position) = text.split_once('\0')?;
        Some(Self { list: list.to_owned(), position: position.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cursor_of_another_list_is_refused() {
        let cursor = Cursor { list: "sessions desc".to_owned(), position: "17".to_owned() }.encode();
        assert_eq!(Cursor::position(&cursor, "sessions desc").unwrap(), "17");
        let error = Cursor::position(&cursor, "sessions asc").unwrap_err().to_string();
        assert!(error.starts_with("page: the cursor comes from a list with another order"), "{error}");
        for text in ["", "page_", "page_0", "page_zz", "page_41", "seite_4100"] {
            assert!(Cursor::position(text, "").is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn cursors_round_trip(list in "[a-zä ]{0,20}", position in ".{0,20}") {
            let position = position.replace('\0', "");
            let cursor = Cursor { list: list.clone(), position: position.clone() };
            prop_assert_eq!(Cursor::position(&cursor.encode(), &list).unwrap(), position);
        }

        #[test]
        fn no_text_makes_it_panic(text in "(page_)?[0-9a-fxä]{0,40}") {
            let _ = Cursor::position(&text, "list");
        }
    }
}
